"""A .pomdp file as sparse tables, in the file's own float64. Needs no JAX."""

from baddr.domains.cassandra.format import read
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.solve.model import SparseModel, from_tables


def file_model(settings: CassandraSettings) -> SparseModel:
    """The model, with the discount of the settings where they have one."""
    model = read(settings.path)
    discount = model.discount if settings.discount < 0 else settings.discount
    return from_tables(model.T, model.O, model.R, model.start, discount)
