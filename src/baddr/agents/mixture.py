"""The posteriors of several agents at once: GBAPOMDP(pomdp, Mixture(parts)). Needs no JAX."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Generic

from baddr.agents.base import Bayesian, F, P, Prior, Progress, Request
from baddr.core.filters import Importance
from baddr.errors import UserError
from baddr.planners.po_uct import PoUct
from baddr.posteriors.settings import BankSettings, LatentSettings, MixtureSettings, Network, Pretrain


@dataclass(frozen=True)
class Mixture(Bayesian, Generic[P, F]):
    about: ClassVar[str] = (
        "several agents' posteriors at once, weighted by how well each predicts: for a wrong prior"
    )
    variant: ClassVar[str] = "mixture"
    needs: ClassVar[str | None] = "expected_simulator"
    shares: ClassVar[bool] = True

    planner: P = field(default_factory=PoUct)  # type: ignore[assignment]
    filter: F = field(default_factory=Importance)  # type: ignore[assignment]
    mixture: MixtureSettings = field(default_factory=MixtureSettings)
    # Groups of the agents that it may be a mixture of: each takes those it has, and defaults for the others.
    latent: LatentSettings = field(default_factory=LatentSettings)
    bank: BankSettings = field(default_factory=BankSettings)
    network: Network = field(default_factory=Network)
    pretrain: Pretrain = field(default_factory=Pretrain)

    def prior(self, request: Request) -> Prior:
        from baddr.posteriors.mixture import Mixture as Parts

        priors = [part.prior(request) for part in self.parts()]
        total = sum(self.mixture.weights)
        weights = tuple(w / total for w in self.mixture.weights)

        def train(progress: Progress | None):
            trained = [prior.train(progress) for prior in priors]
            tests = [test for _, test in trained if test is not None]
            return Parts(tuple(posterior for posterior, _ in trained), weights), tests[0] if tests else None

        parts = Parts(tuple(prior.like for prior in priors), weights)
        return Prior(parts, train, max(prior.bytes for prior in priors))

    def parts(self) -> list[Bayesian]:
        """The agents whose posteriors are mixed, with the settings that they share with this one."""
        from baddr.agents.kinds import agent_class

        found, mine = [], self.groups()
        for name in self.mixture.of:
            cls = agent_class(name)
            if not issubclass(cls, Bayesian) or not cls.learns or cls is type(self) or name == "own":
                raise UserError(f"--mixture.of {name}: the posterior of this agent cannot be mixed.")
            shared = {f.name: mine[f.name] for f in fields(cls) if f.name in mine}  # type: ignore[arg-type]
            found.append(cls(**shared))
        return found
