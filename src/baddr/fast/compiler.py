"""How a CPU's programs are compiled: how hard LLVM works on one, and what XLA leaves out."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

# For what is small XLA leaves out two passes. One cuts kernels into tasks for several threads: those would
# spin beside the ones that train or compute other runs (steps of tiger took a third more of the cores, and
# its training twice as much). The other turns a sum into one of partial sums, a kernel more for each.
NOT_FOR_SMALL = "cpu-parallel-task-assigner,tree_reduction_rewriter"
MOST_BYTES = 2**20  # of the arrays that a small program is given
LONGEST_SUM = 4096  # that is accurate to five digits, added up one by one


def options(level: int, small: bool) -> dict[str, Any] | None:
    """For a compiler on this machine. The higher LLVM's level, the longer it takes."""
    if jax.default_backend() != "cpu":
        return None
    return {
        "xla_backend_optimization_level": level,
        "xla_disable_hlo_passes": NOT_FOR_SMALL if small else "",
    }


@functools.cache
def jit(function: Callable[..., Any], level: int, small: bool) -> Callable[..., Any]:
    """`filter_jit` with these options; the same program for the same function."""
    filter_jit: Any = eqx.filter_jit
    return filter_jit(function, compiler_options=options(level, small))


def compiled_quickly(level: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For what runs briefly: optimisations above the `level` take longer than they save."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            # The backend is known, and begins, when the function is first called.
            return jit(function, level, _bytes(arguments) <= MOST_BYTES)(*arguments)

        return call

    return wrap


def _bytes(arguments: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(arguments) if isinstance(x, jax.Array | np.ndarray))
