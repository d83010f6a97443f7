"""`baddr belief DOMAIN`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from baddr.cli.history import after_history, refuse_prior, with_setting
from baddr.cli.options import Debug, Device, Flat, History
from baddr.cli.parse import parse_with_domain

E = TypeVar("E")


@dataclass(frozen=True)
class Belief(Generic[E]):
    """Print the belief after a given history as JSON.

    examples:
      baddr belief tiger --agent ba-pomcp --history history.json --particles 10000
    """

    experiment: Flat[E]
    history: History = None
    particles: int | None = None
    """Number of particles in the belief; the same as --filter.num-particles."""
    device: Device = "auto"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Belief, "belief", arguments, Belief)
    experiment = with_setting(options.experiment, "filter", "num_particles", options.particles)
    refuse_prior(experiment, "belief")
    key, agent, domain, after = after_history(experiment, options.history, options.device)
    from baddr.lab.history import belief_json

    print(json.dumps(belief_json(key, agent, domain, after.belief)))
    return 0
