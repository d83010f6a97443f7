"""A2C with a GRU: DPFRL without its particle filter. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar

from baddr.agents.base import Built, Request
from baddr.agents.learners.settings import DPFRL, Learning


@dataclass(frozen=True)
class A2c(Learning):
    about: ClassVar[str] = "dpfrl with a GRU in place of the particle filter"

    dpfrl: DPFRL = field(default_factory=DPFRL)

    def build(self, request: Request) -> Built:
        return self.learner(request, self.dpfrl, particles=False)

    def seconds_per_step(self, platform: str) -> float:
        return self.seconds(platform, 3)  # about what the GRU costs
