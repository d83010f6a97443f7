"""The policy of a solver on the true model. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import AgentSettings, Built, F, Request, bayesian, known_prior
from baddr.core.checks import wrong
from baddr.core.filters import Importance


@dataclass(frozen=True)
class Solver:
    """The point-based solver (`baddr solve`). Its solution is kept on disk."""

    precision: float = 1e-3
    """Stop when the bounds on the optimal value are this close."""
    trials: int = 300
    """Stop after this many trials. There is no time limit, so that equal settings give equal policies."""

    def problems(self) -> list[str]:
        return wrong(
            (self.precision >= 0, "solver.precision must not be negative"),
            (self.trials >= 0, "solver.trials must not be negative"),
        )


@dataclass(frozen=True)
class Optimal(AgentSettings, Generic[F]):
    about: ClassVar[str] = "a point-based solution of the true model: the optimum, where the tables fit"
    learns: ClassVar[bool] = False

    solver: Solver = field(default_factory=Solver)
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]

    def build(self, request: Request) -> Built:
        """Solves first: how many vectors there are is part of the program."""
        from baddr.domains.cassandra.settings import CassandraSettings
        from baddr.domains.cassandra.sparse import horizon_to_solve
        from baddr.domains.solving import true_model
        from baddr.posteriors.known import Known
        from baddr.solve.acting import ByVectors
        from baddr.solve.point_based import Budget
        from baddr.solve.stored import stored_solution

        model, horizon = true_model(request.domain, request.domain_settings)
        if isinstance(request.domain_settings, CassandraSettings):
            horizon = horizon_to_solve(request.domain_settings, model)
        budget = Budget(self.solver.precision, trials=self.solver.trials)
        planner = ByVectors(stored_solution(model, budget, horizon))
        prior = known_prior(Known(request.domain.pomdp.dynamics))  # type: ignore[attr-defined]
        return bayesian(request, prior, self.groups(), planner, None)

    def seconds_per_step(self, platform: str) -> float:
        return 1e-5
