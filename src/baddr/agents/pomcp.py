"""POMCP on the truth: GBAPOMDP(pomdp, Known(D)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request, known_prior
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct


@dataclass(frozen=True)
class Pomcp(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "knows the true model and plans with it: the upper bound"
    learns: ClassVar[bool] = False

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]

    def prior(self, request: Request) -> Prior:
        from baddr.posteriors.known import Known

        return known_prior(Known(request.domain.pomdp.dynamics))  # type: ignore[attr-defined]
