"""What manifest.json holds, checked when it is read: somebody else may have written it. Needs no JAX."""

from typing import Any

from baddr.errors import StorageError, shown

# What the entries that are read are; others may be anything.
TYPES: dict[str, Any] = {
    "status": str,
    "domain": str,
    "settings": str,
    "method": dict,
    "own": dict,
    "sources": dict,
    "seeds": dict,
    "episodes": int,
    "chunks": list,
    "table": list,
    "track": list,
    "wall_seconds": (int, float),
    "failures": list,
    "prior": (dict, type(None)),
    "parts": dict,
    "refused": dict,
    "started": str,
    "cpu_seconds": (int, float),
}
NEEDED = ("status", "seeds", "chunks", "wall_seconds")  # of an experiment


def check_types(values: Any, path: object) -> dict[str, Any]:
    """The manifest, if its entries are of their types."""
    if not isinstance(values, dict):
        raise StorageError(f"{path} is not a manifest: it must be a JSON object.")
    for name, kind in TYPES.items():
        value = values.get(name)
        if name in values and (not isinstance(value, kind) or isinstance(value, bool)):
            raise StorageError(f"{path} is not a manifest of baddr: {name} cannot be {shown(value)}.")
    return values


def check_whole(manifest: dict[str, Any], path: object) -> dict[str, Any]:
    """The manifest, if it has all that a resume of an experiment needs."""
    for name in NEEDED:
        if name not in manifest:
            raise StorageError(f"{path} is not the manifest of an experiment: it has no {name}.")
    return manifest


def check_parts(manifest: dict[str, Any], path: object, numbers: tuple[str, ...]) -> dict[str, Any]:
    """The manifest, if it has these numbers of each part of a suite or of figures."""
    for name, part in manifest.get("parts", {}).items():
        if not isinstance(part, dict) or any(type(part.get(n)) not in (int, float) for n in numbers):
            raise StorageError(f"{path} is not a manifest of baddr: part {shown(name)} has no {numbers[0]}.")
    return manifest


def gaps_of(manifest: dict[str, Any]) -> list[float]:
    """How far the prior's networks are from their simulators; none where that was not measured."""
    gaps = (manifest.get("prior") or {}).get("gap")
    return [x for x in gaps if isinstance(x, int | float)] if isinstance(gaps, list) else []
