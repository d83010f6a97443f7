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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.models import RestartingModels
from baddr.core.particles import (
    NOBODY,
    Particles,
    independent_indices,
    systematic_indices,
    tree_at_index,
    uniform_weights,
)
from baddr.core.pomdp import Action, Observation, Transition, feature_vector
from baddr.prng import even_draws

Yes = Bool[Array, ""] | bool


class Info(NamedTuple):
    """What a reader of the results wants to know about one belief update."""

    effective_sample_size: Float[Array, ""]  # after the update
    acceptance_rate: Float[Array, ""]  # rejection: accepted / proposed; importance: p(o | h, a)
    distinct_ancestors: Int[Array, ""]
    resampled: Bool[Array, ""]
    num_filled: Int[Array, ""]  # particles that rejection sampling did not accept itself
    impossible: Bool[Array, ""]  # no particle can explain the observation
    ancestors: Int[Array, " n"] | None = None  # whose child each particle is; None: the filter does not tell


def initial_belief(key: Key[Array, ""], gba: GBAPOMDP, num_particles: int) -> Particles:
    """{(s_0, theta_0)}^n with s_0 ~ p_s0 and theta_0 from the prior, paired at random."""
    keys_s, keys_theta = jr.split(key, (2, num_particles))
    prior = getattr(gba.posterior, "priors", jax.vmap(gba.posterior.prior))  # of all, where it is better so
    s, theta = jax.vmap(gba.pomdp.initial_state)(keys_s), prior(keys_theta)
    return Particles(_restarted(gba, AugmentedState(s, theta)), uniform_weights(num_particles))


def next_episode(
    key: Key[Array, ""], gba: GBAPOMDP, belief: Particles, p0: Float[Array, " S"] | None = None
) -> Particles:
    """The next episode's prior: states redrawn from p_s0, models and their weights kept."""
    if p0 is None:
        s = jax.vmap(gba.pomdp.initial_state)(jr.split(key, belief.num_particles))
    else:  # its table: evenly, since few large weights would leave p(s_0) off
        s = jax.vmap(lambda s: feature_vector(s, gba.state_sizes))(even_draws(key, p0, belief.weights))
    return Particles(_restarted(gba, AugmentedState(s, belief.states.theta)), belief.log_weights)


def _restarted(gba: GBAPOMDP, states: AugmentedState) -> AugmentedState:
    models, (s, theta) = gba.models, states
    return AugmentedState(s, models.restart(theta, s)) if isinstance(models, RestartingModels) else states


def resampled(key: Key[Array, ""], belief: Particles) -> Particles:
    """As many particles of equal weight."""
    n = belief.num_particles
    return Particles(belief.at(systematic_indices(key, belief.weights, n)), uniform_weights(n))


# Importance sampling.


def importance_sampling(
    key: Key[Array, ""],
    gba: GBAPOMDP,
    belief: Particles,
    a: Action,
    o: Observation,
    how: Importance,
    learn: Yes = True,
    active: Yes = True,
) -> tuple[Particles, Info]:
    """Step every particle, learn, and weigh it by p(o | s, a, s'; D) of the D it stepped with.

    The particles are resampled first where their effective sample size is below `how.resample_below`. A
    belief that is not `active` stays as it is.
    """
    n, models, thetas = belief.num_particles, gba.models, belief.states.theta
    # One wide split: with keys from keys XLA took minutes to compile this for 4096 particles.
    keys = jr.split(key, 1 + (2 * how.tries + 1) * n)
    key_resample, (keys_D, keys_step), keys_U = keys[0], keys[1:-n].reshape(2, -1), keys[-n:]
    resample = (belief.effective_sample_size() < how.resample_below) & active
    ancestors = _ancestors(key_resample, belief, how.resampling, resample)
    log_prior = jnp.where(resample, uniform_weights(n), belief.log_weights)

    i = jnp.repeat(ancestors, how.tries)
    epsilons = models.draw(keys_D, thetas, i)
    s_next, _, log_likelihood = models.propose(keys_step, thetas, i, epsilons, belief.states.s[i], (a, o))
    if how.tries > 1:
        taken, log_likelihood = _taken(jr.fold_in(key_resample, 1), log_likelihood.reshape(n, -1))
        s_next = s_next[taken]
    steps = Transition(belief.states.s[ancestors], a, s_next, o)
    impossible = jnp.isneginf(jnp.max(log_prior + log_likelihood))
    # Impossible: every theta stays its ancestor's, as if o had not been seen.
    theta = models.update(keys_U, thetas, ancestors, steps, jnp.asarray(learn & ~impossible & active))
    if how.weight_after_update:
        log_likelihood = models.log_likelihood(theta, jnp.arange(n, dtype=jnp.int32), epsilons, steps)
    log_joint = log_prior + log_likelihood
    log_evidence = jax.nn.logsumexp(log_joint)
    log_weights = jnp.where(impossible, log_prior, log_joint - log_evidence)
    s_next, log_weights = select(active, (s_next, log_weights), (belief.states.s, belief.log_weights))
    after = Particles(AugmentedState(s_next, theta), log_weights)
    return after, Info(
        effective_sample_size=after.effective_sample_size(),
        acceptance_rate=jnp.exp(log_evidence),
        distinct_ancestors=num_distinct(ancestors, n),
        resampled=resample,
        num_filled=jnp.zeros((), jnp.int32),
        impossible=impossible,
        ancestors=ancestors,
    )


def _taken(
    key: Key[Array, ""], log_likelihood: Float[Array, "n tries"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """Which of all tries (D, s') the particles take, one each and by weight; and their weights: the means.

    Exact for any number of them. With many, s' ~ p(s' | s, a, o; theta), with weight p(o | s, a; theta).
    """
    n, tries = log_likelihood.shape
    taken = jr.categorical(key, log_likelihood, axis=1).astype(jnp.int32)
    log_mean = jax.nn.logsumexp(log_likelihood, axis=1) - jnp.log(float(tries))
    return jnp.arange(n, dtype=jnp.int32) * tries + taken, log_mean


def _ancestors(
    key: Key[Array, ""], belief: Particles, resampling: str, resample: Bool[Array, ""]
) -> Int[Array, " n"]:
    """Whose child each particle is: drawn by weight where the belief is resampled, otherwise its own."""
    n = belief.num_particles
    indices = {"systematic": systematic_indices, "independent": independent_indices}[resampling]
    return jnp.where(resample, indices(key, belief.weights, n), jnp.arange(n, dtype=jnp.int32))


# Rejection sampling.


class _Kept(NamedTuple):
    """Proposed particles before U: whose child each is, and its s'."""

    ancestors: Int[Array, " n"]
    s_next: Int[Array, "n state_features"]


class _Tries(NamedTuple):
    """Alg. 1 in progress: what was kept so far, and the last block of proposals."""

    kept: _Kept
    number_kept: Int[Array, ""]  # so far, those without a place included
    number: Int[Array, ""]  # of blocks
    last: _Kept
    log_likelihood: Float[Array, " m"]  # of the last block


def rejection_sampling(
    key: Key[Array, ""],
    gba: GBAPOMDP,
    belief: Particles,
    a: Action,
    o: Observation,
    how: Rejection,
    learn: Yes = True,
    active: Yes = True,
) -> tuple[Particles, Info]:
    """Alg. 1: propose (s', o~) from drawn particles and keep those with o~ = o, until there are n.

    Proposals come in blocks of n, or of several n where the models prefer more at once, and are at most
    `how.max_tries` n; U runs once per particle that is kept. A belief that is not `active` stays as it is.
    """
    n = belief.num_particles
    tries = min(gba.models.tries_at_once, how.max_tries)
    key_blocks, key_fill, key_U = jr.split(key, 3)

    def unfinished(now: _Tries) -> Bool[Array, ""]:
        return (now.number_kept < n) & (now.number < how.max_tries // tries) & active

    def block(now: _Tries) -> _Tries:
        # Under vmap a run that has its particles goes on with the others, and what it proposes is discarded.
        return _keep(jr.fold_in(key_blocks, now.number), gba, belief, (a, o), now, unfinished(now))

    found = jax.lax.while_loop(unfinished, block, _no_tries(n, tries, belief))
    num_kept = jnp.minimum(found.number_kept, n)
    chosen, impossible = _fill(key_fill, found, num_kept)
    themselves = _Kept(jnp.arange(n, dtype=jnp.int32), belief.states.s)
    ancestors, s_next = select(active, chosen, themselves)
    steps = Transition(belief.states.s[ancestors], a, s_next, o)
    learn = jnp.asarray(learn & ~impossible & active)
    theta = gba.models.update(jr.split(key_U, n), belief.states.theta, ancestors, steps, learn)
    log_weights = jnp.where(active, uniform_weights(n), belief.log_weights)
    return Particles(AugmentedState(s_next, theta), log_weights), Info(
        effective_sample_size=jnp.float32(n),
        acceptance_rate=found.number_kept / (jnp.maximum(found.number, 1) * tries * n),
        distinct_ancestors=num_distinct(ancestors, n),
        resampled=jnp.array(True),
        num_filled=n - num_kept,
        impossible=impossible,
        ancestors=ancestors,
    )


def _no_tries(n: int, tries: int, belief: Particles) -> _Tries:
    def nothing(n: int) -> _Kept:
        return _Kept(jnp.zeros((n,), jnp.int32), jnp.zeros((n, *belief.states.s.shape[1:]), jnp.int32))

    zero, m = jnp.int32(0), tries * n
    return _Tries(nothing(n), zero, zero, nothing(m), jnp.zeros((m,)))


def _keep(
    key: Key[Array, ""],
    gba: GBAPOMDP,
    belief: Particles,
    given: tuple[Action, Observation],
    now: _Tries,
    wanted: Bool[Array, ""],
) -> _Tries:
    """Propose a block, and keep what explains the observation while there is place."""
    models, thetas, n = gba.models, belief.states.theta, belief.num_particles
    keys = jr.split(key, (3, now.log_likelihood.shape[0]))
    i = jnp.where(wanted, jax.vmap(belief.sample)(keys[0]), NOBODY)
    epsilons = models.draw(keys[1], thetas, i)
    s_next, o, log_likelihood = models.propose(keys[2], thetas, i, epsilons, belief.states.s[i], given)
    accepted = jnp.all(o == given[1][None], axis=1)
    place = jnp.where(accepted, now.number_kept + jnp.cumsum(accepted, dtype=jnp.int32) - 1, n)
    kept = _Kept(
        now.kept.ancestors.at[place].set(i, mode="drop"),
        now.kept.s_next.at[place].set(s_next, mode="drop"),
    )
    number_kept = now.number_kept + jnp.sum(accepted, dtype=jnp.int32)
    return _Tries(kept, number_kept, now.number + 1, _Kept(i, s_next), log_likelihood)


def _fill(key: Key[Array, ""], found: _Tries, num_kept: Int[Array, ""]) -> tuple[_Kept, Bool[Array, ""]]:
    """n particles by the depletion policy, and whether the observation is impossible."""
    n = found.kept.ancestors.shape[0]
    impossible = (num_kept == 0) & jnp.all(jnp.isneginf(found.log_likelihood))
    relative = jnp.exp(found.log_likelihood - jnp.max(found.log_likelihood))
    by_weight = systematic_indices(key, jnp.nan_to_num(jnp.where(impossible, 1.0, relative)), n)
    copies = jnp.arange(n, dtype=jnp.int32) % jnp.maximum(num_kept, 1)
    chosen = select(num_kept > 0, tree_at_index(found.kept, copies), tree_at_index(found.last, by_weight))
    return chosen, impossible


def select(condition: Yes, yes: PyTree, no: PyTree) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)


def num_distinct(indices: Int[Array, " _"], n: int) -> Int[Array, ""]:
    """How many of 0 ... n - 1 are among them."""
    return jnp.sum(jnp.zeros((n,), jnp.int32).at[indices].set(1, mode="drop"), dtype=jnp.int32)
