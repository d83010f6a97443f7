"""Groups of settings of which there are several kinds: `--planner.kind`, `--filter.kind`, `--posterior`.

A kind is a name in a list, or FILE.py:NAME of the user's own: a class or function whose keyword arguments
with plain defaults are its settings. If its first argument is `domain`, it is given the Domain. Needs no JAX,
but a user's own file does.
"""

import functools
import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from baddr.agents import AGENTS
from baddr.agents.base import AgentSettings
from baddr.core.filters import FILTERS
from baddr.errors import UserError, nearest
from baddr.planners import PLANNERS

KINDS: Mapping[str, Mapping[str, str]] = {"planner": PLANNERS, "filter": FILTERS, "posterior": {}}


def find(home: str) -> Any:
    """What MODULE:NAME stands for."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def agent_class(name: str) -> type[AgentSettings]:
    return find(AGENTS[nearest("agent", name, AGENTS)])


def settings_of(group: str, kind: str) -> Any:
    """The default settings of a kind."""
    if ".py:" in kind:
        return own(group, kind)
    if group == "posterior":
        raise UserError(f"--posterior must be FILE.py:NAME, not {kind!r}.")
    known = KINDS[group]
    if kind not in known and (kind.endswith(".py") or "/" in kind):
        raise UserError(f"--{group}.kind {kind!r}: a {group} of your own must be FILE.py:NAME.")
    return find(known[nearest(f"{group} kind", kind, known)])()


def kind_of(group: str, settings: Any) -> str:
    """The kind of some settings: the inverse of `settings_of`."""
    if hasattr(type(settings), "own_kind"):
        return type(settings).own_kind
    home = f"{type(settings).__module__}:{type(settings).__qualname__}"
    return next((kind for kind, found in KINDS[group].items() if found == home), home)


def kinds_in(values: Mapping[str, Any]) -> dict[str, str]:
    """The kinds that the tables of a config file name."""
    tables = {group: values[group] for group in KINDS if isinstance(values.get(group), Mapping)}
    return {group: str(table["kind"]) for group, table in tables.items() if "kind" in table}


def is_of(group: str, settings: Any) -> bool:
    """Whether a value can stand for a group: the settings of a kind, or what they are built into."""
    known = kind_of(group, settings) in KINDS[group] or hasattr(type(settings), "own_kind")
    return known or isinstance(settings, _wanted(group))


def kind_with(group: str, names: frozenset[str], settings: Any) -> str | None:
    """The kind that has settings of these names, where the one at hand has not: who sets
    planner.num-simulations wants PO-UCT."""
    named = lambda kind: {f.name for f in fields(kind)} if is_dataclass(kind) else set()
    if names <= named(settings):
        return None
    return next((kind for kind, home in KINDS[group].items() if names <= named(find(home))), None)


def with_kind(agent: AgentSettings, group: str, kind: str, presets: Iterable[Any] = ()) -> AgentSettings:
    """The agent with another kind of planner or filter: the preset's, where it has one. Otherwise a filter,
    or a built-in planner, keeps what both have."""
    groups = agent.groups()
    if group not in groups:
        raise UserError(f"This agent has no {group}; it has {', '.join(groups) or 'no settings'}.")
    ready = [value for value in presets if kind_of(group, value) == kind]
    old, new = groups[group], ready[0] if ready else settings_of(group, kind)
    if type(old) is type(new):
        return agent
    if ready:
        return replace(agent, **{group: new})  # type: ignore[type-var]
    if hasattr(type(new), "own_kind") and group != "filter":  # its words may mean something else
        return replace(agent, **{group: new})  # type: ignore[type-var]
    before = {f.name: getattr(old, f.name) for f in fields(old)}
    same = {f.name: before[f.name] for f in fields(new) if f.name in before}
    return replace(agent, **{group: replace(new, **same)})  # type: ignore[type-var]


def type_of(agent: AgentSettings) -> Any:
    """The agent's class with the kinds that it has in place of its type variables."""
    kind: Any = type(agent)
    parameters = getattr(kind, "__parameters__", ())
    hints = get_type_hints(kind)
    chosen = {hints[f.name]: type(getattr(agent, f.name)) for f in fields(kind)}
    found = tuple(chosen[p] for p in parameters if isinstance(p, TypeVar))
    return kind[found] if found else kind


def own_sources(agent: AgentSettings) -> list[Path]:
    """The files of the user's own that the agent needs."""
    sources = [getattr(type(group), "source", None) for group in agent.groups().values()]
    return [source for source in sources if source is not None]


def own_digests(agent: AgentSettings) -> dict[str, str]:
    """A hash of the content of each file of the user's own, by group."""
    groups = agent.groups().items()
    return {name: type(group).digest for name, group in groups if hasattr(type(group), "digest")}  # type: ignore[attr-defined]


def own(group: str, kind: str) -> Any:
    """The default settings of FILE.py:NAME."""
    from baddr.domains.own import read_source

    path, name, source = read_source(kind)
    return _own_class(group, path, name, source)()


@functools.cache  # the same class for the same content: experiments with it are then equal
def _own_class(group: str, path: Path, name: str, source: bytes) -> type:
    from baddr.domains.own import digest_of, load, settings_class

    thing = getattr(load(path, source), name, None)
    if not callable(thing):
        raise UserError(f"{path} has no class or function {name!r}.")
    takes_domain = next(iter(inspect.signature(thing).parameters), "") == "domain"
    base = settings_class(path, name, thing, but=("domain",))
    members = {
        "own_kind": f"{path}:{name}",
        "source": path,
        "digest": digest_of(name, source),
        "build": lambda self, domain=None: _made(group, path, thing, takes_domain, self, domain),
        "__module__": base.__module__,
        "__doc__": base.__doc__,
    }
    return dataclass(frozen=True)(type(name, (base,), members))


def _made(group: str, path: Path, thing: Any, takes_domain: bool, settings: Any, domain: Any) -> Any:
    """What the user's class or function gives, if that is what is wanted."""
    from baddr.domains.own import told

    try:
        made = thing(domain, **asdict(settings)) if takes_domain else thing(**asdict(settings))
    except UserError:
        raise
    except Exception as error:
        raise UserError(told(error, path, f"{thing.__name__}() raised")) from error
    if not isinstance(made, _wanted(group)):
        kind, name = type(made).__name__, thing.__name__
        raise UserError(f"{path}: {name} must return a baddr {group.title()}, not a value of type {kind}.")
    return made


def _wanted(group: str) -> Any:
    homes = {"planner": "core.planner:Planner", "filter": "core.filters:Filter"}
    return find(f"baddr.{homes.get(group, 'core.posterior:Posterior')}")
