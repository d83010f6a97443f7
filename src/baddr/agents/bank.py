"""Exact Bayes over simulators drawn from the prior: GBAPOMDP(pomdp, Bank(members)). Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Request
from baddr.core.filters import Importance
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import BankSettings


@dataclass(frozen=True)
class Bank(Bayesian, Generic[P, F]):
    about: ClassVar[str] = "exact weights over simulators drawn from a wide prior: no networks"
    variant: ClassVar[str] = "bank"
    needs: ClassVar[str | None] = "sample_simulator"
    shares: ClassVar[bool] = True
    moves: ClassVar[bool] = True

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    bank: BankSettings = field(default_factory=BankSettings)

    def prior(self, request: Request) -> Prior:
        from baddr.agents.members import bank_prior

        return bank_prior(request, self.bank, self.filter)
