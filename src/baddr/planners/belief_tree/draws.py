"""Draws of D that a tree steps again and again: one for each of its particles."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.models import Models
from baddr.core.pomdp import POMDP, Action, Dynamics, Scalar, State
from baddr.core.posterior import Theta


class Stepped(NamedTuple):
    """A step of every draw by each action."""

    s: Int[Array, "n state_features"]
    s_next: Int[Array, "n A state_features"]
    rest: PyTree  # what drawing the observations needs


class Seen(NamedTuple):
    """What every draw showed after each action."""

    o: Int[Array, "n A observation_features"]
    by: PyTree  # what it was drawn from, where that saves finding it again


class Draws(eqx.Module):
    """n draws of D. A step is in two parts: where nothing follows, nobody asks what was seen."""

    @abstractmethod
    def step(self, keys: Key[Array, "n A"], s: Int[Array, "n state_features"]) -> Stepped:
        """A step of each from its s, by each action."""

    @abstractmethod
    def see(self, step: Stepped) -> Seen:
        """An observation after each."""

    @abstractmethod
    def weigh(
        self, step: Stepped, seen: Seen, o: Int[Array, "A C observation_features"]
    ) -> Float[Array, "A C n"]:
        """p(o | s, a, s'; D) of some observations after each action."""


class EachDraw(Draws):
    """Draw beside draw: the plain way."""

    models: Models
    theta: Theta
    i: Int[Array, " n"]  # whose theta
    epsilon: PyTree

    def step(self, keys: Key[Array, "n A"], s: Int[Array, "n state_features"]) -> Stepped:
        actions = jnp.arange(keys.shape[1], dtype=jnp.int32)

        def one(D: Dynamics, keys: Key[Array, " A"], s: State) -> tuple[Array, Array]:
            return jax.vmap(lambda key, a: D.step(key, s, a))(keys, actions)

        return Stepped(s, *self._each(one)(keys, s))

    def see(self, step: Stepped) -> Seen:
        return Seen(step.rest, ())

    def weigh(
        self, step: Stepped, seen: Seen, o: Int[Array, "A C observation_features"]
    ) -> Float[Array, "A C n"]:
        actions = jnp.arange(o.shape[0], dtype=jnp.int32)

        def one(D: Dynamics, s: State, s_next: Int[Array, "A state_features"]) -> Float[Array, "A C"]:
            def by(a: Action, s_next: State, o: Array) -> Float[Array, " C"]:
                return jax.vmap(lambda o: D.observation_log_prob(s, a, s_next, o))(o)

            return jnp.exp(jax.vmap(by)(actions, s_next, o))

        return jnp.moveaxis(self._each(one)(step.s, step.s_next), 0, 2)

    def _each(self, function: Any) -> Any:
        """`function` of every D and some arrays."""
        one = lambda i, epsilon, *x: function(self.models.dynamics(self.theta, i, epsilon), *x)
        many = self.models.each(one, self.theta)
        return lambda *x: many(self.i, self.epsilon, *x)


def outcomes_of(
    pomdp: POMDP, s: Int[Array, "n state_features"], s_next: Int[Array, "n A state_features"]
) -> tuple[Float[Array, "n A"], Bool[Array, "n A"]]:
    """The reward of each step, and whether it ends the episode."""

    def one(s: State, a: Action, s_next: State) -> tuple[Scalar, Bool[Array, ""]]:
        return pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next)

    by_each = jax.vmap(one, in_axes=(None, 0, 0))
    actions = jnp.arange(pomdp.num_actions, dtype=jnp.int32)
    return jax.vmap(by_each, in_axes=(0, None, 0))(s, actions, s_next)
