"""The belief as weighted particles (Sections 3.2 and 4.2)."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.prng import categorical, running_sum

NOBODY = -1  # the index of a particle whose D is not wanted: a GPU's kernels compute nothing for it


def tree_at_index(tree: PyTree, i: Int[Array, "..."]) -> PyTree:
    """Entry (or entries) i of every leaf's leading axis."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


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


def even_draws(
    key: Key[Array, ""], p: Float[Array, " values"], weights: Float[Array, " n"]
) -> Int[Array, " n"]:
    """A draw from p for each place, which together spread their weights as p says.

    Each alone is distributed as p. Places of about the same weight have draws that differ: in the order of
    weights these are by inversion of a van der Corput sequence, moved by one random number.
    """
    n = weights.shape[0]
    u = (jnp.asarray(_van_der_corput(n), float) + jr.uniform(key)) % 1
    drawn = _indices(p, u)
    return jnp.zeros((n,), jnp.int32).at[jnp.argsort(-weights)].set(drawn)


def _van_der_corput(n: int) -> Float[np.ndarray, " n"]:
    """0, 1/2, 1/4, 3/4, 1/8, ...: the digits of 0, 1, 2, ... in base two, mirrored at the point."""
    i, bits = np.arange(n), max(1, (n - 1).bit_length())
    return sum((i >> k & 1) / 2 ** (k + 1) for k in range(bits)) + np.zeros(n)


def _indices(weights: Float[Array, " n"], u: Float[Array, " m"]) -> Int[Array, " m"]:
    """By inversion, for u in [0, 1)."""
    running = running_sum(weights)
    last = jnp.sum(running < running[-1], dtype=jnp.int32)  # of positive weight
    return jnp.minimum(jnp.searchsorted(running, u * running[-1], side="right"), last).astype(jnp.int32)
