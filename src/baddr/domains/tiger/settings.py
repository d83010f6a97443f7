"""Tiger's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, Quantity, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain


@dataclass(frozen=True)
class Doors:
    """What tiger and factored tiger have in common."""

    accuracy: float = 0.85
    """The true probability of hearing the good door correctly."""
    prior_accuracy: float = 0.625
    """The prior's expectation of domain.accuracy."""
    prior_total: float = 8.0
    """The prior's total count for each door: how many steps of listening it is worth."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 30
    """K: the most steps in an episode."""

    def problems_of_doors(self) -> list[str]:
        return wrong(
            (0 <= self.accuracy <= 1, "domain.accuracy must lie in [0, 1]"),
            (0 < self.prior_accuracy < 1, "domain.prior-accuracy must lie in (0, 1)"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


@dataclass(frozen=True)
class TigerSettings(Doors):
    """The tiger problem, and the prior over it."""

    name: ClassVar[str] = "tiger"

    def problems(self) -> list[str]:
        return self.problems_of_doors()


def names(settings: Doors) -> Names:
    sides = ("left", "right")
    return Names(
        state=(("good door", sides),),
        action=("open-left", "open-right", "listen"),
        observation=(("heard", (*sides, "null")),),
        model=(
            Quantity(
                "accuracy",
                "p(hear the good door)",
                tuple(f"good door {side}" for side in sides),
                (settings.accuracy,),
            ),
        ),
    )


PAPER = Preset(
    runs=7500,
    episodes=400,
    groups={
        "planner": PoUct(num_simulations=4096, exploration=100.0, in_flight=1),
        "filter": Importance(num_particles=1024, resample_below=128.0),
        "network": Network(hidden=32, dropout=0.5, learning_rate=0.005),
        "pretrain": Pretrain(batches=4096, batch_size=32, learning_rate=0.1, optimizer="sgd"),
    },
)

OURS = PAPER.changed(PAPER.runs, PAPER.episodes, planner=IMPROVED)
TREE = BeliefTree(num_expansions=16, num_particles=512)


def presets(settings: Doors, num_states: int = 2) -> dict[str, Preset]:
    # Without moves a run with counts in 50 to 200 takes one door for the other for ever.
    moves = {"quick/counts": OURS.changed(64, 100, planner=TREE, filter={"rejuvenate": True})}
    presets = {
        **(moves if isinstance(settings, TigerSettings) else {}),
        "quick": OURS.changed(64, 100, planner=TREE),
        # Eight of the table's 1, 4 or 8: one alone hardly learns in so few episodes (docs/results.md).
        "quick/network": OURS.changed(24, 40, planner=TREE, pretrain={"num_networks": 8}),
        "quick/latent": OURS.changed(24, 40, planner=TREE),
        "paper": PAPER,
        **learners(40_000, learning_rate=1e-4, num_particles=30),
    }
    return with_wide(presets, num_states)  # its simulators are as different as need be


ENTRY = Entry(
    summary="listen for the good door, or open one",
    settings=TigerSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.tiger.model"),
)
