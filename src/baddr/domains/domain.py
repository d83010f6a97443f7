"""A learning problem as the command line knows it: the truth, and what the agent knows before."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State
from baddr.domains.entry import Names, Preset
from baddr.domains.render import Renderer
from baddr.files.settings import problems, refuse
from baddr.posteriors import Counts, Graph, Posterior
from baddr.posteriors.sparse_dirichlet import SparseCounts

P = ParamSpec("P")
S = TypeVar("S")
Describe = Callable[[Key[Array, ""], Posterior, Particles], dict[str, Any]]


@dataclass(frozen=True)
class Domain:
    """The true POMDP, and the prior knowledge about it that agents start from."""

    name: str
    pomdp: POMDP
    sample_simulator: Callable[[Key[Array, ""]], Dynamics] | None = None  # M ~ the simulators' distribution
    expected_simulator: Dynamics | None = None  # its expected model
    counts: Counts | SparseCounts | None = None  # the tabular prior, where a table fits
    graphs: Mapping[str, Graph] = field(default_factory=dict)  # the factored priors; the first is the default
    is_legal: Callable[[State], Bool[Array, ""]] | None = None  # the states to train networks on; None: all
    learned: str = "TO"  # the halves of D that networks learn; the other one is given
    leaf_value: Callable[[State], Scalar] | None = None  # estimates the value below the tree; None: rollouts
    rollout: Callable[[Key[Array, ""], State], Action] | None = None  # the policy below it; None: random
    legal: Callable[[State], Bool[Array, " A"]] | None = None  # the actions that are allowed; None: all
    # (s, steps left): a bound on V from below, the value of a policy, or those of several
    lower: Callable[[State, Int[Array, ""]], Scalar | Float[Array, " policies"]] | None = None
    # and one from above, or those of several ways to go on, one of which every policy takes
    upper: Callable[[State, Int[Array, ""]], Scalar | Float[Array, " policies"]] | None = None
    preferred: Callable[[State], Bool[Array, " A"]] | None = None  # those a planner should try first
    describe: Describe | None = None  # the belief's `model` entry
    # (s, a, s', o): which entries of what `describe` tells a real step shows something of, by NAME
    shows: Callable[[State, Action, State, Observation], dict[str, Bool[Array, " entries"]]] | None = None
    names: Names | None = None  # what its numbers mean; None: numbers for names
    renderer: Renderer | None = None  # how it looks; None: a table of its features
    presets: Mapping[str, Preset] = field(default_factory=dict)  # `quick`, `paper`: of a user's own domain


def takes_fields_of(kind: Callable[P, S]) -> Callable[[Callable[[S], Domain]], Callable[P, Domain]]:
    """`make_domain` takes the fields of its settings: these, their defaults and their checks stand once.

    make_domain(accuracy=0.9) makes the domain of TigerSettings(accuracy=0.9).
    """

    def decorate(make: Callable[[S], Domain]) -> Callable[P, Domain]:
        def make_domain(*values: P.args, **fields: P.kwargs) -> Domain:
            settings = kind(*values, **fields)
            refuse(problems(settings, "domain."), less="domain.")
            return make(settings)

        make_domain.__doc__, make_domain.__module__ = make.__doc__, make.__module__
        make_domain.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
        return make_domain

    return decorate
