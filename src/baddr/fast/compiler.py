"""How a CPU's programs are compiled: how hard LLVM works on one, and what XLA leaves out."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from baddr.fast.tuning import SMALL_LOOP_BYTES, SMALL_PROGRAM_BYTES

# For what is small XLA leaves out two passes. One cuts kernels into tasks for several threads: those would
# spin beside the ones that train or compute other runs (steps of tiger took a third more of the cores, and
# its training twice as much). The other turns a sum into one of partial sums, a kernel more for each.
NOT_FOR_SMALL = "cpu-parallel-task-assigner,tree_reduction_rewriter"
# XLA leaves products and sums to a library, YNNPACK. A sum takes it some 100 us, however small it is, and a
# loop that calls it does not become one function. So it is to have products only.
SUMS_ARE_OURS = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
}
SMALL_LOOPS = "xla_cpu_small_while_loop_byte_threshold"
LEVEL = "xla_backend_optimization_level"


def compile_small_loops() -> bool:
    """Ask XLA to compile a CPU's loops that touch few bytes into one function each, with no dispatch between
    their parts; whether it will.

    XLA takes this option for a whole process only, before JAX first computes, so it is for a program to ask
    for (the command line does), not for a library. Without it the same is computed, more slowly: a search by
    tables takes ten times as long.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" in flags:
        return SMALL_LOOPS in flags
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", lambda: False)
    if started():
        return False
    os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={SMALL_LOOPS}={SMALL_LOOP_BYTES}".strip()
    return True


def small_loops_are_compiled() -> bool:
    return SMALL_LOOPS in os.environ.get("XLA_FLAGS", "")


def options(level: int, small: bool) -> dict[str, Any] | None:
    """For a compiler on this machine. The higher LLVM's level, the longer it takes. A level that the user
    asks for in XLA_FLAGS stays."""
    from baddr.fast.backend import on_cpu

    if not on_cpu():
        return None
    asked = LEVEL in os.environ.get("XLA_FLAGS", "")
    passes = {"xla_disable_hlo_passes": NOT_FOR_SMALL if small else ""}
    return passes | known_to_xla() | ({} if asked else {LEVEL: level})


@functools.cache
def known_to_xla() -> dict[str, str]:
    """`SUMS_ARE_OURS`, where this version of XLA takes it: a program of one number says so."""
    import jax

    try:
        jax.jit(lambda: 0.0, compiler_options=SUMS_ARE_OURS).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return SUMS_ARE_OURS


@functools.cache
def jit(function: Callable[..., Any], level: int, small: bool) -> Callable[..., Any]:
    """`filter_jit` with these options; the same program for the same function."""
    import equinox as eqx

    filter_jit: Any = eqx.filter_jit
    return filter_jit(function, compiler_options=options(level, small))


def compiled_quickly(level: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For what runs briefly: optimisations above the `level` take longer than they save."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            # The backend is known, and started, when the function is first called.
            return jit(function, level, _bytes(arguments) <= SMALL_PROGRAM_BYTES)(*arguments)

        return call

    return wrap


def _bytes(arguments: Any) -> int:
    import jax
    import numpy as np

    return sum(x.nbytes for x in jax.tree.leaves(arguments) if isinstance(x, jax.Array | np.ndarray))
