"""A posterior family p(D; theta) with its parameter update U (Section 3.3)."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import bytes_of, over_particles, tree_at_index
from baddr.core.pomdp import Action, Dynamics, Observation, SplitDynamics, State

Theta = PyTree[Any]
Draws = Float[Array, " draws"] | None


class Rows(NamedTuple):
    """Inputs of D, as ranks: the (s, a) whose s' matters, and the (s, a, s') whose o does."""

    T: tuple[tuple[int, int], ...]
    O: tuple[tuple[int, int, int], ...]


class Tabulated(SplitDynamics):
    """Draws of D that were evaluated at some rows."""

    @abstractmethod
    def probabilities(self) -> tuple[Float[Array, "*draws T_rows S"], Float[Array, "*draws O_rows Z"]]:
        """p(s' | s, a) and p(o | s, a, s') of each draw there, of all s' and o by rank."""


class Posterior(eqx.Module):
    """p(D; theta), for any pytree theta.

    A draw of D is written D = dynamics(theta, epsilon) with epsilon = draw(key, theta): epsilon is all
    that the draw adds to theta (a dropout mask; nothing, where D is theta's expected model). A planner
    keeps epsilon and the particle's index for a whole simulation and never copies theta.
    """

    num_draws: ClassVar[int] = 64  # of models, for a moment that has no closed form

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

    def update_all(
        self,
        keys: Key[Array, " n"],
        thetas: Theta,
        i: Int[Array, " n"],
        s: Int[Array, "n state_features"],
        a: Action,
        s_next: Int[Array, "n state_features"],
        o: Observation,
        learn: Bool[Array, ""],
    ) -> Theta:
        """U of the particles i among stacked parameters; where not `learn`, their parameters as they are."""

        def one(key: Key[Array, ""], i: Int[Array, ""], s: State, s_next: State) -> Theta:
            theta = tree_at_index(thetas, i)
            after = self.update(key, theta, s, a, s_next, o)
            return jax.tree.map(lambda x, y: jnp.where(learn, x, y), after, theta)

        return over_particles(one, bytes_of(thetas))(keys, i, s, s_next)

    def dynamics_of(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        """The D of particle i among stacked parameters.

        A family whose D reads little of theta at a step overrides this, so that theta is not copied.
        """
        return self.dynamics(tree_at_index(thetas, i), epsilon)

    def sample_of(self, key: Key[Array, ""], thetas: Theta, i: Int[Array, ""]) -> Dynamics:
        """Draw D ~ p(.; theta) for the theta of particle i among stacked parameters."""
        return self.dynamics_of(thetas, i, self.draw(key, tree_at_index(thetas, i)))

    @property
    def draws_once(self) -> bool:
        """Whether a D that was drawn is one distribution, and no step of it draws anew."""
        return True

    @property
    def tries_at_once(self) -> int:
        """Of each particle: how many proposals rejection sampling had best compute together."""
        return 1

    def tabulate(self, thetas: Theta, i: Int[Array, " n"], epsilon: PyTree, rows: Rows) -> Dynamics | None:
        """n draws of D, of the particles i, evaluated at these inputs and stacked, where D is worth a table.

        Elsewhere their outcomes mean nothing.
        """
        return None

    def sample(self, key: Key[Array, ""], theta: Theta) -> Dynamics:
        """Draw D ~ p(.; theta)."""
        return self.dynamics(theta, self.draw(key, theta))

    def observation_draws(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> Draws:
        """Draws of p(o | s, a, s'; D) over D ~ p(.; theta); None where a draw is theta's expected model."""

        def probability(key: Key[Array, ""]) -> Float[Array, ""]:
            return jnp.exp(self.sample(key, theta).observation_log_prob(s, a, s_next, o))

        return jax.vmap(probability)(jr.split(key, self.num_draws))

    def observation_moments(
        self, theta: Theta, s: State, a: Action, s_next: State, o: Observation, draws: Draws
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and (unbiased) variance over D ~ p(.; theta) of p(o | s, a, s'; D): here those of the `draws`
        that `observation_draws` gave."""
        assert draws is not None, f"{type(self).__name__} has no draws: it must give the moments itself"
        return jnp.mean(draws), jnp.var(draws, ddof=1)
