"""Posterior families: one file each, and nothing else to add for the next one. Imported on first use: their
settings need no JAX."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baddr.core.posterior import Posterior
    from baddr.posteriors.bank import Bank
    from baddr.posteriors.dirichlet import Counts, Dirichlet
    from baddr.posteriors.dropout import Architecture, Dropout
    from baddr.posteriors.factored import Factored, FactoredCounts, FactoredDynamics, Graph
    from baddr.posteriors.frozen import Frozen
    from baddr.posteriors.known import Known
    from baddr.posteriors.latent import Latent
    from baddr.posteriors.mixture import Mixture
    from baddr.posteriors.partial import Partial

_HOMES = {
    "Architecture": "posteriors.dropout",
    "Bank": "posteriors.bank",
    "Counts": "posteriors.dirichlet",
    "Dirichlet": "posteriors.dirichlet",
    "Dropout": "posteriors.dropout",
    "Factored": "posteriors.factored",
    "FactoredCounts": "posteriors.factored",
    "FactoredDynamics": "posteriors.factored",
    "Frozen": "posteriors.frozen",
    "Graph": "posteriors.factored",
    "Known": "posteriors.known",
    "Latent": "posteriors.latent",
    "Mixture": "posteriors.mixture",
    "Partial": "posteriors.partial",
    "Posterior": "core.posterior",
}

__all__ = [
    "Architecture",
    "Bank",
    "Counts",
    "Dirichlet",
    "Dropout",
    "Factored",
    "FactoredCounts",
    "FactoredDynamics",
    "Frozen",
    "Graph",
    "Known",
    "Latent",
    "Mixture",
    "Partial",
    "Posterior",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'baddr.posteriors' has no attribute {name!r}")
    return getattr(importlib.import_module(f"baddr.{_HOMES[name]}"), name)
