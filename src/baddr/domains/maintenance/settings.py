"""Maintenance's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain


@dataclass(frozen=True)
class MaintenanceSettings:
    """A machine that wears out faster than expected, and the prior over it."""

    name: ClassVar[str] = "maintenance"
    wear: float = 0.5
    """The true probability that running wears the machine by one step."""
    prior_wear: float = 0.1
    """The prior's expectation of domain.wear."""
    prior_total: float = 10.0
    """How many steps the prior is worth: simulators draw the wear from a Beta with this total count."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 20
    """K: the number of steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (0 <= self.wear <= 1, "domain.wear must lie in [0, 1]"),
            (0 < self.prior_wear < 1, "domain.prior-wear must lie in (0, 1)"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: MaintenanceSettings) -> Names:
    return Names(
        state=(("wear", ("new", "good", "worn", "broken")),),
        action=("run", "inspect", "replace"),
        observation=(("sound", ("quiet", "rattle")),),
    )


SIZES = Preset(
    runs=32,
    episodes=50,
    groups={
        "planner": PoUct(num_simulations=1024, exploration=50.0, in_flight=1),
        "filter": Importance(num_particles=512, resample_below=128.0),
        "network": Network(hidden=32, dropout=0.1, inputs="onehot", learning_rate=0.005),
        "pretrain": Pretrain(batches=4096, batch_size=64, learning_rate=0.005, optimizer="adam"),
    },
)


def presets(settings: MaintenanceSettings) -> dict[str, Preset]:
    ours = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED)
    tree = BeliefTree(num_expansions=32, num_particles=256)
    quick = ours.changed(SIZES.runs, SIZES.episodes, planner=tree)
    return {"quick": quick, "quick/network": quick.changed(8, 50), "paper": SIZES, **learners()}


ENTRY = Entry(
    summary="run, inspect or replace a machine that wears out",
    settings=MaintenanceSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.maintenance.model"),
)
