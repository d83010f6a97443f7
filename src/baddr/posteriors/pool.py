"""A bank whose members are exchanged: of a pool of simulators a run holds K at a time, with exact weights.

The prior is "one of the pool, equally likely". How members are exchanged is in `pool_moves`.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.core.pomdp import Action, Dynamics, Observation, State
from baddr.core.posterior import Posterior
from baddr.posteriors.bank import Bank, normalised
from baddr.prng import categorical


class Held(NamedTuple):
    """theta: which of the pool, and the logarithm of their weights."""

    who: Int[Array, "*n K"]
    log_weights: Float[Array, "*n K"]


class Pool(Posterior):
    """K of the bank's members."""

    bank: Bank
    num_members: int = eqx.field(static=True)

    def prior(self, key: Key[Array, ""]) -> Held:
        who = jr.randint(key, (self.num_members,), 0, self.bank.num_members, jnp.int32)
        return Held(who, jnp.full((self.num_members,), -np.log(self.num_members), float))

    def draw(self, key: Key[Array, ""], theta: Held) -> Int[Array, ""]:
        return theta.who[categorical(key, jnp.exp(theta.log_weights))]

    def dynamics(self, theta: Held, epsilon: Int[Array, ""]) -> Dynamics:
        return self.bank.member(epsilon)

    def update(
        self, key: Key[Array, ""], theta: Held, s: State, a: Action, s_next: State, o: Observation
    ) -> Held:
        each = self.bank.only(theta.who).each(lambda D: D.log_prob(s, a, s_next, o))
        return theta._replace(log_weights=normalised(theta.log_weights + each, theta.log_weights))


def weights_of(theta: Float[Array, "*n K"] | Held) -> Float[Array, "*n K"]:
    """The log-weights of a bank's members, or of those that are held."""
    return theta.log_weights if isinstance(theta, Held) else theta


def members_of(gba: GBAPOMDP, belief: Particles | None) -> Bank:
    """The members that a belief of the exact filter weighs: all of a bank, or those that are held."""
    posterior = gba.posterior
    if isinstance(posterior, Pool):
        assert belief is not None
        return posterior.bank.only(belief.states.theta.who[0])
    assert isinstance(posterior, Bank) and posterior.reach is not None, "a bank with its reach is needed"
    return posterior


def distinct_weights(who: Int[Array, " K"], weights: Float[Array, " K"]) -> Float[Array, " K"]:
    """Of each place: the weight of its simulator, in whatever places it is."""
    return (who[:, None] == who[None]).astype(weights.dtype) @ weights
