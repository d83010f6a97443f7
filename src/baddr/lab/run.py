"""`baddr.run`: an experiment from Python, in one call."""

import contextlib
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from baddr.agents.kinds import KINDS, is_of
from baddr.domains.catalog import DOMAINS, entry
from baddr.errors import UserError
from baddr.files.settings import problems, refuse
from baddr.files.store import Folder, load_results
from baddr.files.toml import merge
from baddr.lab.experiment import AnyExperiment, asked_in, merged, preset
from baddr.lab.progress import progress as shown

OWN = "own"  # the name of an agent that is given as a value


def run(
    domain: Any = "tiger",
    agent: Any = "baddr",
    *,
    runs: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Learn and act, and return the table of episodes, as `load_results` does.

    `domain` is a name, as on the command line, or a `Domain`; `agent` is a name or an `Agent`. Settings have
    the names of their flags, dotted (`**{"planner.num_simulations": 256, "domain.accuracy": 0.9}`), as
    tables (`planner={"depth": 3}`) or as values (`planner=PoUct(...)`); what is not set is the preset's
    (`preset="quick"`). Equal settings give the rows that `baddr run` gives.

    Results stay in the folder `out`, if one is named. One of a domain or an agent that was given as a value
    cannot be resumed: no file says what it was.
    """
    chosen = {"runs": runs, "episodes": episodes, "seed": seed}
    given = {name: value for name, value in chosen.items() if value is not None}
    return run_named(domain, agent, given | settings, out, progress)


def run_named(
    domain: Any, agent: Any, settings: dict[str, Any], out: str | Path | None = None, progress: bool = False
) -> dict[str, Any]:
    """`run` with all settings in one table, those of the domain (`domain`) among them."""
    _check_agent(agent)
    with _named(domain) as name, _folder(out) as folder:
        experiment = _experiment(name, agent, settings)
        experiment.check()
        folder.check_new()
        failures = _start(experiment, folder, None if isinstance(agent, str) else agent, progress)
        for failure in failures:
            warnings.warn(
                f"run {failure.run} failed in episode {failure.episode}: its belief (or its weights) holds a "
                "NaN or an infinity; its earlier episodes are kept.",
                stacklevel=3,
            )
        return load_results(folder.path)


def _check_agent(agent: Any) -> None:
    if not isinstance(agent, str):
        from baddr.core.agent import Agent

        if not isinstance(agent, Agent):
            raise UserError(f"An agent is a name or an Agent, not a value of type {type(agent).__name__}.")
        refuse(problems(agent.filter, "filter."))


def _start(experiment: AnyExperiment, folder: Folder, agent: Any, progress: bool) -> list[Any]:
    from baddr.lab import runner

    quiet: Any = contextlib.nullcontext(lambda *told: None)
    with shown(experiment.title) if progress else quiet as show:
        try:
            return runner.start(experiment, folder, show, agent=agent)
        except runner.Interrupted:
            raise KeyboardInterrupt from None


@contextlib.contextmanager
def _folder(out: str | Path | None) -> Iterator[Folder]:
    """The one that is named, or one that does not stay."""
    if out is not None:
        yield Folder(Path(out))
        return
    with tempfile.TemporaryDirectory(prefix="baddr-") as path:
        yield Folder(Path(path) / "run")


def _experiment(name: str, agent: Any, settings: Mapping[str, Any]) -> AnyExperiment:
    """The preset, with these settings in place of its own."""
    tables = _tables(settings)
    domain = merge(_Domain(entry(name).settings), {"domain": tables.pop("domain", {})}, "run").domain
    sizes = tables.pop("preset", "quick")
    if isinstance(agent, str):
        return _changed(preset(name, agent, sizes, domain, asked_in(tables)), tables)
    own = set(tables) - {"runs", "episodes", "seed", "chunk_size", "trace"}
    if own:
        raise UserError(f"{sorted(own)[0]}: an Agent has its own settings; change them there.")
    # Of the preset only the number of runs and episodes is used.
    return replace(_changed(preset(name, "pomcp", sizes, domain), tables), agent=OWN)


@dataclass(frozen=True)
class _Domain:
    domain: Any


def _tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as tables within tables."""
    tables: dict[str, Any] = {}
    for dotted, value in settings.items():
        group, _, name = dotted.replace("-", "_").partition(".")
        if not name and not isinstance(value, Mapping):
            tables[group] = value
        elif is_dataclass(tables.get(group)):
            raise UserError(f"{group} and {dotted} are both set; leave one of them out.")
        else:
            tables[group] = tables.get(group, {}) | ({name: value} if name else dict(value))
    return tables


def _changed(experiment: AnyExperiment, tables: Mapping[str, Any]) -> AnyExperiment:
    """The experiment with whole groups, or some of their settings, in place of its own."""
    groups = {name: value for name, value in tables.items() if is_dataclass(value)}
    mine = experiment.settings.groups()
    for name, value in groups.items():
        fits = is_of(name, value) if name in KINDS else type(value) is type(mine.get(name))
        if name not in mine or not fits:
            raise UserError(f"{name} cannot be a value of type {type(value).__name__}.")
    rest = {name: _plain(value) for name, value in tables.items() if name not in groups}
    return merged(experiment.changed(**groups), rest, "run")


def _plain(value: Any) -> Any:
    """As a config file would have it."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


@contextlib.contextmanager
def _named(domain: Any) -> Iterator[str]:
    """A domain's name; that of a value stands in the list of domains for as long as it is needed."""
    if isinstance(domain, str):
        yield domain
        return
    from baddr.domains.domain import Domain

    if not isinstance(domain, Domain):
        raise UserError(f"A domain is a name or a Domain, not a value of type {type(domain).__name__}.")
    # Networks trained on its simulators are kept under its name. Nobody else may find them there.
    name = f"{domain.name}-{secrets.token_hex(6)}"
    DOMAINS[name] = _entry(replace(domain, name=name))
    try:
        yield name
    finally:
        del DOMAINS[name]
        _forget_priors(name)


def _entry(domain: Any) -> Any:
    from baddr.domains.check import refuse_malformed
    from baddr.domains.entry import Entry
    from baddr.domains.own import names_of, presets_of

    refuse_malformed(domain)

    @dataclass(frozen=True)
    class Given:
        """A value has no settings."""

        name: ClassVar[str] = domain.name

        def problems(self) -> list[str]:
            return []

    always: Callable[[Any], Callable[[Any], Any]] = lambda value: lambda settings: value
    presets = presets_of(domain)
    return Entry(domain.name, Given(), always(names_of(domain)), always(presets), always(domain))


def _forget_priors(name: str) -> None:
    from baddr.files import cache

    for path in cache.priors().glob(f"{name}-*"):
        path.unlink(missing_ok=True)
