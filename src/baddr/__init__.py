"""Bayesian reinforcement learning in POMDPs: the GBA-POMDP and its realizations.

Five values:

| value                        | what it is                                                             |
|------------------------------|------------------------------------------------------------------------|
| `POMDP`                      | the tuple (S, A, O, D, R, gamma, K, p_s0)                              |
| `Dynamics`                   | one concrete D: (S x A) -> Delta(S x O)                                |
| `Posterior`                  | a family p(D; theta) with its update U                                 |
| `GBAPOMDP(pomdp, posterior)` | again a `POMDP`, whose state is (s, theta)                             |
| `Particles`                  | the belief                                                             |

and four functions: `rejection_sampling` and `importance_sampling` (belief, a, o -> next belief), `search`
(belief -> the root of a PO-UCT tree), `pretrain` (simulators -> networks), and `advance` (plan, act, update,
learn; run beside run).
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "POMDP": "pomdp",
    "Dynamics": "pomdp",
    "Table": "pomdp",
    "GBAPOMDP": "gba_pomdp",
    "AugmentedState": "gba_pomdp",
    "Particles": "particles",
    "Posterior": "posteriors",
    "Known": "posteriors",
    "Dirichlet": "posteriors",
    "Counts": "posteriors",
    "Factored": "posteriors",
    "Graph": "posteriors",
    "Frozen": "posteriors",
    "Dropout": "posteriors",
    "Partial": "posteriors",
    "pretrain": "prior",
    "Network": "settings",
    "Pretrain": "settings",
    "rejection_sampling": "belief",
    "importance_sampling": "belief",
    "initial_belief": "belief",
    "next_episode": "belief",
    "search": "planner",
    "Agent": "agent",
    "start": "agent",
    "advance": "agent",
    "Planner": "settings",
    "Filter": "settings",
    "load_results": "experiments.store",
    "key": "prng",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers `--help` without loading JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'baddr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"baddr.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
