"""Domains of sparse tables: a finite POMDP with many states, and the prior of `from_tables` about it."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from scipy.sparse import csr_array, vstack

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State
from baddr.domains.cassandra.tables import SparseTables
from baddr.domains.domain import Domain
from baddr.domains.entry import Names
from baddr.domains.finite import Prior
from baddr.domains.tables import KNOWN
from baddr.posteriors.sparse import Ragged, SparseTable, ragged
from baddr.posteriors.sparse_dirichlet import SparseCounts
from baddr.prng import categorical


class SparseFinite(POMDP):
    """`domains.finite.Finite` of sparse tables: one state feature and one observation feature."""

    dynamics: Dynamics
    R: Float[Array, "A S"]
    others: Ragged  # rewards of some s', in place of R(s, a); rows by (a, s)
    start: Float[Array, " S"]
    ends: Bool[Array, " S"]
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return categorical(key, self.start)[None]

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.zeros((1,), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        found, i = self.others.find(a * self.start.shape[0] + s[0], s_next[0])
        return jnp.where(found, self.others.weights[i], self.R[a, s[0]])

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return self.ends[s[0]] | self.ends[s_next[0]]


@dataclass(frozen=True)
class Episodes:
    """What a file does not say."""

    discount: float
    horizon: int
    prior: Prior


def sparse_domain(model: SparseTables, episodes: Episodes) -> Domain:
    """The file's POMDP. The prior counts are those of `from_tables`; there are no draws of simulators."""
    A, S, Z = model.sizes
    sizes, prior = ((S,), (Z,)), episodes.prior
    rewards = csr_array(vstack(model.R.others, format="csr"))
    pomdp = SparseFinite(
        dynamics=SparseTable(_rows(model.T), _rows(model.O), *sizes),
        R=jnp.asarray(model.R.rows, jnp.float32),
        others=ragged(rewards.indptr, rewards.indices, rewards.data, S),
        start=jnp.asarray(model.start / model.start.sum(), jnp.float32),
        ends=jnp.asarray(np.zeros(S, bool) if model.ends is None else model.ends),
        discount=float(episodes.discount),
        horizon=episodes.horizon,
        state_sizes=sizes[0],
        observation_sizes=sizes[1],
        num_actions=A,
    )
    counts = SparseCounts(_counts("T", model.T, prior), _counts("O", model.O, prior))
    return Domain(
        name="sparse tables",
        pomdp=pomdp,
        expected_simulator=SparseTable(counts.T, counts.O, *sizes),
        counts=counts,
        learned=prior.learned,
        names=Names((("state", model.states),), model.actions, (("observation", model.observations),)),
    )


def _counts(half: str, tables, prior: Prior) -> Ragged:
    """total * ((1 - noise) * truth + noise * uniform), where that half is learned."""
    learned = half in prior.learned
    total, noise = (prior.total, prior.noise) if learned else (KNOWN, 0.0)
    return _rows(tables, total * (1 - noise), total * noise / tables[0].shape[1])


def _rows(tables, scale: float = 1.0, floor: float = 0.0) -> Ragged:
    """The tables of all actions, one below the other; rows divided by their sums."""
    table = csr_array(vstack(tables, format="csr"))
    lengths, columns = np.diff(table.indptr), int(tables[0].shape[1])
    data = table.data / np.repeat(table.sum(axis=1), lengths)
    if scale == 0:  # nothing of the truth: no entry
        return ragged(np.zeros(len(lengths) + 1, int), table.indices[:0], data[:0], columns, floor)
    return ragged(table.indptr, table.indices, scale * data, columns, floor)
