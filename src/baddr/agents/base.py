"""What an agent is to the laboratory: settings that build a life. Needs no JAX.

An agent is one file with a frozen dataclass, and one line in `agents.AGENTS`. The fields of the dataclass are
groups of settings: flags of the command line (`--planner.depth`) and tables of config.toml.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from baddr.files.settings import problems

if TYPE_CHECKING:
    from baddr.agents.life import Life
    from baddr.core.posterior import Posterior
    from baddr.domains.domain import Domain

P = TypeVar("P")  # the kind of a planner
F = TypeVar("F")  # of a filter
Q = TypeVar("Q")  # of a posterior of the user's own

Progress = Callable[[int, int, float], None]  # batches done, batches in all, mean loss of the last block
Test = Callable[[], Any]  # how well a trained prior fits: found on disk or measured now, which takes seconds
MICROSECONDS_PER_STEP = {"cpu": 0.5, "gpu": 0.01}  # of planning, at a full chunk: see benchmarks/


@dataclass(frozen=True)
class Request:
    """What an agent is built for."""

    domain: "Domain"
    seed: int = 0
    trace: bool = False  # keep the belief after every step
    domain_settings: Any = None  # the values that the domain was made of: a trained prior is kept under them


class Built(NamedTuple):
    """An agent's life, whose networks may be shapes yet: enough to size an experiment and compile it; and
    what gives the real one, with the test of its networks where it has some."""

    life: "Life"
    train: "Callable[[Progress | None], tuple[Life, Test | None]]"
    bytes: int = 0  # of memory, that training needs


class Prior(NamedTuple):
    """A posterior whose networks may be shapes yet, and what gives the real one."""

    like: "Posterior"
    train: "Callable[[Progress | None], tuple[Posterior, Test | None]]"
    bytes: int = 0  # of memory, that training needs


def known_prior(posterior: "Posterior") -> Prior:
    """One that needs no training."""
    return Prior(posterior, lambda progress: (posterior, None))


class AgentSettings(ABC):
    """All that is chosen about an agent."""

    about: ClassVar[str]  # in a line
    variant: ClassVar[str] = ""  # NAME/VARIANT of a domain's presets, where there is one, is for this agent
    needs: ClassVar[str | None] = None  # the member of a Domain that it cannot do without
    shares: ClassVar[bool] = False  # its beliefs are about what all runs of a seed share: members, a network
    learns: ClassVar[bool] = True  # it keeps what it learns: a result can be another one's --prior
    moves: ClassVar[bool] = False  # --filter.rejuvenate has moves for its posterior
    # NAME_std of its beliefs holds all that they do not know, unless a group of settings says no: expected
    # models leave out what a particle itself does not know.
    tells_spread: ClassVar[bool] = True

    @abstractmethod
    def build(self, request: Request) -> Built:
        """The agent's life in a domain."""

    @abstractmethod
    def seconds_per_step(self, platform: str) -> float:
        """About what a real step of a run takes, for an estimate."""

    def groups(self) -> dict[str, Any]:
        """The groups of settings, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def problems(self) -> list[str]:
        """What is wrong with the settings."""
        return [x for name, group in self.groups().items() for x in problems(group, f"{name}.")]


class Bayesian(AgentSettings):
    """An agent with a belief: a posterior, a filter and a planner."""

    @abstractmethod
    def prior(self, request: Request) -> Prior:
        """The posterior that its beliefs start from."""

    def build(self, request: Request) -> Built:
        planner = made_for(request.domain, self.groups().get("planner"))
        describe = request.domain.describe if self.learns else None
        return bayesian(request, self.prior(request), self.groups(), planner, describe)

    def seconds_per_step(self, platform: str) -> float:
        planner = self.groups().get("planner")
        simulations = getattr(planner, "num_simulations", 0)
        simulations += getattr(planner, "num_expansions", 0) * getattr(planner, "num_particles", 0) // 4
        return 1e-6 * MICROSECONDS_PER_STEP.get(platform, 0.01) * 3 * simulations


def bayesian(request: Request, prior: Prior, groups: Mapping[str, Any], planner: Any, describe: Any) -> Built:
    """The life of an agent with a belief: the groups hold its filter, and no planner acts at random."""
    from baddr.agents.life import BayesianLife
    from baddr.core.agent import Agent
    from baddr.core.gba_pomdp import GBAPOMDP
    from baddr.fast.choose import fast_agent, with_posterior
    from baddr.posteriors.moments import described

    domain, gba = request.domain, GBAPOMDP(request.domain.pomdp, prior.like)
    filter = made_for(domain, groups.get("filter"))
    if hasattr(filter, "refuse"):
        filter.refuse(prior.like)
    if any(map(is_own, groups.values())):
        from baddr.agents.check import refuse_malformed

        refuse_malformed(groups, gba, filter, planner)
    describe = described(describe, prior.like)
    moves = rejuvenation(domain, prior.like, filter)
    shows = domain.shows if domain.describe and describe else None
    agent = fast_agent(Agent(gba, filter, planner or _uniform(), describe, request.trace, moves, shows))

    def train(progress: Progress | None) -> "tuple[Life, Test | None]":
        posterior, test = prior.train(progress)
        return BayesianLife(with_posterior(agent, posterior), domain.pomdp), test

    return Built(BayesianLife(agent, domain.pomdp), train, prior.bytes)


def rejuvenation(domain: "Domain", posterior: "Posterior", filter: Any) -> Any:
    """The moves that a filter asks for; most ask for none."""
    if not getattr(filter, "rejuvenate", False):
        return None
    if getattr(filter, "rewards", False):
        from baddr.errors import UserError

        raise UserError("--filter.rejuvenate draws histories without rewards: leave out --filter.rewards.")
    from baddr.agents.moves import moves_of

    return moves_of(domain, posterior, filter)


def made_for(domain: "Domain", value: Any) -> Any:
    """The planner or filter that the settings stand for; a value that is one itself as it is."""
    return value.build(domain) if hasattr(value, "build") else value


def is_own(value: Any) -> bool:
    """Whether a group of settings, or the planner, filter or posterior in its place, is the user's own."""
    return not type(value).__module__.startswith("baddr.")


def _uniform() -> Any:
    from baddr.planners.uniform import Uniform

    return Uniform()
