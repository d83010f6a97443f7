"""Random actions, and the belief of one who knows the truth. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, Prior, Request, known_prior
from baddr.core.filters import Importance


@dataclass(frozen=True)
class Random(Bayesian, Generic[F]):
    about: ClassVar[str] = "uniformly random actions"
    learns: ClassVar[bool] = False

    filter: F = field(default_factory=Importance)  # type: ignore[assignment]

    def prior(self, request: Request) -> Prior:
        from baddr.posteriors.known import Known

        return known_prior(Known(request.domain.pomdp.dynamics))  # type: ignore[attr-defined]
