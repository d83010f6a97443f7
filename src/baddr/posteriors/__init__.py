"""Posterior families: one file each, and nothing else to add for the next one."""

from baddr.posteriors.base import Posterior
from baddr.posteriors.dirichlet import Counts, Dirichlet
from baddr.posteriors.frozen import Frozen
from baddr.posteriors.known import Known

__all__ = ["Counts", "Dirichlet", "Frozen", "Known", "Posterior"]
