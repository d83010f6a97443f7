"""The settings of a .pomdp file, its names and presets. Needs no JAX."""

import warnings
from dataclasses import dataclass
from typing import Literal

from baddr.core.checks import wrong
from baddr.domains.entry import FILE_DEPTH, Entry, Names, Preset, by_module, file_presets, returns_range


@dataclass(frozen=True)
class CassandraSettings:
    """A POMDP from a file in Cassandra's format, and the prior over it."""

    path: str = ""
    """The .pomdp file."""
    horizon: int = 50
    """K: the most steps in an episode. End states (E:) end it sooner."""
    discount: float = -1.0
    """The discount factor gamma. -1: the file's."""
    prior_total: float = 10.0
    """The prior's total count for each row."""
    prior_noise: float = 0.5
    """How far the prior's expectation is from the file's model. 0: the file's model. 1: uniform."""
    learned: Literal["TO", "T", "O"] = "TO"
    """What the agent must learn: transitions (T), observations (O) or both. It knows the rest."""

    @property
    def name(self) -> str:
        return self.path or "cassandra"

    def problems(self) -> list[str]:
        return wrong(
            (self.path != "", "domain.path must name a .pomdp file"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
            (self.discount == -1 or 0 <= self.discount <= 1, "domain.discount must lie in [0, 1], or be -1"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.prior_noise <= 1, "domain.prior-noise must lie in [0, 1]"),
            (self.learned in ("TO", "T", "O"), "domain.learned must be TO, T or O"),
        )


def names(settings: CassandraSettings) -> Names:
    from baddr.domains.cassandra.format import read_header  # which takes NumPy a moment to import

    header = read_header(settings.path)
    return Names((("state", header.states),), header.actions, (("observation", header.observations),))


def presets(settings: CassandraSettings) -> dict[str, Preset]:
    """Explores by the range of the file's returns."""
    from baddr.domains.cassandra.format import read_sparse

    if not settings.path:
        return file_presets(1.0, 1)
    with warnings.catch_warnings(action="ignore"):  # what it warns of is said when the domain is made
        model = read_sparse(settings.path)
    discount = model.discount if settings.discount < 0 else settings.discount
    depth = min(FILE_DEPTH, settings.horizon)
    low, high = model.R.range()
    u = returns_range(high - low, discount, depth)
    return file_presets(u, len(model.states))


ENTRY = Entry(
    summary="a finite POMDP from a file in Cassandra's format",
    settings=CassandraSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.cassandra.model"),
)
