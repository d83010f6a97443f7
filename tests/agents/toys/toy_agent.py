"""An agent in one file: it knows the truth, and looks one step ahead. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request, known_prior
from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct


@dataclass(frozen=True)
class Caution:
    share: float = 0.5
    """How much of the truth it believes."""

    def problems(self) -> list[str]:
        return wrong((0 <= self.share <= 1, "caution.share must lie in [0, 1]"))


@dataclass(frozen=True)
class Toy(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "a toy that mixes the truth with the expected simulator"

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    caution: Caution = field(default_factory=Caution)

    def prior(self, request: Request) -> Prior:
        import jax

        from baddr import Known

        domain, share = request.domain, self.caution.share
        truth, expected = domain.pomdp.dynamics, domain.expected_simulator
        return known_prior(Known(jax.tree.map(lambda x, y: share * x + (1 - share) * y, truth, expected)))
