"""A file as the solver's sparse tables, in the file's own float64. Needs no JAX."""

import numpy as np
from scipy.sparse import csr_array, diags_array

from baddr.domains.cassandra.format import read_sparse
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.solve.model import SparseModel


def file_model(settings: CassandraSettings) -> SparseModel:
    """The model, with the discount of the settings where they have one. Nothing is earned after an end."""
    model = read_sparse(settings.path)
    discount = model.discount if settings.discount < 0 else settings.discount
    R, T = model.R.expected(model.T), model.T
    if model.ends is not None:
        on = diags_array((~model.ends).astype(float))
        T, R = tuple(csr_array(on @ table @ on) for table in T), np.where(model.ends, 0.0, R)
    return SparseModel(T, model.O, R, model.start / model.start.sum(), float(discount))


def horizon_to_solve(settings: CassandraSettings, model: SparseModel) -> int | None:
    """None where a file is solved for ever, which takes one value function and not one for each step. With a
    discount of 1 that may be worth anything: then it is solved for its episodes."""
    return None if model.discount < 1 else settings.horizon
