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
import os
import sys
from typing import Any

__version__ = "0.1.0"

# An option of XLA: loops on a CPU that touch few bytes are compiled into one function, with no dispatch
# between their parts. `table_search` is ten times faster so, and small networks' updates compile sooner.
SMALL_LOOPS = "xla_cpu_small_while_loop_byte_threshold"
FEW_BYTES = 16 * 2**20


def _compile_small_loops() -> None:
    """Ask XLA for it, unless it has begun or was told what to do with loops."""
    begun = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", lambda: False)
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags and not begun():
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={SMALL_LOOPS}={FEW_BYTES}".strip()


_compile_small_loops()

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
    "Network": "settings",
    "Pretrain": "settings",
    "rejection_sampling": "core.filters",
    "importance_sampling": "core.filters",
    "initial_belief": "core.filters",
    "next_episode": "core.filters",
    "search": "planners.po_uct",
    "Agent": "core.agent",
    "start": "core.agent",
    "advance": "core.agent",
    "Planner": "settings",
    "Filter": "settings",
    "load_results": "files.store",
    "run": "lab.run",
    "key": "core.prng",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers `--help` without loading JAX."""
    if name not in _HOMES:
        raise AttributeError(f"module 'baddr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"baddr.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
