"""Belief updates in a GBA-POMDP: rejection sampling (Alg. 1) and importance sampling.

Both learn from the *real* observation, and rewards are no evidence. What they do when the particles
run out (the depletion policy) is part of `Info` and of every result file:

1. Rejection sampling stops after `max_tries` proposals a particle. If it accepted any by then, the
   empty places are filled with copies of the accepted ones (`num_filled` says how many).
2. If it accepted none, all places are filled by importance: a block of proposals, resampled by
   p(o | s, a, s'; D).
3. If no particle of either filter can explain o at all (`impossible`), the belief becomes the
   prediction without o, and nothing is learned from this step.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import (
    NOBODY,
    Particles,
    bytes_of,
    independent_indices,
    over_particles,
    systematic_indices,
    tree_at_index,
    uniform_weights,
)
from baddr.core.pomdp import Action, Observation, State


class Info(NamedTuple):
    """What a reader of the results wants to know about one belief update."""

    effective_sample_size: Float[Array, ""]  # after the update
    acceptance_rate: Float[Array, ""]  # rejection: accepted / proposed; importance: p(o | h, a)
    distinct_ancestors: Int[Array, ""]
    resampled: Bool[Array, ""]
    num_filled: Int[Array, ""]  # particles that rejection sampling did not accept itself
    impossible: Bool[Array, ""]  # no particle can explain the observation


def initial_belief(key: Key[Array, ""], gba: GBAPOMDP, num_particles: int) -> Particles:
    """{(s_0, theta_0)}^n with s_0 ~ p_s0 and theta_0 from the prior, paired at random."""
    states = jax.vmap(gba.initial_pair)(*jr.split(key, (2, num_particles)))
    return Particles(states, uniform_weights(num_particles))


def next_episode(key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Particles:
    """The next episode's prior: states redrawn from p_s0, models and their weights kept."""
    s = jax.vmap(gba.pomdp.initial_state)(jr.split(key, belief.num_particles))
    return Particles(AugmentedState(s, belief.states.theta), belief.log_weights)


def importance_sampling(
    key: Key[Array, ""],
    gba: GBAPOMDP,
    belief: Particles,
    a: Action,
    o: Observation,
    *,
    resample_below: float,
    resampling: str = "systematic",
    weight_after_update: bool = False,
    learn: Bool[Array, ""] | bool = True,
    active: Bool[Array, ""] | bool = True,
) -> tuple[Particles, Info]:
    """Step every particle once, learn, and weigh it by p(o | s, a, s'; D) of the D it stepped with.

    The particles are resampled first where their effective sample size is below `resample_below`,
    systematically or by independent draws. The weight takes D from the parameters before U, or after it with
    `weight_after_update`, as the authors' program does. A belief that is not `active` stays as it is.
    """
    n = belief.num_particles
    # One wide split: with keys from keys XLA took minutes to compile this for 4096 particles.
    keys = jr.split(key, 1 + 3 * n)
    key_resample, (keys_D, keys_step, keys_U) = keys[0], keys[1:].reshape(3, n)
    resample = (belief.effective_sample_size() < resample_below) & active
    indices = {"systematic": systematic_indices, "independent": independent_indices}[resampling]
    drawn = indices(key_resample, belief.weights, n)
    ancestors = jnp.where(resample, drawn, jnp.arange(n, dtype=jnp.int32))
    log_prior = jnp.where(resample, uniform_weights(n), belief.log_weights)
    posterior = gba.posterior

    thetas, each = belief.states.theta, partial(over_particles, bytes_each=bytes_of(belief.states.theta))
    s = belief.states.s[ancestors]
    epsilons = jax.vmap(lambda key, i: posterior.draw(key, tree_at_index(thetas, i)))(keys_D, ancestors)

    def propagate(
        key: Key[Array, ""], i: Int[Array, ""], epsilon: PyTree, s: State
    ) -> tuple[State, Float[Array, ""]]:
        D = posterior.dynamics_of(thetas, i, epsilon)
        s_next, _ = D.step(key, s, a)
        return s_next, D.observation_log_prob(s, a, s_next, o)

    s_next, log_likelihood = each(propagate)(keys_step, ancestors, epsilons, s)
    impossible = jnp.isneginf(jnp.max(log_prior + log_likelihood))
    # Impossible: every theta stays its ancestor's, as if o had not been seen.
    theta = posterior.update_all(keys_U, thetas, ancestors, s, a, s_next, o, learn & ~impossible & active)
    if weight_after_update:

        def after_update(i: Int[Array, ""], epsilon: PyTree, s: State, s_next: State) -> Float[Array, ""]:
            return posterior.dynamics_of(theta, i, epsilon).observation_log_prob(s, a, s_next, o)

        log_likelihood = each(after_update)(jnp.arange(n, dtype=jnp.int32), epsilons, s, s_next)
    log_joint = log_prior + log_likelihood
    log_evidence = jax.nn.logsumexp(log_joint)
    log_weights = jnp.where(impossible, log_prior, log_joint - log_evidence)
    s_next, log_weights = _where(active, (s_next, log_weights), (belief.states.s, belief.log_weights))
    after = Particles(AugmentedState(s_next, theta), log_weights)
    info = Info(
        effective_sample_size=after.effective_sample_size(),
        acceptance_rate=jnp.exp(log_evidence),
        distinct_ancestors=_num_distinct(ancestors, n),
        resampled=resample,
        num_filled=jnp.zeros((), jnp.int32),
        impossible=impossible,
    )
    return after, info


class _Proposals(NamedTuple):
    """Proposed particles before U: whose child each is, and its s'."""

    ancestors: Int[Array, " n"]
    s_next: Int[Array, "n state_features"]


def rejection_sampling(
    key: Key[Array, ""],
    gba: GBAPOMDP,
    belief: Particles,
    a: Action,
    o: Observation,
    *,
    max_tries: int = 1000,
    learn: Bool[Array, ""] | bool = True,
    active: Bool[Array, ""] | bool = True,
) -> tuple[Particles, Info]:
    """Alg. 1: propose (s', o~) from drawn particles and keep those with o~ = o, until there are n.

    Proposals come in blocks of n, or of several n where the posterior prefers more at once, and are at most
    `max_tries` n; U runs once per particle that is kept. A belief that is not `active` stays as it is.
    """
    n = belief.num_particles
    tries = min(gba.posterior.tries_at_once, max_tries)
    key_blocks, key_fill, key_U = jr.split(key, 3)

    posterior, thetas = gba.posterior, belief.states.theta

    def draw(keys: Key[Array, "2"], wanted: Bool[Array, ""]) -> tuple[Int[Array, ""], PyTree]:
        i = jnp.where(wanted, belief.sample(keys[0]), NOBODY)
        return i, posterior.draw(keys[1], tree_at_index(thetas, i))

    def propose(
        i: Int[Array, ""], epsilon: PyTree, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], State, Bool[Array, ""], Float[Array, ""]]:
        s, D = belief.states.s[i], posterior.dynamics_of(thetas, i, epsilon)
        s_next, o_proposed = D.step(key, s, a)
        return i, s_next, jnp.all(o_proposed == o), D.observation_log_prob(s, a, s_next, o)

    def block(carry):
        kept, count, number, *_ = carry
        keys = jr.split(jr.fold_in(key_blocks, number), (3, tries * n))
        # Under vmap a run that has its particles goes on with the others, and what it proposes is discarded.
        drawn = jax.vmap(draw, in_axes=(1, None))(keys[:2], unfinished(carry))
        proposed = over_particles(propose, bytes_of(thetas))(*drawn, keys[2])
        ancestors, s_next, accepted, log_likelihood = proposed
        place = jnp.where(accepted, count + jnp.cumsum(accepted, dtype=jnp.int32) - 1, n)
        kept = _Proposals(
            kept.ancestors.at[place].set(ancestors, mode="drop"),
            kept.s_next.at[place].set(s_next, mode="drop"),
        )
        count = count + jnp.sum(accepted, dtype=jnp.int32)
        return kept, count, number + 1, _Proposals(ancestors, s_next), log_likelihood

    def unfinished(carry) -> Bool[Array, ""]:
        _, count, number, *_ = carry
        return (count < n) & (number < max_tries // tries) & active

    def nothing(n: int) -> _Proposals:
        return _Proposals(jnp.zeros((n,), jnp.int32), jnp.zeros((n, *belief.states.s.shape[1:]), jnp.int32))

    start = (nothing(n), jnp.int32(0), jnp.int32(0), nothing(tries * n), jnp.zeros((tries * n,)))
    kept, count, number, last, log_likelihood = jax.lax.while_loop(unfinished, block, start)

    # The depletion policy of this module's docstring.
    num_kept = jnp.minimum(count, n)
    impossible = (num_kept == 0) & jnp.all(jnp.isneginf(log_likelihood))
    likelihood = jnp.where(impossible, 1.0, jnp.exp(log_likelihood - jnp.max(log_likelihood)))
    by_weight = systematic_indices(key_fill, jnp.nan_to_num(likelihood), n)
    copies = jnp.arange(n, dtype=jnp.int32) % jnp.maximum(num_kept, 1)
    chosen = _where(num_kept > 0, tree_at_index(kept, copies), tree_at_index(last, by_weight))

    themselves = _Proposals(jnp.arange(n, dtype=jnp.int32), belief.states.s)
    ancestors, s_next = _where(active, chosen, themselves)
    keys_U, s = jr.split(key_U, n), belief.states.s[ancestors]
    theta = posterior.update_all(keys_U, thetas, ancestors, s, a, s_next, o, learn & ~impossible & active)
    info = Info(
        effective_sample_size=jnp.float32(n),
        acceptance_rate=count / (jnp.maximum(number, 1) * tries * n),
        distinct_ancestors=_num_distinct(ancestors, n),
        resampled=jnp.array(True),
        num_filled=n - num_kept,
        impossible=impossible,
    )
    log_weights = jnp.where(active, uniform_weights(n), belief.log_weights)
    return Particles(AugmentedState(s_next, theta), log_weights), info


def _where(condition: Bool[Array, ""] | bool, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)


def _num_distinct(indices: Int[Array, " n"], n: int) -> Int[Array, ""]:
    return jnp.sum(jnp.zeros((n,), jnp.int32).at[indices].set(1), dtype=jnp.int32)
