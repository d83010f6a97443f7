"""The factored BA-POMDP (Katt et al. 2019): GBAPOMDP(pomdp, Factored(graph)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request, known_prior
from baddr.core.filters import Importance
from baddr.errors import UserError, nearest
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import FactoredSettings

if TYPE_CHECKING:
    from baddr.domains.domain import Domain
    from baddr.posteriors import Graph, Posterior


@dataclass(frozen=True)
class FbaPomcp(Bayesian, Generic[P, F]):
    about: ClassVar[str] = (
        "ba-pomcp with a Bayes network for each action, and counts only for what is uncertain"
    )
    needs: ClassVar[str | None] = "graphs"
    moves: ClassVar[bool] = True

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    factored: FactoredSettings = field(default_factory=FactoredSettings)

    def prior(self, request: Request) -> Prior:
        """The Bayes network with the chosen structure; one that cannot fit is refused before it is made."""
        from baddr.agents.needs import lacks
        from baddr.fast.backend import device_memory
        from baddr.posteriors.factored import Factored
        from baddr.posteriors.factored.graph import is_tied, num_counts, particle_bytes

        filter: Any = self.filter
        domain, how, n = request.domain, self.factored, filter.num_particles
        if not domain.graphs:
            raise lacks(domain, "fba-pomcp", "graphs")
        graph = domain.graphs[nearest("graph", how.graph, domain.graphs)]
        if how.tying == "tied" and not is_tied(graph):
            raise UserError(
                f"Graph {how.graph!r} of {domain.name} has no rows to tie: leave out --factored.tying."
            )
        if how.tables:
            return known_prior(self.with_tables(domain, graph))
        size, memory = particle_bytes(graph, how.structure), device_memory()
        if how.tying == "untied" and 2 * n * size > memory:  # the belief before an update and after it
            raise UserError(
                f"Graph {how.graph!r} of {domain.name} has {num_counts(graph, how.structure):,} counts "
                f"per particle, {size / 2**30:,.1f} GiB: two beliefs of {n:,} particles need "
                f"{2 * n * size / 2**30:,.0f} GiB, and this device has {memory / 2**30:,.0f} GiB."
            )
        expected, tied = how.model == "expected", how.tying == "tied"
        return known_prior(Factored(graph, how.structure, how.edge_probability, expected, tied))

    def with_tables(self, domain: "Domain", graph: "Graph") -> "Posterior":
        """Tables for all features of the graph that are not computed."""
        from baddr.agents.moves import start_marginals
        from baddr.posteriors.factored.graph import untied
        from baddr.posteriors.forms import NoForm
        from baddr.posteriors.tables import feature_tables

        how = self.factored
        if getattr(self.filter, "weight_after_update", False):
            raise UserError(
                "--factored.tables weights before the update: leave out --filter.weight-after-update."
            )
        if getattr(self.filter, "rewards", False):
            raise UserError("--factored.tables cannot use rewards as evidence: leave out --filter.rewards.")
        try:
            graph = graph if how.tying == "tied" else untied(graph)
            return feature_tables(graph, start_marginals(domain), how.grid)
        except NoForm as error:
            raise UserError(f"--factored.tables, graph {how.graph!r} of {domain.name}: {error}.") from error
