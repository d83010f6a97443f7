"""The tabular BA-POMDP (Ross et al. 2011): GBAPOMDP(pomdp, Dirichlet(counts)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request, known_prior
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct


@dataclass(frozen=True)
class BaPomcp(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "tables of Dirichlet counts; plans with the model that each particle expects"
    variant: ClassVar[str] = "counts"
    needs: ClassVar[str | None] = "counts"
    moves: ClassVar[bool] = True
    tells_spread: ClassVar[bool] = False

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]

    def prior(self, request: Request) -> Prior:
        from baddr.agents.needs import lacks
        from baddr.posteriors.sparse_dirichlet import dirichlet_of

        domain, pomdp = request.domain, request.domain.pomdp
        if domain.counts is None:
            rows = pomdp.num_states * pomdp.num_actions
            tables = f"{rows * pomdp.num_states:,} and {rows * pomdp.num_observations:,} counts a particle"
            raise lacks(domain, "ba-pomcp", "counts", f"tables of T and O would have {tables}")
        return known_prior(dirichlet_of(domain.counts, pomdp.state_sizes, pomdp.observation_sizes))
