"""Things on disk that can be made again: trained priors, solutions and compiled code. Needs no JAX."""

import json
import os
import shutil
from pathlib import Path
from typing import Any


def root() -> Path:
    """$BADDR_CACHE, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BADDR_CACHE") or Path(home) / "baddr")


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
            entries.append({"name": path.stem} | about)
        except (OSError, ValueError):
            continue
    return sorted(entries, key=lambda entry: entry.get("created", ""))


def clear() -> int:
    """Delete all of it; the number of bytes that are free again."""
    freed = size(root())
    for folder in (compiled_code(), priors(), solutions()):
        shutil.rmtree(folder, ignore_errors=True)
    return freed - size(root())
