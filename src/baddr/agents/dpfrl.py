"""DPFRL (Ma et al. 2020): the paper's baseline. Needs no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar

from baddr.agents.base import Built, Request
from baddr.agents.learners.settings import DPFRL, Learning


@dataclass(frozen=True)
class Dpfrl(Learning):
    about: ClassVar[str] = (
        "a learned particle filter and actor-critic: no prior, no model; the paper's baseline"
    )

    dpfrl: DPFRL = field(default_factory=DPFRL)

    def build(self, request: Request) -> Built:
        return self.learner(request, self.dpfrl, particles=True)

    def seconds_per_step(self, platform: str) -> float:
        return self.seconds(platform, self.dpfrl.num_particles)
