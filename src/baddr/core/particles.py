"""The belief as weighted particles (Sections 3.2 and 4.2)."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.core.prng import categorical, running_sum

CACHE = 64 * 1024  # bytes of parameters at a time on a CPU: more are no faster, and more code to compile

NOBODY = -1  # the index of a particle whose D is not wanted: a GPU's kernels compute nothing for it


def tree_at_index(tree: PyTree, i: Int[Array, "..."]) -> PyTree:
    """Entry (or entries) i of every leaf's leading axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def over_particles(function: Callable[..., Any], bytes_each: int) -> Callable[..., Any]:
    """`vmap` over particles; on a CPU a few at a time, so that their parameters stay in the cache.

    What the arguments are computed from is then computed once. (XLA would otherwise draw a dropout mask again
    for every weight that it touches: 12 ms a particle instead of 1 with networks of 256 nodes.)
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(function)
    at_once = max(4, CACHE // max(bytes_each, 1))

    def over(*arguments: PyTree) -> Any:
        n = jax.tree.leaves(arguments)[0].shape[0]
        size = max(d for d in range(1, min(n, at_once) + 1) if n % d == 0)
        blocks = jax.tree.map(lambda x: x.reshape(n // size, size, *x.shape[1:]), arguments)
        results = jax.lax.map(lambda block: jax.vmap(function)(*block), blocks)
        return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), results)

    return over


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` on an accelerator. On a CPU one after the other: the temporaries of all runs' networks at once
    would not fit the cache (25 ms a run instead of 16), and what touches few bytes becomes one function."""
    if jax.default_backend() != "cpu":
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)


def one_by_one_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """`one_by_one`, but the first of two results takes the place of the first argument: on a CPU no other
    array as large as the beliefs of all runs is made."""
    if jax.default_backend() != "cpu":
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
    if jax.default_backend() != "cpu":
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


class Particles(eqx.Module):
    """Stacked states with log-weights: p(s_bar) = sum_i w_i [s_bar = s_bar_i].

    In a GBA-POMDP the states are (s, theta); in a plain POMDP they are s.
    """

    states: PyTree  # every leaf: "num_particles ..."
    log_weights: Float[Array, "*runs num_particles"]  # their exponentials sum to one

    @property
    def num_particles(self) -> int:
        return self.log_weights.shape[-1]

    @property
    def weights(self) -> Float[Array, "*runs num_particles"]:
        return jnp.exp(self.log_weights)

    def at(self, i: Int[Array, "..."]) -> Any:
        return tree_at_index(self.states, i)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """The index of a particle, drawn by weight."""
        return categorical(key, self.weights)

    def effective_sample_size(self) -> Float[Array, ""]:
        return 1 / jnp.sum(jnp.exp(2 * self.log_weights))


def mass_of(values: Int[Array, "..."], mass: Float[Array, "..."], size: int) -> Float[Array, " size"]:
    """The mass at each of the values 0, ..., size - 1. Without a scatter: a GPU adds in any order there, and
    the same run would leave other digits."""
    add = lambda value: jnp.sum(jnp.where(values == value, mass, 0))
    return jax.vmap(add)(jnp.arange(size, dtype=values.dtype))


def uniform_weights(n: int) -> Float[Array, " n"]:
    return jnp.full((n,), -math.log(n), dtype=float)


def systematic_indices(
    key: Key[Array, ""], weights: Float[Array, " n"], num_indices: int
) -> Int[Array, " num_indices"]:
    """Systematic resampling: one uniform number, a comb of `num_indices` teeth."""
    return _indices(weights, (jnp.arange(num_indices, dtype=float) + jr.uniform(key)) / num_indices)


def independent_indices(
    key: Key[Array, ""], weights: Float[Array, " n"], num_indices: int
) -> Int[Array, " num_indices"]:
    """Multinomial resampling: an independent draw for each place."""
    return _indices(weights, jr.uniform(key, (num_indices,)))


def _indices(weights: Float[Array, " n"], u: Float[Array, " m"]) -> Int[Array, " m"]:
    """By inversion, for u in [0, 1)."""
    running = running_sum(weights)
    last = jnp.sum(running < running[-1], dtype=jnp.int32)  # of positive weight
    return jnp.minimum(jnp.searchsorted(running, u * running[-1], side="right"), last).astype(jnp.int32)
