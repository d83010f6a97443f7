"""A posterior of the user's own, with a filter and a planner: `--posterior FILE.py:NAME`. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Q, Request, known_prior, made_for
from baddr.core.filters import Importance
from baddr.errors import UserError
from baddr.planners.po_uct import PoUct


@dataclass(frozen=True)
class NoPosterior:
    """None was named yet."""

    own_kind: ClassVar[str] = ""
    source: ClassVar[None] = None

    def problems(self) -> list[str]:
        return ["agent own needs a posterior of your own: name it with --posterior FILE.py:NAME"]

    def build(self, domain: object) -> None:
        raise UserError(f"{self.problems()[0]}.")


@dataclass(frozen=True)
class Own(Bayesian, Generic[P, F, Q]):
    about: ClassVar[str] = "a posterior of your own: --posterior FILE.py:NAME"

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    posterior: Q = field(default_factory=NoPosterior)  # type: ignore[assignment]

    def prior(self, request: Request) -> Prior:
        return known_prior(made_for(request.domain, self.posterior))
