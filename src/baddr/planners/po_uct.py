"""PO-UCT as a value: what is chosen about it. The search itself is in `tree_search`. Needs no JAX."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from baddr.core.checks import wrong
from baddr.files.settings import problems, refuse

if TYPE_CHECKING:
    from baddr.planners.tree_search import TreeSearch


# What is ours in PO-UCT and costs nothing: for presets that are not the paper's.
IMPROVED: dict[str, Any] = {"in_flight": 0}


@dataclass(frozen=True)
class PoUct:
    """PO-UCT (Alg. 2): Monte-Carlo tree search over histories."""

    num_simulations: int = 4096
    """Number of simulations per real step."""
    exploration: float = 100.0
    """The exploration constant u of UCB. A good value is the range of an episode's returns."""
    depth: int = 0
    """The depth of the search. 0: to the end of the episode."""
    in_flight: int = 0
    """Number of simulations in flight in one tree; they choose their actions in turn. 1: PO-UCT as published.
    0: chosen so that few runs fill a GPU; on a CPU, one simulation after the other."""
    root_sampling: bool = True
    """Draw one model at the root of each simulation and keep it (Alg. 2). no: simulations learn as they
    go."""
    backup: Literal["mean", "max"] = "mean"
    """The value of a node. mean: the mean of its returns, as published. max: the value of its best action."""

    def problems(self) -> list[str]:
        return wrong(
            (self.in_flight >= 0, "planner.in-flight must not be negative"),
            (self.num_simulations >= 1, "planner.num-simulations must be at least 1"),
            (self.exploration >= 0, "planner.exploration must not be negative"),
            (self.depth >= 0, "planner.depth must be 0 (to the end of the episode) or more"),
            (self.backup in ("mean", "max"), "planner.backup must be mean or max"),
        )

    def build(self, domain: Any = None) -> "TreeSearch":
        """The planner for a domain, with what the domain knows of good play (`Hooks`)."""
        refuse(problems(self, "planner."))
        from baddr.planners.choice import Hooks
        from baddr.planners.tree_search import TreeSearch

        known = {name: getattr(domain, name, None) for name in Hooks._fields}
        if self.backup == "mean":  # a bound would stay in the means of all nodes above it
            known["upper"] = None
        return TreeSearch(
            num_simulations=self.num_simulations,
            exploration=self.exploration,
            depth=self.depth,
            in_flight=max(1, self.in_flight),
            by_paths=self.in_flight == 0,
            root_sampling=self.root_sampling,
            backup=self.backup,
            hooks=Hooks(**known),
        )
