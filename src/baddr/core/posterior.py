"""A posterior family p(D; theta) with its parameter update U (Section 3.3)."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from baddr.core.pomdp import Action, Dynamics, Observation, State

Theta = PyTree[Any]


class Posterior(eqx.Module):
    """p(D; theta), for any pytree theta.

    A draw of D is written D = dynamics(theta, epsilon) with epsilon = draw(key, theta): epsilon is all
    that the draw adds to theta (a dropout mask; nothing, where D is theta's expected model). A planner
    keeps epsilon and the particle's index for a whole simulation and never copies theta.

    A D that was drawn is one distribution: its `step` and its probabilities agree, however often it is asked.
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


def sample(posterior: Posterior, key: Key[Array, ""], theta: Theta) -> Dynamics:
    """Draw D ~ p(.; theta)."""
    return posterior.dynamics(theta, posterior.draw(key, theta))
