"""A domain's true model as sparse tables, for the solver."""

from typing import Any

import numpy as np

from baddr.core.pomdp import Table
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.cassandra.sparse import file_model
from baddr.domains.domain import Domain
from baddr.domains.finite import Finite
from baddr.solve.listing import sparse_model
from baddr.solve.model import SparseModel, from_tables


def true_model(domain: Domain, settings: Any = None) -> tuple[SparseModel, int | None]:
    """The tables of the truth, and how many steps an episode has. A file's numbers come from the file."""
    pomdp = domain.pomdp
    if isinstance(settings, CassandraSettings):
        return file_model(settings), pomdp.horizon
    if isinstance(pomdp, Finite) and isinstance(pomdp.dynamics, Table):
        return finite_model(pomdp, pomdp.dynamics), pomdp.horizon
    return sparse_model(pomdp), pomdp.horizon


def finite_model(pomdp: Finite, D: Table) -> SparseModel:
    """Of a domain of tables."""
    by_action = lambda x: np.asarray(x, np.float64).swapaxes(0, 1)
    rows = lambda x: x / x.sum(axis=-1, keepdims=True)
    terminal = None if pomdp.terminal is None else np.asarray(pomdp.terminal).swapaxes(0, 1)
    T, O = rows(by_action(D.T)), rows(np.asarray(D.O, np.float64))
    start = np.asarray(pomdp.start, np.float64)
    return from_tables(T, O, by_action(pomdp.R), start, pomdp.discount, terminal)
