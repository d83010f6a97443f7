"""Several suites as one: parts that were computed apart, on several cores or machines. Needs no JAX."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from baddr.bench.folder import Suite
from baddr.bench.suite import Request, parts
from baddr.errors import UserError
from baddr.files.toml import to_toml
from baddr.files.writing import write

SIZES = ("preset", "runs", "episodes", "trainings", "seed")  # what all must have in common


def join(folder: Suite, sources: Sequence[Suite]) -> int:
    """A new suite of all their agents and domains; how many of its parts nobody has computed yet."""
    requests = [source.read_request() for source in sources]
    request = joined(requests, sources)
    for asked, source in zip(requests, sources, strict=True):
        source.check_kept(asked)
    manifests = [source.read_parts() for source in sources]
    folder.check_free()
    with folder.owned():
        write(folder.request, to_toml(asdict(request)).encode())
        for source in sources:
            _copy(source, folder)
        manifest = _manifest(manifests)
        missing = [
            part.name
            for part in parts(request)
            if part.name not in manifest["refused"] and not folder.is_computed(part)
        ]
        manifest["status"] = "running" if missing else "complete"
        folder.write_manifest(manifest)
    return len(missing)


def joined(requests: Sequence[Request], sources: Sequence[Suite]) -> Request:
    """What asks for all of these at once."""
    first = requests[0]
    for request, source in zip(requests, sources, strict=True):
        for name in SIZES:
            if getattr(request, name) != getattr(first, name):
                raise UserError(
                    f"{source.path} has {name} {getattr(request, name)}, and {sources[0].path} has "
                    f"{getattr(first, name)}: only suites of the same sizes can be joined."
                )
    agents = _once(name for request in requests for name in request.chosen_agents)
    domains = _once(name for request in requests for name in request.chosen_domains)
    return replace(first, agents=agents, domains=domains)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _copy(source: Suite, folder: Suite) -> None:
    """Its whole parts, optima and outside agents: those that are not there yet."""
    whole = [p.name for p in parts(source.read_request()) if source.is_computed(p)]
    for name in whole:
        if not (folder.path / "parts" / name).exists():
            shutil.copytree(source.path / "parts" / name, folder.path / "parts" / name)
    for kind in ("optima", "outside"):
        for path in sorted((source.path / kind).glob("*.*")):
            if not (folder.path / kind / path.name).exists():
                write(folder.path / kind / path.name, path.read_bytes())


def _manifest(manifests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What each has noted of its parts. The first that has a part is the one whose part was copied."""
    found = dict(manifests[0])
    for kind in ("parts", "refused", "sources"):
        every = [manifest.get(kind, {}).items() for manifest in reversed(manifests)]
        found[kind] = {name: x for entries in every for name, x in entries}
    for name in ("device", "baddr"):
        found[name] = ", ".join(_once(str(m[name]) for m in manifests if name in m))
    return found
