"""How hard LLVM works on a program, on a CPU: the higher its level, the longer it takes."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def options(level: int) -> dict[str, Any] | None:
    """For a compiler on this machine."""
    return {"xla_backend_optimization_level": level} if jax.default_backend() == "cpu" else None


@functools.cache
def jit(function: Callable[..., Any], level: int) -> Callable[..., Any]:
    """`filter_jit` at this level; the same program for the same function."""
    filter_jit: Any = eqx.filter_jit
    return filter_jit(function, compiler_options=options(level))


def compiled_quickly(level: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For what runs briefly: optimisations above the `level` take longer than they save."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        # The backend is known, and begins, when the function is first called.
        return functools.wraps(function)(lambda *arguments: jit(function, level)(*arguments))

    return wrap
