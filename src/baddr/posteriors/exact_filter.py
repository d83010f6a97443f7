"""The exact belief over (s, k), state and member of a bank: a table and no particles. Nothing is drawn.

The belief is one particle for each state s: its weight is p(s | h) and its theta the log-weights p(k | s, h).
So planners and descriptions see particles as everywhere, and a draw from them is a draw from the table.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.belief_update import Info
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.outcome import WithOutcome
from baddr.core.particles import Particles
from baddr.core.pomdp import Action, Dynamics, Observation, all_vectors
from baddr.errors import UserError
from baddr.posteriors.bank import LOWEST, Bank, Reach, normalised
from baddr.posteriors.pool import Held, Pool, members_of, weights_of

Table = Float[Array, "S K"]  # log p(s, k | h)
TINY = 1e-37


@dataclass(frozen=True)
class ExactFilter:
    """tau by summation: p(s', k | h, a, o) in proportion to sum_s p(s, k | h) D_k(s', o | s, a)."""

    num_particles: int  # one for each state
    learn_terminal: bool = True
    rejuvenate: bool = False  # the members that a run holds are exchanged with others of a pool
    history: int = 8192

    def refuse(self, posterior: Any) -> None:
        """One sentence about a posterior that is no bank."""
        if not isinstance(posterior, Bank | Pool):
            raise UserError(
                "The exact filter weights the members of a bank: it is for --agent bank. Other agents need "
                "--filter.kind importance or rejection."
            )

    def initial_belief(self, key: Key[Array, ""], gba: GBAPOMDP) -> Particles:
        theta = gba.posterior.prior(key)
        reach = _reach(gba)
        return from_table(gba, jnp.log(reach.start)[:, None] + weights_of(theta)[None], theta)

    def next_episode(self, key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Particles:
        """States from p_s0, whatever the last ones were; members keep their weights."""
        table = jnp.log(_reach(gba).start)[:, None] + of_members(table_of(belief))[None]
        return from_table(gba, table, belief.states.theta)

    def update(
        self,
        key: Key[Array, ""],
        gba: GBAPOMDP,
        belief: Particles,
        a: Action,
        o: Observation,
        learn: Bool[Array, ""] | bool = True,
        active: Bool[Array, ""] | bool = True,
    ) -> tuple[Particles, Info]:
        bank, before, theta = members_of(gba, belief), table_of(belief), belief.states.theta
        assert bank.reach is not None
        ended = gba.models.ended if isinstance(gba.models, WithOutcome) else None
        predicted, joint = step(gba, bank, bank.reach, before, a, o, ended)
        log_evidence = jax.nn.logsumexp(joint)
        impossible = jnp.isneginf(log_evidence)
        joint = jnp.where(impossible, predicted, joint)
        # Without learning the states are what they are, and members keep their weights.
        apart = jax.nn.logsumexp(joint, axis=1)[:, None] + of_members(before)[None]
        after = from_table(gba, jnp.where(learn & ~impossible, joint, apart), theta)
        after = jax.tree.map(lambda new, old: jnp.where(active, new, old), after, belief)
        return after, Info(
            effective_sample_size=after.effective_sample_size(),
            acceptance_rate=jnp.exp(log_evidence),
            distinct_ancestors=jnp.int32(self.num_particles),
            resampled=jnp.array(False),
            num_filled=jnp.int32(0),
            impossible=impossible & active,
        )


def step(
    gba: GBAPOMDP,
    bank: Bank,
    reach: Reach,
    before: Table,
    a: Action,
    o: Observation,
    ended: Bool[Array, ""] | None = None,
) -> tuple[Table, Table]:
    """log p(s', k | h, a) and log p(s', k, o | h, a); `ended`: also whether the step ended the episode.

    Members do not mix, so each has a scale of its own: none is lost to rounding, however small its weight.
    """
    into = reach.into[a]  # S most
    scale = jnp.max(before, axis=0, keepdims=True)
    p = jnp.exp(before - scale)[reach.s[into]] * reach.p[into]  # S most K
    back = lambda p: jnp.where(p > TINY, jnp.log(jnp.maximum(p, TINY)), -jnp.inf) + scale
    seen = p * likelihood(gba, bank, reach.s[into], a, o, ended)
    return back(jnp.sum(p, axis=1)), back(jnp.sum(seen, axis=1))


def likelihood(
    gba: GBAPOMDP,
    bank: Bank,
    source: Int[Array, "S most"],
    a: Action,
    o: Observation,
    ended: Bool[Array, ""] | None,
) -> Float[Array, "S most K"]:
    """p(o | s, a, s'; D_k) for all s', and the s that they may be entered from; 0 where the episode would not
    have `ended` as it did."""
    every = jnp.asarray(all_vectors(gba.state_sizes))

    def of_one(D: Dynamics) -> Float[Array, "S most"]:
        from_s = jax.vmap(lambda s, s_next: D.observation_log_prob(s, a, s_next, o), in_axes=(0, None))
        return jax.vmap(from_s)(every[source], every)

    p = jnp.moveaxis(jnp.exp(bank.each(of_one)), 0, -1)
    if ended is None:
        return p
    of_s = jax.vmap(lambda s, s_next: gba.pomdp.is_terminal(s, a, s_next), in_axes=(0, None))
    fits = jax.vmap(of_s)(every[source], every) == ended
    return jnp.where(fits[:, :, None], p, 0)


def table_of(belief: Particles) -> Table:
    theta = weights_of(belief.states.theta)
    return jnp.where(theta > LOWEST / 2, belief.log_weights[:, None] + theta, -jnp.inf)


def from_table(gba: GBAPOMDP, table: Table, like: Any) -> Particles:
    """The particles that a table (of any sum) stands for, about the members of a theta. A state of no weight
    has the weights of all."""
    log_weights = jax.nn.logsumexp(table, axis=1)
    total = jax.nn.logsumexp(log_weights)
    all_members = normalised(of_members(table), jnp.full(table.shape[1:], LOWEST))
    theta = normalised(table, jnp.broadcast_to(all_members, table.shape))
    if isinstance(like, Held):
        theta = Held(jnp.broadcast_to(like.who.reshape(-1, table.shape[1])[:1], table.shape), theta)
    states = AugmentedState(jnp.asarray(all_vectors(gba.state_sizes)), theta)
    return Particles(states, log_weights - total)


def of_members(table: Table) -> Float[Array, " K"]:
    """log p(k | h), up to a constant."""
    return jax.nn.logsumexp(table, axis=0)


def _reach(gba: GBAPOMDP) -> Reach:
    posterior: Any = gba.posterior
    reach = posterior.bank.reach if isinstance(posterior, Pool) else members_of(gba, None).reach
    assert reach is not None
    return reach
