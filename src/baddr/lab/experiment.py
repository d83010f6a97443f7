"""An experiment's settings: what config.toml holds. Needs no JAX."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from tyro.conf import arg

from baddr.agents import AGENTS
from baddr.agents.base import AgentSettings
from baddr.agents.kinds import KINDS, agent_class, kind_of, kind_with, kinds_in, type_of, with_kind
from baddr.domains.catalog import entry, short_name
from baddr.domains.entry import Entry, Preset
from baddr.errors import UserError, nearest
from baddr.files.settings import misfits, refuse
from baddr.files.store import Folder
from baddr.files.toml import merge, read_toml, to_toml
from baddr.lab.limits import domain_problems, refuse_rows
from baddr.lab.sources import check_sources
from baddr.lab.ties import settings_hash

D = TypeVar("D")
A = TypeVar("A")
Asked = str | frozenset[str]  # a kind, or names of settings that a kind must have

PRESETS = {
    "quick": "minutes on a laptop: the best planner for the domain, fewer runs and episodes",
    "paper": "the planner and the sizes from the paper's appendix",
}


@dataclass(frozen=True)
class Experiment(Generic[D, A]):
    """Runs x episodes of one agent on one domain."""

    domain: D
    settings: Annotated[A, arg(name="")]  # the agent's: their groups stand beside the domain's
    agent: str = "baddr"
    """The agent: {agents}."""
    preset: Literal["quick", "paper"] = "quick"
    """The settings to start from. quick: takes minutes. paper: the paper's sizes."""
    runs: int = 32
    """Number of independent runs."""
    episodes: int = 100
    """Number of episodes in each run."""
    seed: int = 0
    """Seed of the random numbers. Run i depends only on the seed and on i."""
    chunk_size: int = 0
    """Runs computed together. 0: chosen to suit the machine."""
    keep_beliefs: Literal["auto", "yes", "no"] = "auto"
    """Keep the final beliefs (needed to add episodes and for --prior). auto: only if they fit in half of the
    free disk space."""
    prior: str = ""
    """A result folder. Its final beliefs over models become the prior: run i starts from the folder's run i
    (modulo its number of runs)."""
    trace: int = -1
    """Write every step of this run to trace.jsonl: state, belief, Q, action, observation. -1: no trace."""

    @property
    def name(self) -> str:
        """The domain's: as the catalogue has it, or its file's absolute path."""
        return self.domain.name  # type: ignore[attr-defined]

    @property
    def title(self) -> str:
        return f"{self.agent} on {short_name(self.name)}"

    def changed(self, **groups: Any) -> "Experiment[D, A]":
        """With other groups of the agent's settings: `changed(planner=...)`."""
        return replace(self, settings=replace(self.settings, **groups))  # type: ignore[type-var]

    def check(self) -> None:
        """Refuse what cannot be run."""
        self.check_values()
        if self.prior:
            from baddr.lab.prior import check_prior

            check_prior(self)

    def check_values(self) -> None:
        """Refuse values that are not of their types, or out of range."""
        refuse(misfits(replace(self, domain=None, settings=None), "--", but=("seed",)))
        settings: Any = self.settings
        has_belief = "filter" in settings.groups()
        checks = [
            (self.runs >= 1, "--runs must be at least 1"),
            (self.episodes >= 1, "--episodes must be at least 1"),
            (
                type(self.seed) is int and 0 <= self.seed < 2**32,
                "--seed must lie between 0 and 4294967295",
            ),
            (self.chunk_size >= 0, "--chunk-size must not be negative"),
            (
                -1 <= self.trace < max(self.runs, 1),
                f"--trace must name a run, 0 to {self.runs - 1}, or be -1",
            ),
            (has_belief or self.trace < 0, f"--trace: {self.agent} has no belief to trace"),
        ]
        refuse([sentence for holds, sentence in checks if not holds])
        refuse([*settings.problems(), *domain_problems(self.domain)])
        refuse_rows(self.runs, self.episodes)


AnyExperiment = Experiment[Any, Any]


def experiment_type(experiment: AnyExperiment) -> Any:
    """Its class with the types of the domain's and the agent's settings, from which flags are made."""
    return Experiment[type(experiment.domain), type_of(experiment.settings)]  # type: ignore[misc]


def preset(
    name: str,
    agent: str = "baddr",
    preset: str = "quick",
    settings: Any = None,
    kinds: Mapping[str, Asked] | None = None,
) -> AnyExperiment:
    """The experiment that a domain (of these settings, or its own), an agent and a preset stand for.

    A preset may bring settings of the domain too; a config file and flags come after it and win. `kinds` are
    those of the agent's groups that are not the preset's, or the names of settings that they must have.
    """
    chosen, cls = entry(name), agent_class(agent)
    if settings is None:
        settings = chosen.settings
    else:  # first: a preset depends on the domain's size
        refuse(domain_problems(settings))
    sizes = preset_of(chosen, nearest("preset", preset, PRESETS), cls, settings)
    mine = agent_of(cls, sizes)
    for group, asked in (kinds or {}).items():
        kind = asked if isinstance(asked, str) else _kind_with(mine, group, asked)
        if kind is not None:
            mine = with_kind(mine, group, kind, sizes.others.get(group, ()))
    return Experiment(
        domain=replace(settings, **sizes.domain),
        settings=mine,
        agent=agent,
        preset=preset,  # type: ignore[arg-type]
        runs=sizes.runs,
        episodes=sizes.episodes,
    )


def _kind_with(agent: AgentSettings, group: str, names: frozenset[str]) -> str | None:
    groups = agent.groups()
    return kind_with(group, names, groups[group]) if group in groups else None


def preset_of(entry: Entry, name: str, agent: type[AgentSettings], settings: Any) -> Preset:
    """NAME/VARIANT, where there is one, is for the agents of that variant: their networks take longer."""
    presets = entry.presets(settings)
    return presets.get(f"{name}/{agent.variant}", presets[name])


def agent_of(cls: type[AgentSettings], sizes: Preset) -> AgentSettings:
    """The agent with the preset's groups: values, or what differs from the agent's own."""
    start, groups = cls(), {}
    for name, own in start.groups().items():
        given = sizes.groups.get(name, {})
        groups[name] = replace(own, **given) if isinstance(given, Mapping) else given
    return replace(start, **groups)  # type: ignore[type-var]


# Files.


def asked_in(values: Mapping[str, Any]) -> dict[str, Asked]:
    """The kinds that the tables of a config file name, or else the names of the settings in them."""
    tables = {group: values[group] for group in KINDS if isinstance(values.get(group), Mapping)}
    return {group: frozenset(table) for group, table in tables.items()} | kinds_in(values)


def from_toml(path: Path, start: AnyExperiment) -> AnyExperiment:
    """`start` with a config file's values in place of its own."""
    values = read_toml(path)
    name = values.pop("name", start.name)
    if name != start.name:
        raise UserError(f"{path} is for the domain {name!r}, not {start.name!r}.")
    return merged(start, values, str(path))


def merged(start: AnyExperiment, values: Mapping[str, Any], where: str) -> AnyExperiment:
    """`start` with the values of a config file: the agent's groups stand beside its own settings there."""
    groups = start.settings.groups()
    own = {name: value for name, value in values.items() if name not in groups}
    theirs = {name: value for name, value in values.items() if name in groups}
    if unused := [name for name in own if isinstance(own[name], Mapping) and name != "domain"]:
        raise UserError(
            f"{where}: agent {start.agent} has no settings [{unused[0]}]; it has {', '.join(groups)}."
        )
    settings = start.settings
    for group, kind in kinds_in(theirs).items():
        settings = with_kind(settings, group, kind)
    for name in KINDS:
        if isinstance(theirs.get(name), Mapping):
            theirs[name] = {key: value for key, value in theirs[name].items() if key != "kind"}
    settings = merge(settings, theirs, where)
    if own.get("agent", start.agent) != start.agent:
        raise UserError(f"{where} is for agent {own['agent']!r}, not {start.agent!r}.")
    return replace(merge(start, own, where), settings=settings)


def to_config(experiment: AnyExperiment) -> bytes:
    """What config.toml holds."""
    values: dict[str, Any] = {"name": experiment.name}
    values |= {f.name: getattr(experiment, f.name) for f in fields(experiment) if f.name != "settings"}
    values["domain"] = asdict(experiment.domain)
    for name, group in experiment.settings.groups().items():
        kind = {"kind": kind_of(name, group)} if name in KINDS else {}
        values[name] = kind | _plain_fields(group)
    return to_toml(values).encode()


def _plain_fields(group: Any) -> dict[str, Any]:
    """Those that a file can hold: a value of the user's own may have arrays, too."""
    plain = lambda x: isinstance(x, bool | int | float | str) or (isinstance(x, tuple) and all(map(plain, x)))
    values = {f.name: getattr(group, f.name) for f in fields(group)}
    return {name: value for name, value in values.items() if plain(value)}


def of_folder(folder: Folder, trust: bool = False) -> AnyExperiment:
    """The experiment whose results a folder holds. A file of the user's own is not executed before it was
    seen to be the one that the experiment was started with, unless `trust`."""
    folder.check_existing()
    values, manifest = read_toml(folder.config), folder.read_manifest()
    if not trust:
        check_sources(values, manifest, folder)
    experiment = of_values(values, folder)
    if manifest.get("settings", settings_hash(experiment)) != settings_hash(experiment):
        raise UserError(
            f"The settings in {folder.config} have changed since the experiment started (manifest.json has "
            "their hash); put them back, or start a new experiment."
        )
    return experiment


def of_values(values: dict[str, Any], folder: Folder) -> AnyExperiment:
    """The experiment of a config.toml."""
    given = [values.pop("name", ""), values.get("agent", ""), values.get("preset", "")]
    if not all(isinstance(word, str) for word in given):
        raise UserError(f"{folder.config}: name, agent and preset must be strings.")
    try:
        start = preset(*given, kinds=kinds_in(values))
        experiment = merged(start, values, str(folder.config))
        experiment.check_values()
    except UserError as error:  # a file that was moved, for example
        said = str(error)
        raise UserError(
            said if said.startswith(str(folder.config)) else f"{folder.config}: {said}"
        ) from error
    return experiment


def extend(experiment: AnyExperiment, runs: int | None, episodes: int | None) -> AnyExperiment:
    """The same experiment with more runs or episodes."""
    for name, new, old in (("runs", runs, experiment.runs), ("episodes", episodes, experiment.episodes)):
        if new is not None and new < old:
            raise UserError(f"--{name} {new} is fewer than the {old} in the folder; it can only grow.")
    if episodes is not None and episodes > experiment.episodes and experiment.keep_beliefs == "no":
        raise UserError(
            f"This experiment did not keep its beliefs, so its runs end at {experiment.episodes} episodes; "
            "add runs instead, or start a new experiment with --keep-beliefs yes."
        )
    return replace(experiment, runs=runs or experiment.runs, episodes=episodes or experiment.episodes)


def describe_agents() -> dict[str, str]:
    """Each agent in a line."""
    return {name: agent_class(name).about for name in AGENTS}
