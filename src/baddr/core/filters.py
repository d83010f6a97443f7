"""Belief updates by particles: what is chosen about them. `belief_update` has their maths. Needs no JAX."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from baddr.core.checks import wrong

if TYPE_CHECKING:
    from baddr.core.belief_update import Info
    from baddr.core.gba_pomdp import GBAPOMDP
    from baddr.core.particles import Particles

MOST_STEPS = 10**7  # that a run remembers


@runtime_checkable
class Filter(Protocol):
    """tau: (belief, a, o) -> belief, learning included. Any value with these members is a filter."""

    @property
    def num_particles(self) -> int: ...

    @property
    def learn_terminal(self) -> bool:
        """Whether the step that ends an episode is learned from."""
        ...

    def update(
        self, key: Any, gba: "GBAPOMDP", belief: "Particles", a: Any, o: Any, learn: Any, active: Any
    ) -> "tuple[Particles, Info]":
        """The belief after (a, o). It learns where `learn`, and stays as it is where not `active`."""
        ...


class _Sampling:
    """What both built-in filters have."""

    algorithm: ClassVar[str]  # a function of `belief_update`
    tells_ancestors: ClassVar[bool] = True  # `Info.ancestors`: whose child each particle is

    def update(
        self,
        key: Any,
        gba: "GBAPOMDP",
        belief: "Particles",
        a: Any,
        o: Any,
        learn: Any = True,
        active: Any = True,
    ) -> "tuple[Particles, Info]":
        from baddr.core import belief_update

        return getattr(belief_update, self.algorithm)(key, gba, belief, a, o, self, learn, active)


@dataclass(frozen=True)
class Importance(_Sampling):
    """Importance sampling: every particle takes a step and is weighted by p(o | s, a, s'; D)."""

    algorithm: ClassVar[str] = "importance_sampling"

    num_particles: int = 1024
    """Number of particles in the belief."""
    resample_below: float = 128.0
    """Resample when the effective sample size is below this. More than num-particles: at every step."""
    resampling: Literal["systematic", "independent"] = "systematic"  # published factored program: independent
    """systematic: one random number for all particles. independent: one for each."""
    tries: int = 1
    """Steps that each particle tries; it takes one, drawn by weight."""
    weight_after_update: bool = False
    """Compute weights with the parameters after the update U, as the authors' program does."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""
    rewards: bool = False
    """Use the reward as evidence, too: rule out states that do not explain it (not in the paper)."""
    rejuvenate: bool = False
    """Rejuvenate particles with exact Gibbs sweeps after an episode that leaves few ancestors (agents
    ba-pomcp, fba-pomcp and bank)."""
    history: int = 8192
    """Number of steps that a run remembers for --filter.rejuvenate, which stops when they are full."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_particles >= 1, "filter.num-particles must be at least 1"),
            (1 <= self.history <= MOST_STEPS, f"filter.history must lie between 1 and {MOST_STEPS:,}"),
            (self.resample_below >= 0, "filter.resample-below must not be negative"),
            (self.tries >= 1, "filter.tries must be at least 1"),
            (self.tries == 1 or not self.weight_after_update, "filter.weight-after-update needs tries 1"),
        )


@dataclass(frozen=True)
class Rejection(_Sampling):
    """Rejection sampling (Alg. 1): particles propose (s', o~), and those with o~ = o are kept."""

    algorithm: ClassVar[str] = "rejection_sampling"

    num_particles: int = 1024
    """Number of particles in the belief."""
    max_tries: int = 1000
    """The most proposals per particle. Empty places are then filled with copies of accepted particles."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""
    rewards: bool = False
    """Use the reward as evidence, too: rule out states that do not explain it (not in the paper)."""
    rejuvenate: bool = False
    """Rejuvenate particles with exact Gibbs sweeps after an episode that leaves few ancestors (agents
    ba-pomcp, fba-pomcp and bank)."""
    history: int = 8192
    """Number of steps that a run remembers for --filter.rejuvenate, which stops when they are full."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_particles >= 1, "filter.num-particles must be at least 1"),
            (1 <= self.history <= MOST_STEPS, f"filter.history must lie between 1 and {MOST_STEPS:,}"),
            (self.max_tries >= 1, "filter.max-tries must be at least 1"),
        )


FILTERS = {kind.__name__.lower(): f"baddr.core.filters:{kind.__name__}" for kind in (Importance, Rejection)}
FILTERS["exact"] = "baddr.posteriors.settings:Exact"
