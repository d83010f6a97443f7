"""Result folders: the names of new ones, what is in old ones, and what an interruption leaves."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from baddr.domains.catalog import short_name
from baddr.errors import ClusterError, StorageError
from baddr.files.store import Folder
from baddr.files.toml import read_toml
from baddr.lab.experiment import AnyExperiment


def numbered(stem: str) -> Path:
    """results/STEM-N with the first free N."""
    number = 1
    while (Path("results") / f"{stem}-{number}").exists():
        number += 1
    return Path("results") / f"{stem}-{number}"


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
        message = f"baddr: interrupted; all work is kept. Resume with: baddr resume {folder.path}"
        print(message, file=sys.stderr)
        sys.exit(130)
    except (StorageError, ClusterError) as error:
        wholes = (folder.path / "reproduce.toml", folder.path / "suite.toml")
        if not folder.config.exists() and not any(path.exists() for path in wholes):
            raise
        raise type(error)(f"{error} Resume with: baddr resume {folder.path}") from error
