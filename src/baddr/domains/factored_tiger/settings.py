"""Factored tiger's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass, replace
from typing import ClassVar

from baddr.core.checks import wrong
from baddr.domains.entry import Entry, Names, Preset, by_module
from baddr.domains.tiger import settings as tiger
from baddr.domains.tiger.settings import Doors


@dataclass(frozen=True)
class FactoredTigerSettings(Doors):
    """Tiger with irrelevant features, and the prior over it."""

    name: ClassVar[str] = "factored-tiger"
    irrelevant: int = 2
    """k: the number of irrelevant binary features."""

    def problems(self) -> list[str]:
        few = 0 <= self.irrelevant <= 20
        return self.problems_of_doors() + wrong((few, "domain.irrelevant must lie between 0 and 20"))


def names(settings: FactoredTigerSettings) -> Names:
    names = tiger.names(settings)
    irrelevant = [(f"irrelevant {i}", ("0", "1")) for i in range(1, 1 + settings.irrelevant)]
    return replace(names, state=(*names.state, *irrelevant))


def presets(settings: FactoredTigerSettings) -> dict[str, Preset]:
    return tiger.presets(settings, 2 ** (1 + settings.irrelevant))


ENTRY = Entry(
    summary="tiger with irrelevant state features",
    settings=FactoredTigerSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.factored_tiger.model"),
)
