"""Loops over particles and over runs: side by side on an accelerator, one after the other on a CPU.

A CPU's cache is small, and what XLA compiles into one function costs no dispatch: there, a few at a time are
faster than all at once. Every loop here computes what `vmap` does.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from baddr.core.particles import tree_at_index
from baddr.fast.backend import on_cpu
from baddr.fast.tuning import CACHE


def over_particles(function: Callable[..., Any], bytes_each: int) -> Callable[..., Any]:
    """`vmap` over particles; on a CPU a few at a time, so that their parameters stay in the cache.

    What the arguments are computed from is then computed once. (XLA would otherwise draw a dropout mask again
    for every weight that it touches: 12 ms a particle instead of 1 with networks of 256 nodes.)
    """
    return in_blocks(jax.vmap(function), max(4, CACHE // max(bytes_each, 1)))


def in_blocks(function: Callable[..., Any], at_once: int) -> Callable[..., Any]:
    """A function of many particles; on a CPU of a few at a time."""
    if not on_cpu():
        return function

    def over(*arguments: PyTree) -> Any:
        n = jax.tree.leaves(arguments)[0].shape[0]
        size = max(d for d in range(1, min(n, at_once) + 1) if n % d == 0)
        blocks = jax.tree.map(lambda x: x.reshape(n // size, size, *x.shape[1:]), arguments)
        results = jax.lax.map(lambda block: function(*block), blocks)
        return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), results)

    return over


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` on an accelerator. On a CPU one after the other: the temporaries of all runs' networks at once
    would not fit the cache (25 ms a run instead of 16), and what touches few bytes becomes one function."""
    if not on_cpu():
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)


def one_by_one_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """`one_by_one`, but the first of two results takes the place of the first argument: on a CPU no other
    array as large as the beliefs of all runs is made."""
    if not on_cpu():
        return jax.vmap(function)

    def one(first: PyTree, x: tuple[Int[Array, ""], PyTree]) -> tuple[PyTree, PyTree]:
        i, rest = x
        new, result = function(tree_at_index(first, i), *rest)
        return jax.tree.map(lambda all, one: all.at[i].set(one), first, new), result

    def over(first: PyTree, *rest: PyTree) -> tuple[PyTree, PyTree]:
        n = jax.tree.leaves(first)[0].shape[0]
        return jax.lax.scan(one, first, (jnp.arange(n, dtype=jnp.int32), rest))

    return over


def over_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` over runs of a function of stacked parameters, and of draws whose first part says from which of
    them each is. On a CPU that is one call, with the parameters of all runs: none are copied."""
    if not on_cpu():
        return jax.vmap(function)

    def over(thetas: PyTree, i: Int[Array, "runs n"], *draws: PyTree) -> Any:
        runs, n = i.shape
        # A leaf may be empty (no uncertain edges): -1 could not be solved for.
        flat = lambda tree: jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:2]), *x.shape[2:]), tree)
        particles = max((x.shape[1] for x in jax.tree.leaves(thetas)), default=0)
        first = particles * jnp.arange(runs, dtype=jnp.int32)
        results = function(flat(thetas), flat(i + first[:, None]), *flat(draws))
        return jax.tree.map(lambda x: x.reshape(runs, n, *x.shape[1:]), results)

    return over


def bytes_of(tree: PyTree) -> int:
    """Of one entry of stacked arrays."""
    return sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(tree))
