"""Several experiments, one after the other: all are sized before the first one starts."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from baddr.domains.catalog import DOMAINS, entry
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.lab.build import build_domain
from baddr.lab.experiment import AnyExperiment, preset, to_config
from baddr.lab.limits import BYTES_PER_ROW, gib
from baddr.lab.runner import LOCAL, sized


class Sized(NamedTuple):
    """A part that is to be computed, and what it is called."""

    name: str
    experiment: AnyExperiment
    domain: Domain


def is_preset(experiment: AnyExperiment) -> bool:
    """Whether it is one of ours, or the suite's, but for its runs, episodes and seed: each run fits then."""
    if experiment.name not in DOMAINS:
        return False
    found, sizes = entry(experiment.name), {x: getattr(experiment, x) for x in ("runs", "episodes", "seed")}
    ours = lambda settings: preset(experiment.name, experiment.agent, experiment.preset, settings)
    return experiment in [replace(ours(x), **sizes) for x in (found.settings, found.in_suite)]


def with_domains(parts: Iterable[tuple[str, AnyExperiment]]) -> Iterator[Sized]:
    """The parts with their domains, each of which is built once."""
    built: dict[str, Domain] = {}
    for name, experiment in parts:
        key = repr((experiment.name, experiment.domain))
        if key not in built:
            built[key] = build_domain(experiment)
        yield Sized(name, experiment, built[key])


def refuse_parts(parts: Iterable[Sized], engine: Any = None) -> None:
    """Refuse, by its name, the first part that does not fit the memory or would not end. Parts that differ by
    their seed are alike."""
    seen: set[bytes] = set()
    with (engine or LOCAL).opened() as opened:
        place = opened.place()
    for name, experiment, domain in parts:
        alike = to_config(replace(experiment, seed=0))
        if alike not in seen:
            seen.add(alike)
            try:
                sized(experiment, domain, place)
            except UserError as error:
                raise UserError(f"{name}: {error}") from error


def refuse_disk_of_all(experiments: Iterable[AnyExperiment], free: int) -> None:
    """The rows of all parts must fit a disk with so many bytes free."""
    need = BYTES_PER_ROW * sum(x.runs * x.episodes for x in experiments)
    if need > free:
        raise UserError(
            f"All parts produce {gib(need)} of rows, and the disk has {gib(free)} free: choose another disk "
            "with --out, or fewer runs or episodes."
        )
