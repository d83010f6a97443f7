"""What is worth comparing with: the optimum of a result's true model, by the solver, and what planning with
the prior alone and planning on the truth are worth."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from baddr.agents.kinds import agent_class
from baddr.domains.catalog import DOMAINS
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.lab.build import build_domain
from baddr.lab.experiment import AnyExperiment, of_folder, preset
from baddr.solve.point_based import Budget
from baddr.solve.stored import stored_solution

TRIALS = 300
PRECISION = 1e-3
PLAYED_RUNS, PLAYED_EPISODES = 64, 40


class Optimum(NamedTuple):
    """Bounds on the optimal value."""

    lower: float
    upper: float

    def __str__(self) -> str:
        return f"between {self.lower:.6g} and {self.upper:.6g}"


class Estimated(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float


class Line(NamedTuple):
    """A horizontal line of a picture: a name and a value, with its standard error where it was sampled."""

    name: str
    value: float
    error: float = 0.0


class References(NamedTuple):
    """What an agent that learns is measured by. Nothing where it cannot be computed."""

    prior: float | Estimated | None  # the best plan for the prior's expected model, in the truth
    truth: Estimated | None  # the same planner on the true model
    optimum: Optimum | None

    def lines(self) -> list[Line]:
        found = {"planning with the prior only": self.prior, "planning on the truth": self.truth}
        estimates = {name: (x,) if isinstance(x, float) else x for name, x in found.items() if x is not None}
        return [Line(name, *x) for name, x in estimates.items()]


def optimum(settings: Any, domain: Any) -> Optimum:
    """From the cache, or solved now, which takes seconds to minutes."""
    from baddr.domains.solving import true_model

    solution = _solved(*true_model(domain, settings))
    return Optimum(solution.lower, solution.upper)


def _solved(model: Any, horizon: int | None) -> Any:
    return stored_solution(model, Budget(PRECISION, trials=TRIALS), horizon)


def optimum_of(path: Path, trust: bool = False) -> Optimum:
    """Of the domain that a result folder is about."""
    experiment = of_folder(Folder(path), trust)
    return optimum(experiment.domain, build_domain(experiment))


def references(experiment: AnyExperiment) -> References:
    """All of them, which takes seconds for small domains and minutes for others."""
    domain = build_domain(experiment)
    best = prior = None
    try:
        best = optimum(experiment.domain, domain)
        prior = prior_only(domain)
    except UserError:  # too large to solve
        pass
    if prior is None and domain.expected_simulator is not None:
        prior = played(experiment, "prior-only")
    return References(prior, played(experiment, "pomcp"), best)


def prior_only(domain: Domain) -> float | None:
    """What the best plan for the prior's expected model is worth in the truth, exactly."""
    from baddr.domains.solving import true_model
    from baddr.solve.worth import worth

    if domain.expected_simulator is None:
        return None
    expected = domain.pomdp.with_dynamics(domain.expected_simulator)
    (believed, horizon), (truth, _) = true_model(replace(domain, pomdp=expected)), true_model(domain)
    return None if horizon is None else worth(_solved(believed, horizon), believed, truth, horizon)


def played(experiment: AnyExperiment, agent: str) -> Estimated | None:
    """The mean return of an agent that does not learn, with the experiment's planner."""
    from baddr.lab.run import run_named

    if not agent_class(experiment.agent).learns or experiment.name not in DOMAINS:
        return None
    same = {name: group for name, group in experiment.settings.groups().items() if name == "planner"}
    bound = preset(experiment.name, agent, "quick", experiment.domain).changed(**same)
    settings: dict[str, Any] = {"domain": asdict(bound.domain), **bound.settings.groups()}
    settings |= {"runs": PLAYED_RUNS, "episodes": PLAYED_EPISODES, "seed": experiment.seed}
    returns = run_named(experiment.name, agent, settings)["discounted_return"]
    return Estimated(float(returns.mean()), float(returns.std() / len(returns) ** 0.5))
