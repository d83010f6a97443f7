"""Sysadmin's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners, with_wide
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import FactoredSettings, Network, Pretrain


@dataclass(frozen=True)
class SysadminSettings:
    """Sysadmin, and the prior over it."""

    name: ClassVar[str] = "sysadmin"
    computers: int = 4
    """n: the number of computers."""
    topology: Literal["linear", "independent"] = "linear"
    """linear: a computer fails more often next to a failed one. independent: each computer fails on its
    own."""
    failure: float = 0.025
    """The true probability that a running computer fails on its own in a step."""
    infection: float = 0.075
    """The true probability that it fails because of a failed neighbour, for each of them."""
    prior_failure: float = 0.025
    """The prior's expectation of domain.failure."""
    prior_infection: float = 0.075
    """The prior's expectation of domain.infection."""
    prior_total: float = 10_000.0
    """The prior's total count for each row of how computers fail and are repaired, in tables and graphs."""
    prior_observation_total: float = 10_000.0
    """The prior's total count for each row of what is seen, in tables, graphs and simulators."""
    certainty: float = 10_000.0
    """c: a simulator's rows of how computers fail are drawn from Dirichlet(c * expectation). 4 to 10: a wide
    prior."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 20
    """K: the number of steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (1 <= self.computers <= 16, "domain.computers must lie between 1 and 16"),
            (0 <= self.failure <= 1, "domain.failure must lie in [0, 1]"),
            (0 <= self.infection <= 1, "domain.infection must lie in [0, 1]"),
            (0 < self.prior_failure < 1, "domain.prior-failure must lie between 0 and 1"),
            (0 <= self.prior_infection < 1, "domain.prior-infection must be at least 0 and less than 1"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (self.prior_observation_total > 0, "domain.prior-observation-total must be positive"),
            (self.certainty > 0, "domain.certainty must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: SysadminSettings) -> Names:
    status, computers = ("failed", "running"), range(settings.computers)
    return Names(
        state=tuple((f"computer {i}", status) for i in computers),
        action=tuple(f"{verb} {i}" for verb in ("observe", "reboot") for i in computers),
        observation=(("status", status),),
    )


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=64,
    episodes=50,
    groups={
        "planner": PoUct(num_simulations=1024, exploration=10.0, depth=10, in_flight=1),
        "filter": Importance(num_particles=512, resample_below=128.0),
        "network": Network(hidden=64, dropout=0.1, learning_rate=0.0005),
        "pretrain": Pretrain(batches=8192, batch_size=64, learning_rate=0.05, optimizer="sgd"),
    },
)


def presets(settings: SysadminSettings) -> dict[str, Preset]:
    tied = FactoredSettings(tying="tied")  # computers are alike; apart, each has too few data of its own
    presets = {
        "quick": SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED, factored=tied),
        "quick/network": SIZES.changed(8, SIZES.episodes, planner=IMPROVED),
        "paper": SIZES,
        **learners(),
    }
    return with_wide(presets, 2**settings.computers, certainty=10.0)


ENTRY = Entry(
    summary="keep the computers of a network running",
    settings=SysadminSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.sysadmin.model"),
    suite={"failure": 0.1, "infection": 0.3, "prior_total": 10.0},  # the published prior expects the truth
)
