"""The paper's ablation: GBAPOMDP(pomdp, Frozen(Dropout(...))). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Progress, Request
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import Network, Pretrain


@dataclass(frozen=True)
class Filtering(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "baddr's networks, re-weighted but never trained online: the paper's ablation"
    variant: ClassVar[str] = "network"
    needs: ClassVar[str | None] = "expected_simulator"

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    network: Network = field(default_factory=Network)
    pretrain: Pretrain = field(default_factory=Pretrain)

    def prior(self, request: Request) -> Prior:
        from baddr.agents.networks import networks_prior
        from baddr.posteriors.frozen import Frozen

        like, train, bytes = networks_prior(request, self.network, self.pretrain)

        def frozen(progress: Progress | None):
            posterior, test = train(progress)
            return Frozen(posterior), test

        return Prior(Frozen(like), frozen, bytes)
