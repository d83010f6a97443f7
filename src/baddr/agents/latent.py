"""One network for all simulators, and a z for each: GBAPOMDP(pomdp, Latent(...)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import LatentSettings


@dataclass(frozen=True)
class Latent(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "one network for all simulators; learns by Bayes' rule which simulator it is in"
    variant: ClassVar[str] = "latent"
    needs: ClassVar[str | None] = "sample_simulator"
    shares: ClassVar[bool] = True

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    latent: LatentSettings = field(default_factory=LatentSettings)

    def prior(self, request: Request) -> Prior:
        from baddr.agents.networks import latent_prior

        return latent_prior(request, self.latent)
