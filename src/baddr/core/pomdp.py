"""The POMDP tuple (S, A, O, D, R, gamma, K, p_s0) as values and functions (Section 2)."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.prng import categorical

State = Int[Array, " state_features"]
Action = Int[Array, ""]
Observation = Int[Array, " observation_features"]
Scalar = Float[Array, ""]


def flat_index(features: Int[Array, " n"], sizes: Sequence[int]) -> Int[Array, ""]:
    """The rank of a feature vector in mixed radix, feature 0 most significant."""
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int32)
    return jnp.sum(features * strides, dtype=jnp.int32)


def feature_vector(index: Int[Array, ""], sizes: Sequence[int]) -> Int[Array, " n"]:
    """The inverse of `flat_index`."""
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int32)
    return (index // strides) % np.asarray(sizes, np.int32)


def all_vectors(sizes: Sequence[int]) -> Int[np.ndarray, "values features"]:
    """All feature vectors by rank: numbers that are known before anything is compiled."""
    return np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1).astype(np.int32)


class Transition(NamedTuple):
    """(s, a, s', o): what D draws and U learns from."""

    s: Int[Array, "*n state_features"]
    a: Int[Array, "*_"]
    s_next: Int[Array, "*n state_features"]
    o: Int[Array, "*_ observation_features"]


class Dynamics(eqx.Module):
    """One concrete D: (S x A) -> Delta(S x O)."""

    @abstractmethod
    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        """Draw (s', o) ~ D(., . | s, a)."""

    @abstractmethod
    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        """log p(o | s, a, s'; D)."""

    @abstractmethod
    def log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        """log D(s', o | s, a)."""


class SplitDynamics(Dynamics):
    """A D whose two factors D(s', o | s, a) = p(s' | s, a) p(o | s, a, s') can be used apart."""

    @abstractmethod
    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        """Draw s' ~ p(. | s, a)."""

    @abstractmethod
    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        """Draw o ~ p(. | s, a, s')."""

    @abstractmethod
    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        """log p(s' | s, a; D)."""

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        key_s, key_o = jr.split(key)
        s_next = self.sample_state(key_s, s, a)
        return s_next, self.sample_observation(key_o, s, a, s_next)

    def log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return self.transition_log_prob(s, a, s_next) + self.observation_log_prob(s, a, s_next, o)


class Table(SplitDynamics):
    """D as tables of non-negative weights, in proportion to probabilities: rows need not sum to one.

    The rows of a Dirichlet's counts are such weights, so the expected model of a count table is the
    table itself.
    """

    T: Float[Array, "S A S"]
    O: Float[Array, "A S Z"]  # p(o | a, s'): rows by action and *next* state
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        row = self.T[flat_index(s, self.state_sizes), a]
        return feature_vector(categorical(key, row), self.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        row = self.O[a, flat_index(s_next, self.state_sizes)]
        return feature_vector(categorical(key, row), self.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        row = self.T[flat_index(s, self.state_sizes), a]
        return jnp.log(row[flat_index(s_next, self.state_sizes)]) - jnp.log(jnp.sum(row))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        row = self.O[a, flat_index(s_next, self.state_sizes)]
        return jnp.log(row[flat_index(o, self.observation_sizes)]) - jnp.log(jnp.sum(row))


class POMDP(eqx.Module):
    """The tuple (S, A, O, D, R, gamma, K, p_s0).

    States and observations are vectors of integer features; feature i takes the values
    0 ... sizes[i] - 1. Subclasses hold their `Dynamics` in a field `dynamics`, so that the other
    members of their family (Def. 1) are one `with_dynamics` away.
    """

    state_sizes: eqx.AbstractVar[tuple[int, ...]]
    observation_sizes: eqx.AbstractVar[tuple[int, ...]]
    num_actions: eqx.AbstractVar[int]
    discount: eqx.AbstractVar[float]
    horizon: eqx.AbstractVar[int]

    @abstractmethod
    def initial_state(self, key: Key[Array, ""]) -> Any:
        """Draw s_0 ~ p_s0."""

    @abstractmethod
    def initial_observation(self, key: Key[Array, ""], s: Any) -> Observation:
        """What an agent that wants one sees before its first action; Bayesian agents ignore it."""

    @abstractmethod
    def step(self, key: Key[Array, ""], s: Any, a: Action) -> tuple[Any, Observation]:
        """Draw (s', o) ~ D(., . | s, a)."""

    @abstractmethod
    def reward(self, s: Any, a: Action, s_next: Any) -> Scalar:
        """R(s, a, s')."""

    @abstractmethod
    def is_terminal(self, s: Any, a: Action, s_next: Any) -> Bool[Array, ""]:
        """Whether the transition (s, a, s') ends the episode."""

    def with_dynamics(self, D: Dynamics) -> "POMDP":
        """The member of this family of POMDPs (Def. 1) whose dynamics are D."""
        return eqx.tree_at(lambda pomdp: pomdp.dynamics, self, D)

    @property
    def num_states(self) -> int:
        return math.prod(self.state_sizes)

    @property
    def num_observations(self) -> int:
        return math.prod(self.observation_sizes)
