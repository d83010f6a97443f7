"""The domains, by name: one door for those of this package and for those in files. Needs no JAX."""

import importlib
from dataclasses import replace
from pathlib import Path

from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.entry import Entry, Feature, Names, Preset
from baddr.errors import UserError, nearest

__all__ = ["DOMAINS", "Entry", "Feature", "Names", "Preset", "entry", "is_python", "nearest", "short_name"]

# A domain is a folder: settings.py (no JAX), model.py, view.py. To add one, add its name here.
FOLDERS = (
    "baddr.domains.tiger",
    "baddr.domains.road_racing",
    "baddr.domains.collision_avoidance",
    "baddr.domains.gridverse",
    "baddr.domains.factored_tiger",
    "baddr.domains.sysadmin",
    "baddr.domains.rock_sample",
    "baddr.domains.tag",
    "baddr.domains.t_maze",
    "baddr.domains.light_dark",
    "baddr.domains.battleship",
    "baddr.domains.maintenance",
)


def load(folder: str) -> dict[str, Entry]:
    """The domain of a folder, under its name."""
    found = importlib.import_module(f"{folder}.settings").ENTRY
    return {found.settings.name: found}


DOMAINS: dict[str, Entry] = {name: entry for folder in FOLDERS for name, entry in load(folder).items()}


def entry(name: str) -> Entry:
    """The domain that a name stands for: a known one, FILE.pomdp, FILE.pomdpx, or FILE.py:FUNCTION.

    A file is remembered by its absolute path, so that its results can be resumed from anywhere.
    """
    if name == "cassandra":
        return load("baddr.domains.cassandra")[name]
    if name.lower().endswith((".pomdp", ".pomdpx")):
        return _cassandra(name)
    if is_python(name):
        from baddr.domains.own import own_entry

        return own_entry(name)
    if name not in DOMAINS and ("/" in name or Path(name).exists()):
        raise UserError(
            f"{name!r} is not a domain; a file must be FILE.pomdp, FILE.pomdpx, or FILE.py:FUNCTION that "
            "returns "
            "a Domain."
        )
    return DOMAINS[nearest("domain", name, DOMAINS)]


def _cassandra(name: str) -> Entry:
    path = Path(name).absolute()
    if not path.is_file():
        raise UserError(f"There is no file {name}.")
    return replace(entry("cassandra"), summary=path.name, settings=CassandraSettings(path=str(path)))


def is_python(name: str) -> bool:
    """Whether a domain's name is FILE.py or FILE.py:FUNCTION."""
    return name.endswith(".py") or ".py:" in name


def short_name(name: str) -> str:
    """A domain's name without the folders of its file, and without a function called make_domain."""
    return Path(name).name.removesuffix(":make_domain")
