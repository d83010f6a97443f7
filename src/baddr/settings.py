"""Settings, grouped as the paper's appendix groups its tables. Plain values: nothing here needs JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Planner:
    """PO-UCT (Alg. 2)."""

    num_simulations: int = 4096
    """Simulations per action."""
    exploration: float = 100.0
    """The UCB constant u: about the range of an episode's returns."""
    depth: int = 0
    """Search depth; 0: to the end of the episode."""


@dataclass(frozen=True)
class Filter:
    """The belief update (Alg. 1)."""

    kind: Literal["rejection", "importance"] = "importance"
    """Rejection sampling, or importance sampling."""
    num_particles: int = 1024
    """Particles in the belief."""
    resample_below: float = 128.0
    """Importance: resample where the effective sample size is below this (above n: at every step)."""
    max_tries: int = 1000
    """Rejection: proposals per particle before the depletion policy takes over."""
    weight_after_update: bool = False
    """Importance: weigh by the parameters after U, as the authors' program does."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""


def problems(planner: Planner, filter: Filter) -> list[str]:
    """What is wrong with these settings, a sentence each."""
    checks = [
        (planner.num_simulations >= 1, "planner.num-simulations must be at least 1"),
        (planner.exploration >= 0, "planner.exploration must not be negative"),
        (planner.depth >= 0, "planner.depth must be 0 (to the end of the episode) or more"),
        (filter.num_particles >= 1, "filter.num-particles must be at least 1"),
        (filter.max_tries >= 1, "filter.max-tries must be at least 1"),
        (filter.resample_below >= 0, "filter.resample-below must not be negative"),
    ]
    return [sentence for holds, sentence in checks if not holds]


@dataclass(frozen=True)
class Tiger:
    """The tiger problem and the prior about it."""

    name: ClassVar[str] = "tiger"
    accuracy: float = 0.85
    """The true probability of hearing the good door."""
    prior_accuracy: float = 0.625
    """Its expectation under the prior."""
    prior_total: float = 8.0
    """The prior's total count per door: how much listening it is worth."""
    discount: float = 0.95
    """gamma."""
    horizon: int = 30
    """K: the longest episode."""

    def problems(self) -> list[str]:
        checks = [
            (0 <= self.accuracy <= 1, "domain.accuracy must lie in [0, 1]"),
            (0 < self.prior_accuracy < 1, "domain.prior-accuracy must lie in (0, 1)"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        ]
        return [sentence for holds, sentence in checks if not holds]
