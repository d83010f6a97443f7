"""Things on disk that can be made again: trained priors, solutions and compiled code. Needs no JAX."""

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from baddr.errors import StorageError

LARGEST_COMPILED = 4 << 30  # bytes of compiled code: the oldest goes first


def root() -> Path:
    """$BADDR_CACHE, or the user's cache folder; a temporary one for who has no home."""
    if given := os.environ.get("BADDR_CACHE"):
        return Path(given)
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        home = tempfile.gettempdir()
    return Path(home) / "baddr"


@contextmanager
def optional(what: str) -> Iterator[None]:
    """What can be made again need not be kept: where it cannot be written, that is said, and no more."""
    try:
        yield
    except StorageError as error:
        warnings.warn(f"{what} is not kept on disk for the next time: {error}", stacklevel=3)


def is_writable(folder: Path) -> bool:
    """Whether files can be kept there; it is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def bound(folder: Path, most: int = LARGEST_COMPILED) -> int:
    """Delete what was not used for longest, until the folder has a tenth to spare; how many bytes went."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):  # another program deletes, too
                stat = entry.stat()
                found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, entry.path))
    total, freed = sum(size for _, size, _ in found), 0
    if total <= most:
        return 0
    for _, size, path in sorted(found):
        if total - freed <= 0.9 * most:
            break
        with suppress(OSError):
            os.unlink(path)
            freed += size
    return freed


def compiled_code() -> Path:
    return root() / "compiled"


def priors() -> Path:
    return root() / "priors"


def solutions() -> Path:
    return root() / "solutions"


def size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def stored_priors() -> list[dict[str, Any]]:
    """What is known about each trained prior, oldest first; unreadable entries are passed over."""
    entries = []
    for path in priors().glob("*.json"):
        try:
            about = json.loads(path.read_text())
            about["bytes"] = path.stat().st_size + path.with_suffix(".npz").stat().st_size
            network, pretrain = about["settings"]["network"], about["settings"]["pretrain"]
            shown = network["hidden"], network["dropout"], pretrain["num_networks"], pretrain["batches"]
            if shown and [*about["gap"], about["created"]]:  # it has all that `baddr cache` says of it
                entries.append({"name": path.stem} | about)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return sorted(entries, key=lambda entry: entry.get("created", ""))


def clear() -> int:
    """Delete all of it; the number of bytes that are free again."""
    freed = size(root())
    for folder in (compiled_code(), priors(), solutions()):
        shutil.rmtree(folder, ignore_errors=True)
    return freed - size(root())
