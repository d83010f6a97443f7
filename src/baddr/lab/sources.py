"""Files of the user's own, which are executed: an experiment records them, and its folder is held to that.
Needs no JAX."""

import hashlib
from collections.abc import Mapping
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
    return {
        name: {"path": str(path), "sha256": _hash_of(path.read_bytes())}
        for name, path in found.items()
        if path is not None
    }


def check_sources(values: Mapping[str, Any], manifest: Mapping[str, Any], folder: Folder) -> None:
    """Refuse a config.toml that names a FILE.py which is not the one that the experiment was started with."""
    named = {"domain": values.get("name", ""), **kinds_in(values)}
    for group, name in named.items():
        if isinstance(name, str) and is_python(name):
            _check_source(group, name, manifest, folder)


def _check_source(group: str, name: str, manifest: Mapping[str, Any], folder: Folder) -> None:
    from baddr.domains.own import digest_of, read_source

    path, thing, source = read_source(name)
    record = manifest.get("sources", {}).get(group)
    if isinstance(record, Mapping):
        known, same = record.get("path") == str(path), record.get("sha256") == _hash_of(source)
    else:  # older manifests had shorter hashes
        short = digest_of(thing or "make_domain" if group == "domain" else thing, source)
        before = manifest.get("domain") if group == "domain" else manifest.get("own", {}).get(group)
        known, same = before is not None, before in (short, f"{path.stem}-{short}")
    otherwise = "`--trust` executes it all the same"
    if not known or path.is_relative_to(folder.path.absolute()):
        raise UserError(
            f"{folder.config} names {name}, which its experiment was not started with: nothing was executed; "
            f"{otherwise}."
        )
    if not same:
        raise UserError(f"{name} has changed since the experiment in {folder.path} started; {otherwise}.")


def _hash_of(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()
