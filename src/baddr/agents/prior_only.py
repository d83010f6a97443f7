"""Planning with the prior only: GBAPOMDP(pomdp, Known(the model that the prior expects)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request, known_prior
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct


@dataclass(frozen=True)
class PriorOnly(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "plans with the model that the prior expects, and never learns: score 0"
    needs: ClassVar[str | None] = "expected_simulator"
    learns: ClassVar[bool] = False

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]

    def prior(self, request: Request) -> Prior:
        from baddr.agents.needs import lacks
        from baddr.posteriors.known import Known

        if request.domain.expected_simulator is None:
            raise lacks(request.domain, "prior-only", "expected_simulator")
        return known_prior(Known(request.domain.expected_simulator))
