"""Result folders: the names of new ones, what is in old ones, and what an interruption leaves."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from baddr.domains.catalog import short_name
from baddr.errors import ClusterError, StorageError, UserError
from baddr.files.store import Folder
from baddr.files.toml import read_toml
from baddr.files.writing import file_name
from baddr.lab.experiment import AnyExperiment


@contextmanager
def new_folder(out: Path | None, stem: str, dry_run: bool = False) -> Iterator[Path]:
    """The folder that is named, or results/STEM-N with the first free N. It is there from now on, so that two
    programs that start at once have two; where nothing came into it, it goes again."""
    if out is not None or dry_run:
        yield out or _numbered(stem, 1)
        return
    results, number = Path("results"), 1
    was_there = results.exists()
    results.mkdir(exist_ok=True)
    while True:
        path = _numbered(stem, number)
        try:
            path.mkdir()
            break
        except FileExistsError:
            number += 1
    try:
        yield path
    finally:
        with suppress(OSError):  # there is something in it
            path.rmdir()
            if not was_there:
                results.rmdir()


def _numbered(stem: str, number: int) -> Path:
    return Path("results") / f"{file_name(stem)}-{number}"


def stem_of(experiment: AnyExperiment) -> str:
    """DOMAIN-AGENT."""
    return f"{short_name(experiment.name).replace(':', '-')}-{experiment.agent}"


def config_of(folder: Folder) -> dict[str, Any]:
    """What its config.toml says."""
    folder.check_existing()
    return read_toml(folder.config)


def interruptible(folder: Folder, work: Callable[[], Any]) -> Any:
    """What the work returns. Where it is interrupted, or cannot finish, say how to resume it."""
    from baddr.lab.runner import Interrupted

    try:
        return work()
    except Interrupted:
        message = f"baddr: interrupted; all work is kept. Resume with: {_resume(folder)}"
        print(message, file=sys.stderr)
        sys.exit(130)
    except (StorageError, ClusterError) as error:
        if not _can_resume(folder):
            raise
        raise type(error)(f"{error} Resume with: {_resume(folder)}") from error


def _resume(folder: Folder) -> str:
    """The command, as a shell takes it."""
    return f"baddr resume {shlex.quote(str(folder.path))}"


def _can_resume(folder: Folder) -> bool:
    """Whether there is something that a resume could read."""
    if any((folder.path / name).exists() for name in ("reproduce.toml", "suite.toml")):
        return True
    try:
        folder.check_existing()
        read_toml(folder.config)
        folder.read_experiment_manifest()
    except (UserError, OSError):
        return False
    return True
