"""Files of the user's own, which are executed: an experiment records them, and its folder is held to that.
Needs no JAX."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from baddr.agents.kinds import kinds_in
from baddr.domains.catalog import entry, is_python
from baddr.errors import UserError
from baddr.files.store import Folder


def sources_of(experiment: Any) -> dict[str, dict[str, str]]:
    """The path and the hash of the content of each file of the user's own: a manifest's record of them."""
    found = {"domain": entry(experiment.name).source}
    groups = experiment.settings.groups().items()
    found |= {name: getattr(type(group), "source", None) for name, group in groups}
    return {name: _record(path) for name, path in found.items() if path is not None}


def sources_of_domains(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The same of some domains, by name."""
    found = {name: entry(name).source for name in names}
    return {name: _record(path) for name, path in found.items() if path is not None}


def _record(path: Path) -> dict[str, str]:
    return {"path": str(path), "sha256": _hash_of(path.read_bytes())}


def check_sources(values: Mapping[str, Any], manifest: Mapping[str, Any], folder: Folder) -> None:
    """Refuse a config.toml that names a FILE.py which is not the one that the experiment was started with."""
    named = {"domain": values.get("name", ""), **kinds_in(values)}
    for group, name in named.items():
        if isinstance(name, str) and is_python(name):
            _check_source(group, name, manifest, folder.config)


def check_sources_of_domains(names: Iterable[str], manifest: Mapping[str, Any], request: Path) -> None:
    """The same of the domains that a folder of several experiments names, in this file."""
    for name in names:
        if is_python(name):
            _check_source(name, name, manifest, request)


def _check_source(group: str, name: str, manifest: Mapping[str, Any], config: Path) -> None:
    from baddr.domains.own import digest_of, read_source

    path, thing, source = read_source(name)
    record = manifest.get("sources", {}).get(group)
    if isinstance(record, Mapping):
        known, same = record.get("path") == str(path), record.get("sha256") == _hash_of(source)
    else:  # older manifests had shorter hashes
        short = digest_of(thing or "make_domain" if group == "domain" else thing, source)
        before = manifest.get("domain") if group == "domain" else manifest.get("own", {}).get(group)
        known, same = before is not None, before in (short, f"{path.stem}-{short}")
    otherwise = "to execute it anyway, use `--trust`"
    if not known or path.is_relative_to(config.parent.absolute()):
        raise UserError(
            f"{config} names {name}, which its experiment was not started with: nothing was executed; "
            f"{otherwise}."
        )
    if not same:
        raise UserError(f"{name} has changed since the experiment in {config.parent} started; {otherwise}.")


def _hash_of(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()
