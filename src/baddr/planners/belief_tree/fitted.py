"""Values learned from simulated steps, where there are too many states for value iteration.

Fitted value iteration (Gordon, 1995; Ernst et al., 2005): states that random walks of the belief's models
come to, a step of each by every action, and for one number of steps left after the other a regression of the
values on features of s. What comes out are estimates, and no bounds: they are wrong by what the features
cannot say, and where walks do not come.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, systematic_indices
from baddr.planners.belief_tree.bounds import Bounds, Model, Own, value_iteration
from baddr.planners.belief_tree.draws import EachDraw, outcomes_of
from baddr.planners.belief_tree.features import Features, features_of, values_at

STATES_PER_FEATURE = 4  # in the regression
RIDGE = 1e-4  # in proportion to the number of states


class Sampled(Model):
    """Some states, and a step from each by every action. A value at s' is that of the regression."""

    R: Float[Array, "A S"]
    s_next: Int[Array, "A S state_features"]
    goes_on: Bool[Array, "A S"]
    fit: Float[Array, "features S"]  # from values at the states to weights of the features
    features: Features

    def expect(self, V: Float[Array, "A S"]) -> Float[Array, "A S"]:
        def by(x: tuple[Array, Array, Array]) -> Float[Array, " S"]:
            s_next, goes_on, weights = x
            return jnp.where(goes_on, values_at(weights[None], self.features(s_next))[0], 0)

        return jax.lax.map(by, (self.s_next, self.goes_on, self.weights(V)))

    def weights(self, V: Float[Array, "*n S"]) -> Float[Array, "*n features_and_range"]:
        """Of the features, and the least and the largest of the values."""
        least, most = (f(V, axis=-1, keepdims=True) for f in (jnp.min, jnp.max))
        return jnp.concatenate([V @ self.fit.T, least, most], axis=-1)


def learned_bounds(model: Sampled, gba: GBAPOMDP, horizon: int, own: Own) -> Bounds:
    """What value iteration finds at the states of the model, as weights of the features."""
    lower, upper = map(model.weights, value_iteration(model, gba.discount, horizon))
    return Bounds(lower, upper, own, gba.state_sizes, model.features)


def sampled_model(key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Sampled:
    """From random walks of as many particles, drawn by weight, as it takes: each in a D of its own."""
    features = features_of(gba)
    steps = min(gba.horizon, STATES_PER_FEATURE * features.number)
    walks = -(-STATES_PER_FEATURE * features.number // steps)
    key_i, key_D, key_walk = jr.split(key, 3)
    i = systematic_indices(key_i, belief.weights, walks)
    epsilon = gba.models.draw(jr.split(key_D, walks), belief.states.theta, i)
    draws, first = EachDraw(gba.models, belief.states.theta, i, epsilon), belief.states.s[i]

    def step(s: Int[Array, "walks features"], key: Key[Array, ""]) -> tuple[Array, tuple[Array, ...]]:
        key_s, key_a = jr.split(key)
        s_next = draws.step(jr.split(key_s, (walks, gba.num_actions)), s).s_next
        r, ends = outcomes_of(gba.pomdp, s, s_next)
        a = jr.randint(key_a, (walks,), 0, gba.num_actions)
        each = jnp.arange(walks)
        after = jnp.where(ends[each, a][:, None], first, s_next[each, a])
        return after, (s, s_next, r, ends)

    _, found = jax.lax.scan(step, first, jr.split(key_walk, steps))
    s, s_next, r, ends = (x.reshape(steps * walks, *x.shape[2:]) for x in found)
    by_action = lambda x: jnp.moveaxis(x, 1, 0)
    return Sampled(by_action(r), by_action(s_next), ~by_action(ends), regression(features(s)), features)


def regression(phi: Float[Array, "S features"]) -> Float[Array, "features S"]:
    """Ridge regression: from values to weights."""
    gram = phi.T @ phi + RIDGE * phi.shape[0] * jnp.eye(phi.shape[1])
    return jax.scipy.linalg.solve(gram, phi.T, assume_a="pos")
