"""A finite POMDP from a file in Cassandra's format, and a prior about it.

States, actions and observations are numbered as the file lists them, from 0. Nothing in the format ends
an episode: the horizon does. There is no first observation either: agents that want one see number 0.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from baddr.domains.cassandra.format import read
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.cassandra.view import RENDERER
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.finite import Prior, from_tables


@takes_fields_of(CassandraSettings)
def make_domain(settings: CassandraSettings) -> Domain:
    """The file's POMDP; its discount where `discount` is negative. The prior is that of `from_tables`."""
    path, model = Path(settings.path), read(settings.path)
    domain = from_tables(
        model.T.swapaxes(0, 1),
        model.O,
        model.R.swapaxes(0, 1),
        model.start,
        model.discount if settings.discount < 0 else settings.discount,
        horizon=settings.horizon,
        prior=Prior(settings.prior_total, settings.prior_noise, settings.learned),
        names=(model.states, model.actions, model.observations),
    )
    # Trained priors are kept under this name: another content of the file is another domain.
    name = f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    return replace(domain, name=name, renderer=RENDERER)
