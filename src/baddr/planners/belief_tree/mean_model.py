"""The tabular model that a belief expects: the mean of its particles' D."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, systematic_indices
from baddr.core.pomdp import POMDP, Action, Dynamics, Scalar, SplitDynamics, State, all_vectors, flat_index
from baddr.core.posterior import Posterior
from baddr.planners.belief_tree.bounds import Draws, Model, Rows
from baddr.posteriors.bank import Bank, member_weights

MOST_ROWS, MOST_ROWS_KNOWN = 256, 768  # states: of more, s' are drawn
EVALUATIONS = 4096  # of D in each (s, a), over the particles that the mean is taken of
FEWEST, MOST_PARTICLES = 8, 256  # of them
ROWS_AT_ONCE = 1 << 20  # numbers


def is_known(posterior: Posterior) -> bool:
    """Whether there is but one D: neither theta nor a draw holds anything."""
    return not any(what_is_drawn(posterior))


def what_is_drawn(posterior: Posterior) -> tuple[list[Any], list[Any]]:
    """The shapes of theta's arrays, and of those that a draw adds to them."""

    def draw(posterior: Posterior, key: Key[Array, ""]) -> PyTree:
        theta = posterior.prior(key)
        return theta, posterior.draw(key, theta)

    key = jax.eval_shape(lambda: jr.key(0))
    theta, epsilon = eqx.filter_eval_shape(draw, posterior, key)  # the posterior's arrays may be shapes yet
    return jax.tree.leaves(theta), jax.tree.leaves(epsilon)


def mean_model(key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Model:
    """Of a few particles, drawn by weight: in full where there are few states, by draws of s' elsewhere. Of a
    bank whose transitions are listed: of all members."""
    if isinstance(gba.posterior, Bank) and gba.posterior.reach is not None:
        T = gba.posterior.reach.mean(member_weights(belief))
        return with_rewards(gba.pomdp, T)
    S, A, known = gba.num_states, gba.num_actions, is_known(gba.posterior)
    n = min(max(FEWEST, EVALUATIONS // (S * A)), MOST_PARTICLES, belief.num_particles)
    rows = S <= (MOST_ROWS_KNOWN if known else MOST_ROWS)
    n = 1 if known and rows else n
    # One wide split: with keys from keys from keys XLA takes minutes to compile this.
    keys = jr.split(key, 1 + n + (0 if rows else n * A * S))
    i = systematic_indices(keys[0], belief.weights, n)
    epsilons = gba.models.draw(keys[1 : 1 + n], belief.states.theta, i)
    if not rows:
        return _draws(keys[1 + n :].reshape(n, A, S), gba, belief, i, epsilons)

    def one(draw: tuple[Array, PyTree]) -> Float[Array, "A S S"]:
        return transition_table(gba.pomdp, gba.models.dynamics(belief.states.theta, *draw))

    at_once = max(1, ROWS_AT_ONCE // (S * S * A))
    T = jnp.mean(jax.lax.map(one, (i, epsilons), batch_size=at_once), axis=0)
    return with_rewards(gba.pomdp, T)


def with_rewards(pomdp: POMDP, T: Float[Array, "A S S"]) -> Rows:
    """The model of these transitions: expected rewards, and what does not end the episode."""
    ends, R = outcomes(pomdp)
    return Rows(jnp.where(ends, 0, T), jnp.sum(T * R, axis=2))


def outcomes(pomdp: POMDP) -> tuple[Bool[Array, "A S S"], Float[Array, "A S S"]]:
    """Whether (s, a, s') ends the episode, and R(s, a, s')."""

    def outcome(s: State, a: Action, s_next: State) -> tuple[Bool[Array, ""], Scalar]:
        return pomdp.is_terminal(s, a, s_next), pomdp.reward(s, a, s_next)

    return over_rows(outcome, pomdp)


def transition_table(pomdp: POMDP, D: Dynamics) -> Float[Array, "A S S"]:
    """p(s' | s, a; D): where D does not give it itself, the sum of D(s', o | s, a) over o."""
    if isinstance(D, SplitDynamics):
        return jnp.exp(over_rows(D.transition_log_prob, pomdp))
    o = all_vectors(pomdp.observation_sizes)
    joint = lambda s, a, s_next: jax.vmap(lambda o: D.log_prob(s, a, s_next, o))(o)
    return jnp.sum(jnp.exp(over_rows(joint, pomdp)), axis=-1)


def observation_table(pomdp: POMDP, D: Dynamics) -> Float[Array, "A S S Z"]:
    """p(o | s, a, s'; D)."""
    o = all_vectors(pomdp.observation_sizes)
    each = lambda s, a, s_next: jax.vmap(lambda o: D.observation_log_prob(s, a, s_next, o))(o)
    return jnp.exp(over_rows(each, pomdp))


def over_rows(function, pomdp: POMDP):
    """A function of (s, a, s') for all of them: [a, s, s']."""
    over = lambda f, axis: jax.vmap(f, in_axes=tuple(0 if j == axis else None for j in range(3)))
    s = jnp.asarray(all_vectors(pomdp.state_sizes))
    return over(over(over(function, 2), 0), 1)(s, jnp.arange(pomdp.num_actions, dtype=jnp.int32), s)


def _draws(
    keys: Key[Array, "n A S"], gba: GBAPOMDP, belief: Particles, i: Int[Array, " n"], epsilons: PyTree
) -> Draws:
    """From each (s, a), a step of each of n particles' D."""
    pomdp = gba.pomdp
    s, actions = jnp.asarray(all_vectors(pomdp.state_sizes)), jnp.arange(gba.num_actions, dtype=jnp.int32)

    def one(x: tuple[Array, Array, PyTree]) -> tuple[Array, Array, Array]:
        keys, i, epsilon = x
        D = gba.models.dynamics(belief.states.theta, i, epsilon)

        def step(key: Key[Array, ""], s: State, a: Action) -> tuple[Array, Array, Array]:
            s_next, _ = D.step(key, s, a)
            goes_on = ~pomdp.is_terminal(s, a, s_next)
            return flat_index(s_next, pomdp.state_sizes), goes_on, pomdp.reward(s, a, s_next)

        over_s = jax.vmap(step, in_axes=(0, 0, None))
        return jax.vmap(over_s, in_axes=(0, None, 0))(keys, s, actions)

    n = i.shape[0]
    rank, goes_on, r = jax.lax.map(one, (keys, i, epsilons))
    last = lambda x: jnp.moveaxis(x, 0, -1)
    return Draws(last(rank), last(goes_on.astype(float)) / n, jnp.mean(r, axis=0))
