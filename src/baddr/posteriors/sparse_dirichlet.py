"""The tabular BA-POMDP for many states: shared prior counts, and of each particle the steps that it saw."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.pomdp import (
    Action,
    Dynamics,
    Observation,
    Scalar,
    SplitDynamics,
    State,
    feature_vector,
    flat_index,
)
from baddr.core.posterior import Posterior
from baddr.posteriors.dirichlet import Counts, Dirichlet
from baddr.posteriors.sparse import Ragged

NOWHERE = -1  # in place of a state, where no step was seen yet


class SparseCounts(eqx.Module):
    """The prior counts of T, rows by (a, s), and of O, rows by (a, s'): all particles share them."""

    T: Ragged
    O: Ragged


class Seen(NamedTuple):
    """theta: the steps (s, a, s', o) that were counted. One step is one count in each table."""

    s: Int[Array, "*n memory"]
    a: Int[Array, "*n memory"]
    s_next: Int[Array, "*n memory"]
    o: Int[Array, "*n memory"]
    number: Int[Array, "*n"]  # of the steps so far


class SparseDirichlet(Posterior):
    """`Dirichlet` with the expected model, where whole tables of counts would not fit.

    theta holds the last `memory` steps, so that it equals the table's counts as long as there were no more;
    after that the oldest are forgotten.
    """

    counts: SparseCounts
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    memory: int = eqx.field(static=True, default=1024)

    def prior(self, key: Key[Array, ""]) -> Seen:
        nothing = jnp.full((self.memory,), NOWHERE, jnp.int32)
        return Seen(nothing, nothing, nothing, nothing, jnp.int32(0))

    def draw(self, key: Key[Array, ""], theta: Seen) -> PyTree:
        return ()

    def dynamics(self, theta: Seen, epsilon: PyTree) -> Dynamics:
        return ExpectedCounts(self.counts, theta, self.state_sizes, self.observation_sizes)

    def update(
        self, key: Key[Array, ""], theta: Seen, s: State, a: Action, s_next: State, o: Observation
    ) -> Seen:
        i, i_next = flat_index(s, self.state_sizes), flat_index(s_next, self.state_sizes)
        z, place = flat_index(o, self.observation_sizes), theta.number % self.memory
        step = (i, a.astype(jnp.int32), i_next, z)
        kept = [x.at[place].set(value) for x, value in zip(theta[:4], step, strict=True)]
        return Seen(kept[0], kept[1], kept[2], kept[3], theta.number + 1)


def dirichlet_of(
    counts: Counts | SparseCounts, state_sizes: tuple[int, ...], observation_sizes: tuple[int, ...]
) -> Dirichlet | SparseDirichlet:
    """The BA-POMDP's posterior for a prior of either form."""
    if isinstance(counts, SparseCounts):
        return SparseDirichlet(counts, state_sizes, observation_sizes)
    return Dirichlet(counts, state_sizes, observation_sizes)


class ExpectedCounts(SplitDynamics):
    """The expected model of the prior counts and of the steps that were seen."""

    counts: SparseCounts
    seen: Seen
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        row, mine = self._row_T(s, a)
        return feature_vector(_draw(key, self.counts.T, row, mine, self.seen.s_next), self.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        row, mine = self._row_O(a, s_next)
        return feature_vector(_draw(key, self.counts.O, row, mine, self.seen.o), self.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        row, mine = self._row_T(s, a)
        return _log_prob(self.counts.T, row, mine, self.seen.s_next, flat_index(s_next, self.state_sizes))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        row, mine = self._row_O(a, s_next)
        return _log_prob(self.counts.O, row, mine, self.seen.o, flat_index(o, self.observation_sizes))

    def _row_T(self, s: State, a: Action) -> tuple[Int[Array, ""], Bool[Array, " memory"]]:
        """The row of T, and the steps that count in it."""
        i = flat_index(s, self.state_sizes)
        return a * int(np.prod(self.state_sizes)) + i, (self.seen.s == i) & (self.seen.a == a)

    def _row_O(self, a: Action, s_next: State) -> tuple[Int[Array, ""], Bool[Array, " memory"]]:
        i = flat_index(s_next, self.state_sizes)
        return a * int(np.prod(self.state_sizes)) + i, (self.seen.s_next == i) & (self.seen.a == a)


def _draw(
    key: Key[Array, ""],
    prior: Ragged,
    row: Int[Array, ""],
    mine: Bool[Array, " memory"],
    outcomes: Int[Array, " memory"],
) -> Int[Array, ""]:
    """In proportion to the counts: from the prior's, or what one of the steps led to."""
    key_prior, key_which = jr.split(key)
    running = jnp.cumsum(mine.astype(jnp.float32))
    u = jr.uniform(key_which) * (prior.total(row) + running[-1]) - prior.total(row)
    i = jnp.sum(running <= u, dtype=jnp.int32)  # the step in which the sum passes u
    last = jnp.max(jnp.where(mine, jnp.arange(mine.shape[0], dtype=jnp.int32), 0))
    return jnp.where((u >= 0) & jnp.any(mine), outcomes[jnp.minimum(i, last)], prior.draw(key_prior, row))


def _log_prob(
    prior: Ragged,
    row: Int[Array, ""],
    mine: Bool[Array, " memory"],
    outcomes: Int[Array, " memory"],
    outcome: Int[Array, ""],
) -> Float[Array, ""]:
    number = lambda some: jnp.sum(some, dtype=jnp.float32)
    count = prior.weight(row, outcome) + number(mine & (outcomes == outcome))
    return jnp.log(count) - jnp.log(prior.total(row) + number(mine))
