"""T-maze's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain


@dataclass(frozen=True)
class TMazeSettings:
    """T-maze(n), and the prior over its cue."""

    name: ClassVar[str] = "t-maze"
    length: int = 10
    """n: the number of cells in the corridor. The junction comes after them."""
    reliability: float = 0.9
    """The true probability that the cue names the correct side (published: 1)."""
    variant: Literal["passive", "active"] = "passive"
    """passive: the episode starts before the cue, and the way leads past it. active: the episode starts one
    cell past the cue."""
    prior_reliability: float = 0.4
    """The prior's expectation of domain.reliability. Below 1/2, the agent first believes the opposite of the
    cue."""
    prior_total: float = 5.0
    """How many cues the prior is worth: simulators draw the reliability from a Beta with this total count."""
    discount: float = 0.98
    """The discount factor gamma."""
    horizon: int = 40
    """K: the most steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (self.length >= 2, "domain.length must be at least 2"),
            (0 <= self.reliability <= 1, "domain.reliability must lie in [0, 1]"),
            (0 < self.prior_reliability < 1, "domain.prior-reliability must lie in (0, 1)"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: TMazeSettings) -> Names:
    cells = ("door", *(f"cell {i + 1}" for i in range(settings.length)), "junction")
    sides = ("north", "south")
    return Names(
        state=(("position", cells), ("treat", sides)),
        action=("north", "east", "south", "west"),
        observation=(("seen", ("cue north", "cue south", "corridor", "junction", "treat", "nothing")),),
    )


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=32,
    episodes=50,
    groups={
        "planner": PoUct(num_simulations=1024, exploration=4.0, in_flight=1),
        "filter": Importance(num_particles=512, resample_below=128.0),
        "network": Network(hidden=32, dropout=0.1, inputs="onehot", learning_rate=0.005),
        "pretrain": Pretrain(batches=4096, batch_size=64, learning_rate=0.005, optimizer="adam"),
    },
)
TREE = BeliefTree(num_expansions=64, num_particles=128)


def presets(settings: TMazeSettings) -> dict[str, Preset]:
    ours = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED)
    found = {
        "quick": ours.changed(SIZES.runs, SIZES.episodes, planner=TREE),
        "quick/network": ours.changed(8, SIZES.episodes, planner=TREE, filter={"num_particles": 256}),
        "paper": SIZES,
        **learners(),
    }
    return with_wide(found, names(settings).num_states)


ENTRY = Entry(
    summary="remember a cue along a corridor, then turn to the side that it named",
    settings=TMazeSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.t_maze.model"),
)
