"""What a benchmark consists of: which agents on which domains, at which sizes. Needs no JAX."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from baddr.agents import AGENTS
from baddr.agents.kinds import agent_class
from baddr.domains.catalog import DOMAINS, entry, short_name
from baddr.errors import UserError, nearest
from baddr.files.settings import misfits, refuse
from baddr.files.writing import file_name
from baddr.lab.experiment import AnyExperiment, preset

PRIOR, TRUTH, EXACT = "prior-only", "pomcp", "bank"  # reference lines; the last one is an agent, too
NO_ROWS = (PRIOR, TRUTH, "optimal", "own")  # agents that are references, or need a file
QUICK_DOMAINS = ("tiger", "t-maze", "light-dark", "maintenance", "collision-avoidance", "rock-sample")
QUICK_AGENTS = ("ba-pomcp", "fba-pomcp", "bank", "latent", "mixture", "baddr")


MOST_TRAININGS = 1000  # each is a part with a folder of its own


class Size(NamedTuple):
    """Of each part."""

    runs: int
    episodes: int
    trainings: int  # seeds of agents with networks, which train anew for each
    solve_seconds: float  # that the solver has for a domain


SIZES = {"quick": Size(8, 20, 1, 15.0), "full": Size(64, 200, 4, 600.0)}


class Part(NamedTuple):
    """An agent on a domain with a seed."""

    domain: str
    agent: str
    experiment: AnyExperiment

    @property
    def name(self) -> str:
        return file_name(f"{short_name(self.domain).replace(':', '-')}-{self.agent}-{self.experiment.seed}")


@dataclass(frozen=True)
class Request:
    """What was asked for: `suite.toml`."""

    preset: Literal["quick", "full"] = "quick"
    agents: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    runs: int = 0
    episodes: int = 0
    trainings: int = 0
    seed: int = 0

    @property
    def size(self) -> Size:
        given = SIZES[self.preset]
        asked = {name: getattr(self, name) for name in ("runs", "episodes", "trainings")}
        return given._replace(**{name: value for name, value in asked.items() if value})

    @property
    def chosen_agents(self) -> list[str]:
        """Those that are named, or the preset's: of the quick one those that there are."""
        if self.agents:
            return [nearest("agent", name, AGENTS) for name in dict.fromkeys(self.agents)]
        if self.preset == "quick":
            return [name for name in QUICK_AGENTS if name in AGENTS]
        return [name for name in AGENTS if name not in NO_ROWS]

    @property
    def chosen_domains(self) -> list[str]:
        if self.domains:
            return list(dict.fromkeys(self.domains))
        return [name for name in QUICK_DOMAINS if name in DOMAINS] if self.preset == "quick" else [*DOMAINS]

    def check(self) -> None:
        nearest("preset", self.preset, SIZES)
        refuse(misfits(self, "--"))
        for name in self.chosen_agents:
            if name in NO_ROWS:
                why = "needs a file" if name == "own" else "is a reference line already"
                raise UserError(f"Agent {name} {why}: leave it out of --agents.")
        for name in self.chosen_domains:
            entry(name)
        for name in ("runs", "episodes", "trainings"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name} must be at least 1, or 0 for the preset's.")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed must lie between 0 and {2**31 - 1}.")
        if self.trainings > MOST_TRAININGS:
            raise UserError(f"--trainings must be at most {MOST_TRAININGS:,}.")
        plan = list(parts(self))
        for part in plan:
            part.experiment.check_values()
        known: dict[str, Part] = {}
        for part in plan:  # examples/a.py and other/a.py
            if (other := known.setdefault(part.name, part)) is not part:
                raise UserError(f"--domains {other.domain} and {part.domain} have the same name.")

    @property
    def resolved(self) -> "Request":
        """With absolute paths of files, so that it can be resumed from anywhere."""
        return replace(self, domains=tuple(entry(name).settings.name for name in self.domains))

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["baddr suite", "--preset", self.preset]
        for name in ("agents", "domains"):
            words += [f"--{name}", *getattr(self, name)] if getattr(self, name) else []
        for name in ("runs", "episodes", "trainings", "seed"):
            words += [f"--{name}", str(getattr(self, name))] if getattr(self, name) else []
        return " ".join(words)


def parts(request: Request) -> Iterator[Part]:
    """All experiments, domain by domain: the references first."""
    for domain in request.chosen_domains:
        first = [PRIOR, TRUTH, *([EXACT] if EXACT in AGENTS else [])]
        for agent in dict.fromkeys([*first, *request.chosen_agents]):
            for seed in range(request.seed, request.seed + trainings(request, agent)):
                yield Part(domain, agent, experiment(request, domain, agent, seed))


def trainings(request: Request, agent: str) -> int:
    """Agents that train networks have several trainings, each with a share of the runs."""
    return 1 if agent_class(agent).variant in ("", "counts", EXACT) else request.size.trainings


def experiment(request: Request, domain: str, agent: str, seed: int) -> AnyExperiment:
    """With the domain's `quick` settings, and what the suite sets of them; the suite's runs and episodes.
    Learners need their thousands."""
    found, size = preset(domain, agent, settings=entry(domain).in_suite), request.size
    runs = max(1, size.runs // trainings(request, agent))
    episodes = size.episodes
    if agent_class(agent).variant == "learner" and not request.episodes:
        episodes = found.episodes
    return replace(found, runs=runs, episodes=episodes, seed=seed)


def refusal(agent: str, domain: Any) -> str:
    """Why an agent cannot act in a domain; nothing where it can."""
    from baddr.agents.needs import has, lacks

    need = agent_class(agent).needs
    return "" if has(domain, need) else str(lacks(domain, agent, str(need)))
