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
    """Importance sampling: every particle steps and is weighed by p(o | s, a, s'; D)."""

    algorithm: ClassVar[str] = "importance_sampling"

    num_particles: int = 1024
    """Particles in the belief."""
    resample_below: float = 128.0
    """Resample when the effective sample size is below this. Above the number of particles: at every step."""
    resampling: Literal["systematic", "independent"] = "systematic"
    """One random number for all, or independent ones."""  # the latter: the published factored program
    tries: int = 1
    """Steps that a particle tries; it takes one by weight."""
    weight_after_update: bool = False
    """Weigh with the parameters after U, as the authors' program does."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""
    rewards: bool = False
    """Take the reward for evidence, too: states that do not explain it are impossible (not in the paper)."""
    rejuvenate: bool = False
    """Move particles by exact Gibbs sweeps at the end of an episode that leaves few ancestors (agents
    ba-pomcp, fba-pomcp and bank)."""
    history: int = 8192
    """Steps that a run remembers for --filter.rejuvenate. It moves no more particles when these are full."""

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
    """Particles in the belief."""
    max_tries: int = 1000
    """Proposals per particle before the depletion policy takes over."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""
    rewards: bool = False
    """Take the reward for evidence, too: states that do not explain it are impossible (not in the paper)."""
    rejuvenate: bool = False
    """Move particles by exact Gibbs sweeps at the end of an episode that leaves few ancestors (agents
    ba-pomcp, fba-pomcp and bank)."""
    history: int = 8192
    """Steps that a run remembers for --filter.rejuvenate. It moves no more particles when these are full."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_particles >= 1, "filter.num-particles must be at least 1"),
            (1 <= self.history <= MOST_STEPS, f"filter.history must lie between 1 and {MOST_STEPS:,}"),
            (self.max_tries >= 1, "filter.max-tries must be at least 1"),
        )


FILTERS = {kind.__name__.lower(): f"baddr.core.filters:{kind.__name__}" for kind in (Importance, Rejection)}
FILTERS["exact"] = "baddr.posteriors.settings:Exact"
