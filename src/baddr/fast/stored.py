"""Trained priors on disk: NAME.npz with the arrays, NAME.json with the settings and the arrays' checksum.

The JSON file is written last and both are renamed into place, so an entry is whole or not there; one whose
checksum or settings do not agree is not found, and trained again.
"""

import hashlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baddr.files import cache
from baddr.files.writing import file_name, write

Arrays = dict[str, np.ndarray]


def canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def entry_name(settings: Mapping[str, Any]) -> str:
    domain = file_name(str(settings.get("domain", "prior")))
    return f"{domain}-{hashlib.sha256(canonical(settings).encode()).hexdigest()}"


def save(
    path: Path, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray], gap: Sequence[float]
) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    about = {
        "settings": dict(settings),
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "gap": [float(x) if np.isfinite(x) else None for x in gap],
    }
    with cache.optional("a trained prior"):
        write(path.with_name(path.name + ".npz"), buffer.getvalue())
        write(path.with_name(path.name + ".json"), json.dumps(about, indent=1).encode())


def load(path: Path, settings: Mapping[str, Any]) -> Arrays | None:
    """The arrays at `path`, or None where they are missing, damaged or another one's."""
    try:
        about = json.loads(path.with_name(path.name + ".json").read_text())
        content = path.with_name(path.name + ".npz").read_bytes()
        whole = about["sha256"] == hashlib.sha256(content).hexdigest()
        if not whole or canonical(about["settings"]) != canonical(settings):
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, KeyError, TypeError):
        return None
