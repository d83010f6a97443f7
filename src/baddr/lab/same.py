"""A resume is of the same experiment, or is refused: its runs would not be those of an uninterrupted one."""

import warnings
from typing import Any

from baddr.agents.kinds import kind_of, own_digests
from baddr.agents.life import Life
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.lab.chunk import Work, check_saved
from baddr.lab.experiment import AnyExperiment
from baddr.lab.sources import sources_of
from baddr.lab.spans import spans_in
from baddr.lab.ties import tie_of
from baddr.prng import STREAMS


def check_streams(folder: Folder) -> None:
    started = folder.read_experiment_manifest()
    if started["seeds"].get("streams") != STREAMS:
        raise UserError(
            f"The version of baddr that started {folder.path} drew other random numbers (commit "
            f"{started.get('commit') or 'unknown'}); resume with that one, or start another experiment."
        )


def check_grown(manifest: dict[str, Any], experiment: AnyExperiment, folder: Folder) -> None:
    """Refuse fewer runs or episodes than there are: config.toml was edited."""
    runs = spans_in(manifest["chunks"], folder.manifest).runs
    if manifest["seeds"].get("runs") != [0, runs]:
        raise UserError(f"{folder.manifest}: its chunks and its seeds belong to other runs.")
    for name, before, now in (
        ("runs", runs, experiment.runs),
        ("episodes", manifest.get("episodes", 0), experiment.episodes),
    ):
        if now < before:
            raise UserError(
                f"{folder.config} has {now} {name}, but {folder.manifest} has {before}: put back {before}."
            )


def check_same(
    manifest: dict[str, Any],
    folder: Folder,
    trust: bool,
    experiment: AnyExperiment,
    domain: Domain,
    life: Life,
) -> None:
    """Refuse to resume what would not be the same experiment, before anything is computed."""
    check_method(manifest, life, folder)
    changed = manifest.get("domain", domain.name) != domain.name
    if trust:
        if changed or own_digests(experiment.settings) != manifest.get("own", {}):
            warnings.warn(
                "a file of yours has changed: the rows from here on come from the new version.", stacklevel=2
            )
            manifest |= {"domain": domain.name, "own": own_digests(experiment.settings), "trusted": True}
        manifest["sources"] = sources_of(experiment)
    elif changed:
        raise UserError(f"{experiment.name} has changed since the experiment in {folder.path} started.")
    else:
        check_own(manifest, experiment, folder)
    work = Work(experiment, life, tie_of(manifest))
    for number, span in enumerate(spans_in(manifest["chunks"], folder.manifest)):
        if (note := folder.note(number)) is not None:
            check_saved(work, span, note, f"{folder.path}: the checkpoint of chunk {number}")


def check_method(manifest: dict[str, Any], life: Life, folder: Folder) -> None:
    """Refuse to resume with another search, which would draw other random numbers."""
    before = manifest.get("method", life.method)
    if before != life.method:
        raise UserError(
            f"The experiment in {folder.path} was started with {before} and would be resumed with "
            f"{life.method}: its runs would not be those of an uninterrupted one. Start another experiment."
        )


def check_own(manifest: dict[str, Any], experiment: AnyExperiment, folder: Folder) -> None:
    """Refuse to resume with a posterior, filter or planner of the user's own whose file has changed."""
    now = own_digests(experiment.settings)
    for group, digest in manifest.get("own", now).items():
        if now.get(group) != digest:
            kind = kind_of(group, experiment.settings.groups().get(group))
            raise UserError(f"{kind} has changed since the experiment in {folder.path} started.")
