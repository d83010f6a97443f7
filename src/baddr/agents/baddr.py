"""BADDr (Katt et al. 2022): GBAPOMDP(pomdp, Dropout(...)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import Network, Pretrain


@dataclass(frozen=True)
class BADDr(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "dropout networks, trained on simulators and then online: the paper's method"
    variant: ClassVar[str] = "network"
    needs: ClassVar[str | None] = "expected_simulator"

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    network: Network = field(default_factory=Network)
    pretrain: Pretrain = field(default_factory=Pretrain)

    def prior(self, request: Request) -> Prior:
        from baddr.agents.networks import networks_prior

        return networks_prior(request, self.network, self.pretrain)
