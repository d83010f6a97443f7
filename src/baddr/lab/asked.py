"""Whether a folder holds the experiment that was asked for: folders of sweeps, suites and figures have many,
and somebody else may have written them. Needs no JAX."""

from dataclasses import fields, replace
from typing import Any

from baddr.agents.kinds import KINDS, kind_of, kinds_in
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.toml import read_toml
from baddr.lab.experiment import AnyExperiment, of_folder
from baddr.lab.prior import with_absolute_prior

SIZES = ("runs", "episodes")
CHOSEN = ("chunk_size", "keep_beliefs")  # what is left to the machine, beside simulations in flight


def kept_as_asked(folder: Folder, asked: AnyExperiment, instead: str, trust: bool = False) -> AnyExperiment:
    """The experiment in the folder, if it is the one that was asked for, but for its sizes. `instead`: what
    to do otherwise. Names come first: no file is executed that was not asked for."""
    check_names(folder, asked, instead)
    kept, asked = of_folder(folder, trust), with_absolute_prior(asked)
    if differ := difference(kept, asked):
        raise _another(folder, differ, instead)
    return kept


def check_names(folder: Folder, asked: AnyExperiment, instead: str) -> None:
    """Refuse another domain, agent or kind, by what config.toml says."""
    values, groups = read_toml(folder.config), asked.settings.groups()
    found = {"domain": values.get("name"), "agent": values.get("agent")} | kinds_in(values)
    wanted = {"domain": asked.name, "agent": asked.agent}
    wanted |= {group: kind_of(group, groups[group]) for group in KINDS if group in groups}
    differ = [name for name in found if found[name] != wanted.get(name)]
    if differ:
        raise _another(folder, differ, instead)


def difference(kept: AnyExperiment, asked: AnyExperiment) -> list[str]:
    """The names of what differs, but for sizes and what was left to the machine."""
    same = {name: getattr(kept, name) for name in (*SIZES, *CHOSEN)}
    asked = replace(asked, **same)
    planner, before = (e.settings.groups().get("planner") for e in (asked, kept))
    if getattr(planner, "in_flight", None) == 0 and hasattr(before, "in_flight"):
        asked = asked.changed(planner=replace(planner, in_flight=before.in_flight))
    values = lambda e: {f.name: getattr(e, f.name) for f in fields(e)}
    mine, theirs = values(kept), values(asked)
    return [name for name in mine if mine[name] != theirs[name]]


def check_sizes(folder: Folder, kept: AnyExperiment, asked: AnyExperiment, instead: str) -> None:
    """Refuse other runs or episodes."""
    if differ := [name for name in SIZES if getattr(kept, name) != getattr(asked, name)]:
        raise _another(folder, differ, instead)


def _another(folder: Folder, differ: list[str], instead: str) -> UserError:
    said: Any = {"settings": "settings of its agent", "domain": "domain"}
    what = ", ".join(said.get(name, name) for name in differ)
    return UserError(f"{folder.path} holds another experiment than was asked for ({what}); {instead}.")
