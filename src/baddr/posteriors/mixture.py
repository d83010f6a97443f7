"""Several posteriors at once: theta says which one it is, and the filter's weights say how likely each is.

What is learned where the truth is outside the support of one of them: "the simulators are right", with .9,
say, or "learn anything", with .1. Which of them predicts better decides.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.core.particles import Particles, mass_of, systematic_indices
from baddr.core.pomdp import Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.core.posterior import Posterior, Theta
from baddr.posteriors.partial import split
from baddr.prng import categorical

Which = Int[Array, "*n"]


class Mixed(NamedTuple):
    """theta: the number of its part, and a theta of every part, of which only its own counts."""

    which: Which
    thetas: tuple[Theta, ...]


def chosen(which: Which, values: tuple[PyTree, ...]) -> Any:
    """The value of the part that is meant; all of them are computed."""
    found = values[0]
    for j, value in enumerate(values[1:], start=1):
        found = jax.tree.map(lambda new, old, j=j: jnp.where(which == j, new, old), value, found)
    return found


class MixedDynamics(Dynamics):
    """The D of one part."""

    which: Which
    parts: tuple[Dynamics, ...]

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self._of(lambda D: D.step(key, s, a))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return self._of(lambda D: D.observation_log_prob(s, a, s_next, o))

    def log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return self._of(lambda D: D.log_prob(s, a, s_next, o))

    def _of(self, function: Callable[[Dynamics], Any]) -> Any:
        return chosen(self.which, tuple(map(function, self.parts)))


class MixedSplitDynamics(SplitDynamics):
    """The same where all parts have their factors apart."""

    which: Which
    parts: tuple[Dynamics, ...]

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return self._of(lambda D: D.sample_state(key, s, a))

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return self._of(lambda D: D.sample_observation(key, s, a, s_next))

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return self._of(lambda D: D.transition_log_prob(s, a, s_next))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return self._of(lambda D: D.observation_log_prob(s, a, s_next, o))

    def _of(self, function: Callable[[SplitDynamics], Any]) -> Any:
        return chosen(self.which, tuple(function(split(D)) for D in self.parts))


def mixed(which: Which, parts: tuple[Dynamics, ...]) -> Dynamics:
    kind = MixedSplitDynamics if all(isinstance(D, SplitDynamics) for D in parts) else MixedDynamics
    return kind(which, parts)


class Mixture(Posterior):
    """Parts with prior weights. A particle is of one part for good; it is re-weighted, and its U is the
    part's."""

    parts: tuple[Posterior, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    def prior(self, key: Key[Array, ""]) -> Mixed:
        key_which, *keys = jr.split(key, 1 + len(self.parts))
        return Mixed(categorical(key_which, self._weights), self._priors(keys))

    def priors(self, keys: Key[Array, " n"]) -> Mixed:
        """theta_0 of all particles: each part has its share of them to within one, so that none that is
        unlikely is missing by chance."""
        which = systematic_indices(keys[0], self._weights, keys.shape[0])
        return Mixed(which, jax.vmap(lambda key: self._priors(jr.split(key, len(self.parts))))(keys))

    def draw(self, key: Key[Array, ""], theta: Mixed) -> tuple[PyTree, ...]:
        keys = jr.split(key, len(self.parts))
        return tuple(part.draw(*x) for part, *x in zip(self.parts, keys, theta.thetas, strict=True))

    def dynamics(self, theta: Mixed, epsilon: tuple[PyTree, ...]) -> Dynamics:
        parts = zip(self.parts, theta.thetas, epsilon, strict=True)
        return mixed(theta.which, tuple(part.dynamics(*x) for part, *x in parts))

    def update(
        self, key: Key[Array, ""], theta: Mixed, s: State, a: Action, s_next: State, o: Observation
    ) -> Mixed:
        keys = jr.split(key, len(self.parts))
        parts = zip(self.parts, keys, theta.thetas, strict=True)
        learned = tuple(part.update(key, theta, s, a, s_next, o) for part, key, theta in parts)
        return after(theta, learned)

    @property
    def _weights(self) -> Float[Array, " parts"]:
        return jnp.array(self.weights)

    def _priors(self, keys: Any) -> tuple[Theta, ...]:
        return tuple(part.prior(key) for part, key in zip(self.parts, keys, strict=True))


def after(theta: Mixed, updated: tuple[Theta, ...]) -> Mixed:
    """theta with what its own part learned."""

    def keep(j: int, new: Array, old: Array) -> Array:
        mine = (theta.which == j).reshape(theta.which.shape + (1,) * (old.ndim - theta.which.ndim))
        return jnp.where(mine, new, old)

    pairs = enumerate(zip(updated, theta.thetas, strict=True))
    return Mixed(
        theta.which, tuple(jax.tree.map(lambda x, y, j=j: keep(j, x, y), *both) for j, both in pairs)
    )


def part_weights(posterior: Mixture, belief: Particles) -> Float[Array, " parts"]:
    """How likely each part is."""
    return mass_of(belief.states.theta.which, belief.weights, len(posterior.parts))
