"""Rejuvenation of a bank: members of which few count are resampled and exchanged with others of the pool.

Each is moved by Metropolis steps that leave p(D | h) over the whole pool as it is: a simulator is drawn from
the pool, and takes the place of the old one with probability min(1, p(h | new) / p(h | old)). p(h | D) is
that of the exact filter, run over all that the run has done and seen (Chopin 2002).
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.outcome import state_tells_ends
from baddr.core.particles import Particles, systematic_indices
from baddr.core.pomdp import feature_vector
from baddr.core.rejuvenation import Moves
from baddr.posteriors.bank import Bank
from baddr.posteriors.exact_filter import of_members, step
from baddr.posteriors.memory import Codes, Memory, Renewal
from baddr.posteriors.pool import Held, Pool, distinct_weights

OFFERS = 8  # simulators that each member is compared with, in turn


class PoolMoves(Renewal):
    """Exchanges of all members that a run holds, by its history."""

    low: ClassVar[float] = 0.5
    gba: GBAPOMDP
    codes: Codes = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

    def size(self, belief: Particles) -> tuple[Float[Array, ""], int]:
        """How many different simulators count, of so many."""
        theta = belief.states.theta
        weights = belief.weights @ jnp.exp(theta.log_weights)
        return 1 / jnp.sum(weights * distinct_weights(theta.who[0], weights)), weights.shape[0]

    def renew(self, key: Key[Array, ""], belief: Particles, memory: Memory) -> tuple[Particles, Moves]:
        theta: Held = belief.states.theta
        who, weights = theta.who[0], belief.weights @ jnp.exp(theta.log_weights)
        key_resample, key_draw, key_accept = jr.split(key, 3)
        K, pool = who.shape[0], self.pool
        others = jr.randint(key_draw, (OFFERS * K,), 0, pool.bank.num_members, jnp.int32)
        both = self.log_likelihoods(pool.bank.only(jnp.concatenate([who, others])), memory)
        chosen = systematic_indices(key_resample, weights, K)
        offers = others.reshape(K, OFFERS), both[K:].reshape(K, OFFERS)
        old, after = who[chosen], metropolis(key_accept, (who[chosen], both[chosen]), offers)
        new = Held(
            jnp.broadcast_to(after, theta.who.shape), jnp.full(theta.log_weights.shape, -np.log(K), float)
        )
        moves = Moves(jnp.int32(1), jnp.int32(0), jnp.sum(after != old, dtype=jnp.int32))
        return Particles(belief.states._replace(theta=new), belief.log_weights), moves

    @property
    def pool(self) -> Pool:
        assert isinstance(self.gba.posterior, Pool)
        return self.gba.posterior

    def log_likelihoods(self, bank: Bank, memory: Memory) -> Float[Array, " K"]:
        """log p(h | D) of each member, up to a constant: the exact filter over all episodes."""
        reach = bank.reach
        assert reach is not None
        codes, start = memory.codes.reshape(-1), jnp.log(reach.start)[:, None]
        end, tells = memory.row * memory.codes.shape[-1] + memory.column, state_tells_ends(self.gba.pomdp)

        def one(i: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
            table, total = now  # log p(s | h, D_k), and log p(h | D_k) less that of the best so far
            used, first, learned, ended, a, o = self.codes.step(codes[i])
            before = jnp.where(first, start, table)
            seen = feature_vector(o, self.codes.observation_sizes)
            predicted, joint = step(self.gba, bank, reach, before, a, seen, ended if tells else None)
            table = jnp.where(used, jnp.where(learned, joint, predicted), table)
            z = of_members(table)
            table = table - jnp.where(jnp.isneginf(z), 0, z)[None]
            total = total + z
            best = jnp.max(total)
            return table, total - jnp.where(jnp.isneginf(best), 0, best)

        nothing = jnp.broadcast_to(start, (start.shape[0], bank.num_members)), jnp.zeros((bank.num_members,))
        return jax.lax.fori_loop(0, end, one, nothing)[1]


def metropolis(
    key: Key[Array, ""],
    now: tuple[Int[Array, " K"], Float[Array, " K"]],
    others: tuple[Int[Array, "K offers"], Float[Array, "K offers"]],
) -> Int[Array, " K"]:
    """Every chain is offered draws of the prior, in turn, so priors and proposals cancel. No two chains are
    offered the same draws: they would end with the few best of these."""

    def offer(
        now: tuple[Array, Array], given: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        (who, log_p), (other, log_q, u) = now, given
        accepted = jnp.log(u) < log_q - log_p
        return (jnp.where(accepted, other, who), jnp.where(accepted, log_q, log_p)), None

    u = jr.uniform(key, others[0].shape)
    return jax.lax.scan(offer, now, (others[0].T, others[1].T, u.T))[0][0]
