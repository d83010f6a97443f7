"""A finite POMDP from a file in Cassandra's format or as POMDPX, and a prior about it.

States, actions and observations are numbered as the file lists them, from 0. The horizon ends an episode, or
one of the file's end states. There is no first observation: agents that want one see number 0.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from baddr.domains.cassandra.format import dense, read_sparse
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.cassandra.tables import SparseTables
from baddr.domains.cassandra.view import RENDERER
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.finite import Prior, from_tables
from baddr.domains.sparse import Episodes, sparse_domain

LARGEST_COUNTS = 2**16  # numbers of both tables: of more, what is 0 is left out


@takes_fields_of(CassandraSettings)
def make_domain(settings: CassandraSettings) -> Domain:
    """The file's POMDP; its discount where `discount` is negative. The prior is that of `from_tables`."""
    path, model = Path(settings.path), read_sparse(settings.path)
    prior = Prior(settings.prior_total, settings.prior_noise, settings.learned)
    discount = model.discount if settings.discount < 0 else settings.discount
    domain = tables_domain(model, Episodes(discount, settings.horizon, prior))
    # Trained priors are kept under this name: another content of the file is another domain.
    name = f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    return replace(domain, name=name, renderer=RENDERER)


def tables_domain(model: SparseTables, episodes: Episodes) -> Domain:
    """The domain of some tables: of dense ones where they are small."""
    return _dense_domain(model, episodes) if is_small(model) else sparse_domain(model, episodes)


def is_small(model: SparseTables) -> bool:
    """Whether every particle can have counts of its own for all that may happen."""
    A, S, Z = model.sizes
    return A * S * (S + Z) <= LARGEST_COUNTS


def _dense_domain(model: SparseTables, episodes: Episodes) -> Domain:
    tables, ends = dense(model), model.ends
    return from_tables(
        tables.T.swapaxes(0, 1),
        tables.O,
        tables.R.swapaxes(0, 1),
        tables.start,
        episodes.discount,
        horizon=episodes.horizon,
        terminal=None if ends is None else terminal(ends, len(model.actions)),
        prior=episodes.prior,
        names=(model.states, model.actions, model.observations),
    )


def terminal(ends: np.ndarray, num_actions: int) -> np.ndarray:
    """[s, a, s']: steps into an end state, or out of one."""
    return np.broadcast_to((ends[:, None] | ends[None, :])[:, None, :], (len(ends), num_actions, len(ends)))
