"""A learning problem as the command line knows it: the truth, and what the agent knows before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Bool, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Dynamics, Scalar, State
from baddr.domains.render import Renderer
from baddr.posteriors import Counts, Graph, Posterior

Describe = Callable[[Key[Array, ""], Posterior, Particles], dict[str, Any]]


@dataclass(frozen=True)
class Domain:
    """The true POMDP, and the prior knowledge about it that agents start from."""

    name: str
    pomdp: POMDP
    sample_simulator: Callable[[Key[Array, ""]], Dynamics] | None = None  # M ~ the simulators' distribution
    expected_simulator: Dynamics | None = None  # its expected model
    counts: Counts | None = None  # the tabular prior, where a table fits
    graphs: Mapping[str, Graph] = field(default_factory=dict)  # the factored priors; the first is the default
    is_legal: Callable[[State], Bool[Array, ""]] | None = None  # the states to train networks on; None: all
    learned: str = "TO"  # the halves of D that networks learn; the other one is given
    leaf_value: Callable[[State], Scalar] | None = None  # estimates the value below the tree; None: rollouts
    describe: Describe | None = None  # the belief's `model` entry
    renderer: Renderer | None = None  # how it looks; None: as `domains.render` knows it, or a table
