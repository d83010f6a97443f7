"""An experiment's settings: what config.toml holds. Needs no JAX."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.toml import merge, read_toml, to_toml
from baddr.lab.catalog import AGENTS, LEARNERS, PRESETS, entry, nearest, preset_of, short_name
from baddr.settings import DPFRL, Factored, Filter, Network, Planner, Pretrain

DomainSettings = TypeVar("DomainSettings")


@dataclass(frozen=True)
class Experiment(Generic[DomainSettings]):
    """Runs x episodes of one agent on one domain."""

    domain: DomainSettings
    agent: str = "baddr"
    """Who acts: baddr, filtering, ba-pomcp, fba-pomcp, pomcp, dpfrl, a2c or random."""
    preset: Literal["quick", "paper"] = "quick"
    """The settings to start from. quick: takes minutes. paper: the paper's sizes."""
    runs: int = 32
    """Number of independent runs."""
    episodes: int = 100
    """Number of episodes in each run."""
    seed: int = 0
    """Seed of the random numbers. Run i depends on the seed and on i alone."""
    chunk_size: int = 0
    """Runs computed together. 0: chosen to suit the number of runs, the cores and the memory."""
    keep_beliefs: Literal["auto", "yes", "no"] = "auto"
    """Keep final beliefs (needed to add episodes or for --prior). auto: only if they fit in half of the free
    disk."""
    prior: str = ""
    """A result folder whose final model beliefs are the prior: run i starts from its run i (modulo its number
    of runs)."""
    trace: int = -1
    """Write each step of this run to trace.jsonl: state, belief, Q, action, observation. -1: of no run."""
    planner: Planner = field(default_factory=Planner)
    filter: Filter = field(default_factory=Filter)
    network: Network = field(default_factory=Network)
    pretrain: Pretrain = field(default_factory=Pretrain)
    factored: Factored = field(default_factory=Factored)
    dpfrl: DPFRL = field(default_factory=DPFRL)

    @property
    def name(self) -> str:
        """The domain's: as the catalogue has it, or its file's absolute path."""
        return self.domain.name  # type: ignore[attr-defined]

    @property
    def title(self) -> str:
        return f"{self.agent} on {short_name(self.name)}"

    def check(self) -> None:
        checks = [
            (self.runs >= 1, "--runs must be at least 1"),
            (self.episodes >= 1, "--episodes must be at least 1"),
            (0 <= self.seed < 2**32, "--seed must lie between 0 and 4294967295"),
            (self.chunk_size >= 0, "--chunk-size must not be negative"),
            (-1 <= self.trace < self.runs, f"--trace must name a run, 0 to {self.runs - 1}, or be -1"),
            (self.agent not in LEARNERS or self.trace < 0, f"--trace: {self.agent} has no belief to trace"),
        ]
        wrong = [sentence for holds, sentence in checks if not holds]
        groups = (self.planner, self.filter, self.network, self.pretrain, self.factored, self.dpfrl)
        groups += (self.domain,)
        wrong += [sentence for group in groups for sentence in group.problems()]  # type: ignore[attr-defined]
        if wrong:
            raise UserError("; ".join(wrong) + ".")
        if self.prior:
            check_prior(self)


def preset(name: str, agent: str = "baddr", preset: str = "quick", settings: Any = None) -> Experiment[Any]:
    """The experiment that a domain (of these settings, or its own), an agent and a preset stand for.

    A preset may bring settings of the domain too; a config file and flags come after it and win.
    """
    chosen = entry(name)
    nearest("agent", agent, AGENTS)
    settings = chosen.settings if settings is None else settings
    sizes = preset_of(chosen, nearest("preset", preset, PRESETS), agent, settings)
    return Experiment(
        domain=replace(settings, **sizes.domain),
        agent=agent,
        preset=preset,  # type: ignore[arg-type]
        runs=sizes.runs,
        episodes=sizes.episodes,
        planner=sizes.planner,
        filter=sizes.filter,
        network=sizes.network,
        pretrain=sizes.pretrain,
        dpfrl=sizes.dpfrl,
    )


def from_toml(path: Path, start: Experiment[Any]) -> Experiment[Any]:
    """`start` with a config file's values in place of its own."""
    values = read_toml(path)
    name = values.pop("name", start.name)
    if name != start.name:
        raise UserError(f"{path} is for the domain {name!r}, not {start.name!r}.")
    return merge(start, values, str(path))


def to_config(experiment: Experiment[Any]) -> bytes:
    """What config.toml holds."""
    return to_toml(experiment, name=experiment.name).encode()


def of_folder(folder: Folder) -> Experiment[Any]:
    """The experiment whose results a folder holds."""
    folder.check_existing()
    values = read_toml(folder.config)
    try:
        start = preset(values.pop("name", ""), values.get("agent", ""), values.get("preset", ""))
    except UserError as error:  # a file that was moved, for example
        raise UserError(f"{folder.config}: {error}") from error
    return merge(start, values, str(folder.config))


def extend(experiment: Experiment[Any], runs: int | None, episodes: int | None) -> Experiment[Any]:
    """The same experiment with more runs or episodes."""
    for name, new, old in (("runs", runs, experiment.runs), ("episodes", episodes, experiment.episodes)):
        if new is not None and new < old:
            raise UserError(f"--{name} {new} is fewer than the {old} that the folder has; it can only grow.")
    if episodes is not None and episodes > experiment.episodes and experiment.keep_beliefs == "no":
        raise UserError(
            f"This experiment did not keep its beliefs, so its runs end at {experiment.episodes} episodes; "
            "more runs can be added, or start another one with --keep-beliefs yes."
        )
    return replace(experiment, runs=runs or experiment.runs, episodes=episodes or experiment.episodes)


def check_prior(experiment: Experiment[Any]) -> None:
    """Refuse a learned belief that does not fit this experiment."""
    source = Folder(Path(experiment.prior))
    theirs = of_folder(source)
    fits = lambda e: (e.name, e.agent, e.network, e.factored, e.filter.num_particles)
    if fits(theirs) != fits(experiment) or experiment.agent in ("pomcp", "random", *LEARNERS):
        raise UserError(
            f"--prior {source.path}: a learned belief can be used by the same agent on the same domain with "
            f"the same network and number of particles; that was {theirs.agent} on {theirs.name} with "
            f"{theirs.filter.num_particles} particles."
        )
    if theirs.keep_beliefs == "no":
        raise UserError(f"--prior {source.path}: that experiment did not keep its beliefs.")
