"""Posterior families: one file each, and nothing else to add for the next one."""

from baddr.core.posterior import Posterior
from baddr.posteriors.dirichlet import Counts, Dirichlet
from baddr.posteriors.dropout import Architecture, Dropout
from baddr.posteriors.factored import Factored, FactoredCounts, FactoredDynamics, Graph
from baddr.posteriors.frozen import Frozen
from baddr.posteriors.known import Known
from baddr.posteriors.partial import Partial

__all__ = [
    "Architecture",
    "Counts",
    "Dirichlet",
    "Dropout",
    "Factored",
    "FactoredCounts",
    "FactoredDynamics",
    "Frozen",
    "Graph",
    "Known",
    "Partial",
    "Posterior",
]
