"""A posterior family p(D; theta) with its parameter update U (Section 3.3)."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from baddr.pomdp import Action, Dynamics, Observation, State

Theta = PyTree[Any]
NUM_DRAWS = 64  # models drawn for a moment that has no closed form


class Posterior(eqx.Module):
    """p(D; theta), for any pytree theta.

    A draw of D is written D = dynamics(theta, epsilon) with epsilon = draw(key, theta): epsilon is all
    that the draw adds to theta (a dropout mask; nothing, where D is theta's expected model). A planner
    keeps epsilon and the particle's index for a whole simulation and never copies theta.
    """

    @abstractmethod
    def prior(self, key: Key[Array, ""]) -> Theta:
        """theta_0."""

    @abstractmethod
    def draw(self, key: Key[Array, ""], theta: Theta) -> PyTree:
        """The randomness epsilon of one draw of D ~ p(.; theta)."""

    @abstractmethod
    def dynamics(self, theta: Theta, epsilon: PyTree) -> Dynamics:
        """The D that theta and epsilon stand for."""

    @abstractmethod
    def update(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> Theta:
        """U: the parameters after the transition (s, a, s', o)."""

    def sample(self, key: Key[Array, ""], theta: Theta) -> Dynamics:
        """Draw D ~ p(.; theta)."""
        return self.dynamics(theta, self.draw(key, theta))

    def observation_moments(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and variance over D ~ p(.; theta) of p(o | s, a, s'; D): here by Monte Carlo."""

        def probability(key: Key[Array, ""]) -> Float[Array, ""]:
            return jnp.exp(self.sample(key, theta).observation_log_prob(s, a, s_next, o))

        p = jax.vmap(probability)(jr.split(key, NUM_DRAWS))
        return jnp.mean(p), jnp.var(p)
