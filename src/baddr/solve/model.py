"""A finite POMDP as sparse tables: what the solver works on. Needs no JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy.sparse import csr_array

from baddr.errors import UserError

Sparse = Any  # a csr_array of SciPy's, of which type checkers know little
Values = Float64[np.ndarray, " S"]
Actions = Float64[np.ndarray, "A S"]

MOST_ENTRIES = 2 * 10**8  # non-zeros of all tables: about 3 GB


@dataclass(frozen=True, eq=False)
class SparseModel:
    """p(s' | s, a), p(o | a, s'), the expected reward R(s, a), p(s_0) and gamma.

    A transition that ends the episode is no entry of T, so that rows may sum to less than one: nothing is
    earned after it. Its own reward is part of R.
    """

    T: tuple[Sparse, ...]  # one for each action: [s, s']
    O: tuple[Sparse, ...]  # one for each action: [s', o]
    R: Actions
    start: Values
    discount: float
    start_is_exact: bool = True  # or estimated from draws of the first state

    @property
    def num_states(self) -> int:
        return self.R.shape[1]

    @property
    def num_actions(self) -> int:
        return len(self.T)

    @property
    def num_observations(self) -> int:
        return self.O[0].shape[1]

    @cached_property
    def predict(self) -> Sparse:
        """All T, transposed: [(a, s'), s]. Its product with a belief predicts s' for every action."""
        from scipy.sparse import hstack

        return csr_array(hstack([csr_array(T) for T in self.T], format="csr").T)

    @cached_property
    def shown(self) -> list[Int[np.ndarray, " n"]]:
        """The s' of each entry of O, for each action."""
        return [np.repeat(np.arange(O.shape[0]), np.diff(O.indptr)) for O in self.O]

    @cached_property
    def seen(self) -> "Seen":
        """All O, entry by entry, in the order of (a, o)."""
        entries = [O.tocoo() for O in self.O]
        a = np.repeat(np.arange(self.num_actions), [len(O.data) for O in entries])
        s_next, o = (
            np.concatenate([getattr(O, x) for O in entries]).astype(np.int64) for x in ("row", "col")
        )
        group = a * self.num_observations + o
        order = np.lexsort((s_next, group))
        p = np.concatenate([O.data for O in entries])
        places = (a * self.num_states + s_next)[order]
        return Seen(places, group[order], s_next[order], p[order])


@dataclass(frozen=True, eq=False)
class Seen:
    """The entries p(o | a, s') of all actions."""

    places: Int[np.ndarray, " n"]  # (a, s') as one number
    groups: Int[np.ndarray, " n"]  # (a, o) as one number
    states: Int[np.ndarray, " n"]  # s'
    p: Float64[np.ndarray, " n"]


def from_tables(
    T: Float64[np.ndarray, "A S S"],
    O: Float64[np.ndarray, "A S Z"],
    R: Float64[np.ndarray, "A S S"],
    start: Values,
    discount: float,
    terminal: Bool[np.ndarray, "A S S"] | None = None,
) -> SparseModel:
    """The model of dense tables T[a, s, s'], O[a, s', o] and R[a, s, s']."""
    on = T if terminal is None else np.where(terminal, 0.0, T)
    rows = lambda tables: tuple(csr_array(table) for table in tables)
    return SparseModel(rows(on), rows(O), np.sum(T * R, axis=2), start / start.sum(), float(discount))


def check(model: SparseModel, horizon: int | None) -> None:
    """Refuse what cannot be solved, before any work."""
    entries = sum(T.nnz for T in model.T) + sum(O.nnz for O in model.O)
    if entries > MOST_ENTRIES:
        raise too_large(model.num_states, model.num_actions, model.num_observations, f"{entries:,} entries")
    if horizon is None and not model.discount < 1:
        raise UserError(
            f"With a discount of {model.discount:g} and no horizon the value may be infinite; "
            "choose a discount below 1."
        )


def too_large(states: int, actions: int, observations: int, because: str) -> UserError:
    return UserError(
        f"This POMDP is too large to solve: {states:,} states, {actions:,} actions and {observations:,} "
        f"observations ({because}). A solution needs tables of all states, 20,000 or fewer."
    )


def stacked(blocks: Sequence[Sparse]) -> Sparse:
    """Tables one below the other."""
    from scipy.sparse import vstack

    return csr_array(vstack(blocks, format="csr"))
