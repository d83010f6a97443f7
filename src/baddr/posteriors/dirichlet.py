"""The tabular BA-POMDP: Dirichlet counts over transitions and observations (end of Section 3)."""

from typing import NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from baddr.core.pomdp import Action, Dynamics, Observation, State, Table, flat_index
from baddr.core.posterior import Posterior
from baddr.prng import gamma


class Counts(NamedTuple):
    """theta: one Dirichlet per row of each table; a zero entry is an outcome that cannot happen."""

    T: Float[Array, "... S A S"]
    O: Float[Array, "... A S Z"]


class Dirichlet(Posterior):
    """Conjugate counts: U adds one to the entries of (s, a, s') and (a, s', o).

    `expected` (the default, as in BA-POMCP): a draw is the expected model of the counts. The filter's
    weights are then exact predictive probabilities, and a draw costs nothing. Otherwise a draw is a
    model drawn from the Dirichlets.
    """

    counts: Counts
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    expected: bool = eqx.field(static=True, default=True)

    def prior(self, key: Key[Array, ""]) -> Counts:
        return self.counts

    def draw(self, key: Key[Array, ""], theta: Counts) -> PyTree:
        if self.expected:
            return ()
        key_T, key_O = jr.split(key)
        return Counts(gamma(key_T, theta.T), gamma(key_O, theta.O))  # their rows, normalised, are Dirichlet

    def dynamics(self, theta: Counts, epsilon: PyTree) -> Dynamics:
        weights = theta if self.expected else epsilon
        return Table(weights.T, weights.O, self.state_sizes, self.observation_sizes)

    def update(
        self, key: Key[Array, ""], theta: Counts, s: State, a: Action, s_next: State, o: Observation
    ) -> Counts:
        i, i_next = flat_index(s, self.state_sizes), flat_index(s_next, self.state_sizes)
        z = flat_index(o, self.observation_sizes)
        return Counts(theta.T.at[i, a, i_next].add(1), theta.O.at[a, i_next, z].add(1))
