"""The belief tree as a value: what is chosen about it. Needs no JAX."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baddr.core.checks import wrong
from baddr.files.settings import problems, refuse

if TYPE_CHECKING:
    from baddr.planners.belief_tree.search import TreeOfBeliefs

MOST_STATES = 100_000  # over which bounds are found by value iteration
LARGEST = 1 << 20  # beliefs, or particles, of a tree
MOST_SOLVED = 64  # simulators


@dataclass(frozen=True)
class BeliefTree:
    """Best-first search over beliefs with bounds on their values."""

    num_expansions: int = 32
    """The most beliefs that a plan expands."""
    num_particles: int = 256
    """Number of particles in a plan. If the filter has fewer, each particle draws several models."""
    num_observations: int = 16
    """Observations to follow after an action, if there are more than 64. Otherwise all."""
    precision: float = 0.001
    """Stop when the bounds on the value are this close."""
    stop_when_certain: bool = True
    """Stop as soon as no other action can be better."""
    depth: int = 0
    """The depth of the tree. 0: to the end of the episode."""
    num_solved: int = 0
    """Simulators of the prior to solve for better bounds. 0: none."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_expansions >= 1, "planner.num-expansions must be at least 1"),
            (self.num_particles >= 1, "planner.num-particles must be at least 1"),
            (self.num_observations >= 1, "planner.num-observations must be at least 1"),
            (self.num_expansions <= LARGEST, f"planner.num-expansions must be at most {LARGEST:,}"),
            (self.num_particles <= LARGEST, f"planner.num-particles must be at most {LARGEST:,}"),
            (self.precision >= 0, "planner.precision must not be negative"),
            (self.depth >= 0, "planner.depth must be 0 (to the end of the episode) or more"),
            (0 <= self.num_solved <= MOST_SOLVED, f"planner.num-solved must lie between 0 and {MOST_SOLVED}"),
        )

    def build(self, domain: Any = None) -> "TreeOfBeliefs":
        """The planner for a domain, whose own bounds are used where it has some."""
        refuse(problems(self, "planner."))
        from baddr.planners.belief_tree.search import TreeOfBeliefs

        return TreeOfBeliefs(
            num_expansions=self.num_expansions,
            num_particles=self.num_particles,
            num_observations=self.num_observations,
            precision=self.precision,
            depth=self.depth,
            stop_when_certain=self.stop_when_certain,
            own=(getattr(domain, "lower", None), getattr(domain, "upper", None)),
            num_solved=self.num_solved,
            simulator=getattr(domain, "sample_simulator", None) if self.num_solved else None,
        )
