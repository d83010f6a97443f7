"""The models of many particles at once: what filters and planners ask of a posterior for stacked theta.

`EachAlone` is the plain way: a `vmap` of the posterior's four methods. A family whose theta is large, or
whose D reads little of it, may have a better way, which computes the same.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Action, Dynamics, Observation, State, Transition
from baddr.core.posterior import Posterior, Theta

Indices = Int[Array, " n"]  # of particles, among stacked theta


class Proposals(NamedTuple):
    """A step of each of n particles: (s', o~) ~ D, and log p(o | s, a, s'; D) of the real o."""

    s_next: Int[Array, "n state_features"]
    o: Int[Array, "n observation_features"]
    log_likelihood: Float[Array, " n"]


class Models(eqx.Module):
    """p(D; theta) and U for stacked theta, of which the particles i are meant."""

    posterior: eqx.AbstractVar[Any]  # a Posterior

    @property
    @abstractmethod
    def tries_at_once(self) -> int:
        """Of each particle: how many proposals rejection sampling had best compute together."""

    @abstractmethod
    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        """`function` of one particle as a function of many."""

    @abstractmethod
    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        """The D of particle i, without copying more of theta than D reads."""

    @abstractmethod
    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        """U of the particles i, which share a and o; where not `learn`, their theta as they are."""

    @abstractmethod
    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        """epsilon of a D ~ p(.; theta) for each."""

    @abstractmethod
    def propose(
        self,
        keys: Key[Array, " n"],
        thetas: Theta,
        i: Indices,
        epsilons: PyTree,
        s: Int[Array, "n state_features"],
        given: tuple[Action, Observation],
    ) -> Proposals:
        """Step the D of each particle from its s, and weigh the real observation."""

    @abstractmethod
    def log_likelihood(
        self, thetas: Theta, i: Indices, epsilons: PyTree, steps: Transition
    ) -> Float[Array, " n"]:
        """log p(o | s, a, s'; D) of each particle; they share a and o."""


class ByDynamics(Models):
    """Models that step and weigh by the D of each particle."""

    def propose(
        self,
        keys: Key[Array, " n"],
        thetas: Theta,
        i: Indices,
        epsilons: PyTree,
        s: Int[Array, "n state_features"],
        given: tuple[Action, Observation],
    ) -> Proposals:
        a, o = given

        def one(key: Key[Array, ""], i: Int[Array, ""], epsilon: PyTree, s: State) -> Proposals:
            D = self.dynamics(thetas, i, epsilon)
            s_next, o_proposed = D.step(key, s, a)
            return Proposals(s_next, o_proposed, D.observation_log_prob(s, a, s_next, o))

        return self.each(one, thetas)(keys, i, epsilons, s)

    def log_likelihood(
        self, thetas: Theta, i: Indices, epsilons: PyTree, steps: Transition
    ) -> Float[Array, " n"]:
        def one(i: Int[Array, ""], epsilon: PyTree, s: State, s_next: State) -> Float[Array, ""]:
            return self.dynamics(thetas, i, epsilon).observation_log_prob(s, steps.a, s_next, steps.o)

        return self.each(one, thetas)(i, epsilons, steps.s, steps.s_next)


class RestartingModels(Models):
    """Models whose theta holds something about s, which a new episode forgets."""

    @abstractmethod
    def restart(self, thetas: Theta, s: Int[Array, "n state_features"]) -> Theta:
        """The theta of an episode that starts in s."""


class EachAlone(ByDynamics):
    """Particle beside particle."""

    posterior: Posterior

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return jax.vmap(function)

    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.posterior.dynamics(tree_at_index(thetas, i), epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        return self.each(update_one(self.posterior, thetas, steps, learn), thetas)(
            keys, i, steps.s, steps.s_next
        )


def draw_each(posterior: Posterior, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
    """epsilon for each of the particles i, by the posterior's own `draw`."""
    return jax.vmap(lambda key, i: posterior.draw(key, tree_at_index(thetas, i)))(keys, i)


def update_one(
    posterior: Posterior, thetas: Theta, steps: Transition, learn: Bool[Array, ""]
) -> Callable[..., Theta]:
    """U of one particle among stacked theta, as a function of (key, i, s, s')."""

    def one(key: Key[Array, ""], i: Int[Array, ""], s: State, s_next: State) -> Theta:
        theta = tree_at_index(thetas, i)
        after = posterior.update(key, theta, s, steps.a, s_next, steps.o)
        return jax.tree.map(lambda x, y: jnp.where(learn, x, y), after, theta)

    return one
