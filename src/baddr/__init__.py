"""Bayesian reinforcement learning in POMDPs: the GBA-POMDP and its realizations.

Values:

| value                        | what it is                                                             |
|------------------------------|------------------------------------------------------------------------|
| `POMDP`                      | the tuple (S, A, O, D, R, gamma, K, p_s0)                              |
| `Dynamics`                   | one concrete D: (S x A) -> Delta(S x O)                                |
| `Posterior`                  | a family p(D; theta) with its update U                                 |
| `GBAPOMDP(pomdp, posterior)` | again a `POMDP`, whose state is (s, theta)                             |
| `Particles`                  | the belief                                                             |
| `Importance`, `Rejection`    | filters: (belief, a, o) -> the next belief                             |
| `PoUct`, `BeliefTree`        | planners: belief -> a plan, the values of the actions                  |
| `Agent`                      | a GBA-POMDP, a filter and a planner                                    |

and functions: `run` (an experiment in one call) and `load_results` (what it left), `pretrain` (simulators ->
networks), `start` and `advance` (plan, act, update, learn; run beside run). The modules `baddr.domains`,
`baddr.exact` and `baddr.gym` are imported on first use.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "POMDP": "core.pomdp",
    "Dynamics": "core.pomdp",
    "Table": "core.pomdp",
    "GBAPOMDP": "core.gba_pomdp",
    "AugmentedState": "core.gba_pomdp",
    "Particles": "core.particles",
    "Posterior": "core.posterior",
    "Known": "posteriors",
    "Dirichlet": "posteriors",
    "Counts": "posteriors",
    "Factored": "posteriors",
    "Graph": "posteriors",
    "Frozen": "posteriors",
    "Dropout": "posteriors",
    "Partial": "posteriors",
    "pretrain": "fast.pretrain",
    "Network": "posteriors.settings",
    "Pretrain": "posteriors.settings",
    "Models": "core.models",
    "Importance": "core.filters",
    "Rejection": "core.filters",
    "Filter": "core.filters",
    "rejection_sampling": "core.belief_update",
    "importance_sampling": "core.belief_update",
    "initial_belief": "core.belief_update",
    "next_episode": "core.belief_update",
    "Info": "core.belief_update",
    "Planner": "core.planner",
    "Plan": "core.planner",
    "PoUct": "planners.po_uct",
    "BeliefTree": "planners.belief_tree",
    "TreeSearch": "planners.tree_search",
    "Agent": "core.agent",
    "compile_small_loops": "fast.compiler",
    "start": "fast.runs",
    "advance": "fast.runs",
    "load_results": "files.store",
    "run": "lab.run",
    "key": "prng",
}
_MODULES = ("domains", "exact", "gym")
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers `--help` without loading JAX."""
    if name in _MODULES:
        return importlib.import_module(f"baddr.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'baddr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"baddr.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
