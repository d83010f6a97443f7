"""The belief as weighted particles (Sections 3.2 and 4.2)."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.prng import categorical, inverted

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
    return inverted(weights, (jnp.arange(num_indices, dtype=float) + jr.uniform(key)) / num_indices)


def independent_indices(
    key: Key[Array, ""], weights: Float[Array, " n"], num_indices: int
) -> Int[Array, " num_indices"]:
    """Multinomial resampling: an independent draw for each place."""
    return inverted(weights, jr.uniform(key, (num_indices,)))
