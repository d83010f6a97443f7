"""The members of a bank for many particles: weights are added up once for all draws, not once for each."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import ByDynamics, Indices, update_one
from baddr.core.particles import Particles
from baddr.core.pomdp import Dynamics, Transition, flat_index
from baddr.core.posterior import Theta
from baddr.fast.loops import bytes_of, over_particles
from baddr.fast.models import models_of
from baddr.planners.belief_tree.mean_model import observation_table, transition_table
from baddr.planners.belief_tree.nodes import Tables, tables_of
from baddr.posteriors.bank import Bank
from baddr.prng import running_sum


@models_of.register(Bank)
def _(posterior: Bank) -> "BankModels":
    return BankModels(posterior)


class BankModels(ByDynamics):
    """A D is a member, whatever the particle."""

    posterior: Bank

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.posterior.member(epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> Int[Array, " n"]:
        """`categorical` of each particle's weights, by bisection of their running sums."""
        running = jax.vmap(running_sum)(jnp.exp(thetas))
        total = running[:, -1]
        last = jnp.sum(running < total[:, None], axis=1, dtype=jnp.int32)  # of positive weight
        u = jax.vmap(jr.uniform)(keys) * total[i]
        low = jnp.zeros(i.shape, jnp.int32)
        high = jnp.full(i.shape, self.posterior.num_members, jnp.int32)
        for _ in range(self.posterior.num_members.bit_length()):
            middle = (low + high) // 2
            right = (running[i, jnp.minimum(middle, running.shape[1] - 1)] <= u) & (low < high)
            low, high = jnp.where(right, middle + 1, low), jnp.where(right, high, middle)
        return jnp.minimum(low, last[i])

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        one = update_one(self.posterior, thetas, steps, learn)
        return self.each(one, thetas)(keys, i, steps.s, steps.s_next)


# The belief tree of a bank that is small: all members in full, and their weights as they are.


@eqx.filter_jit
def tables_of_members(gba: GBAPOMDP) -> Tables:
    bank = gba.posterior
    assert isinstance(bank, Bank)
    T = bank.each(lambda D: transition_table(gba.pomdp, D))
    O = bank.each(lambda D: observation_table(gba.pomdp, D))
    return tables_of(gba.pomdp, T, O)


def weights_of_members(gba: GBAPOMDP, belief: Particles) -> Float[Array, " S_K"]:
    """p(s, k | h), by state and member."""
    rank = jax.vmap(lambda s: flat_index(s, gba.state_sizes))(belief.states.s)
    here = jnp.arange(gba.num_states, dtype=rank.dtype)[:, None] == rank[None]
    mass = belief.weights[:, None] * jnp.exp(belief.states.theta)
    return (here.astype(float) @ mass).reshape(-1)
