"""Can an agent work with this posterior, filter or planner? Shapes and types, in sentences.

Everything here is traced and nothing computed: agents ask before an experiment starts. `agents.trials` goes
on with values.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from baddr import prng
from baddr.agents.base import is_own
from baddr.core.belief_update import Info, initial_belief
from baddr.core.filters import Filter
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP, Dynamics
from baddr.core.posterior import Posterior
from baddr.domains.shapes import SEED, Kind, Problems, dynamics_shapes, short, zeros
from baddr.errors import UserError

RUNS = 2  # that a planner is shown
NUM_PARTICLES = 4  # of their beliefs
PLAN, UPDATE = (
    "plan(keys, pomdp, belief, steps_left, active)",
    "update(key, gba, belief, a, o, learn, active)",
)
LEARN = "update(key, theta, s, a, s', o)"
NUMBERS = jax.Array | np.ndarray | np.generic | float | int  # what a leaf of theta may be


class _Wrong(Exception):
    """A mistake, in a sentence, after which there is nothing more to look at."""


def refuse_malformed(groups: Mapping[str, Any], gba: GBAPOMDP, filter: Any, planner: Any) -> None:
    """One sentence about a posterior, filter or planner of the user's own that no agent could work with."""
    structure = {
        "posterior": lambda: posterior_structure(gba.posterior, gba.pomdp),
        "filter": lambda: filter_structure(filter, gba),
        "planner": lambda: planner_structure(planner, gba),
    }
    for group, problems in structure.items():
        kind = type(groups.get(group))
        if group in groups and is_own(groups[group]) and (wrong := problems()):
            raise UserError(f"{getattr(kind, 'source', kind.__name__)}: {'; '.join(wrong)}.")


def posterior_structure(posterior: Any, pomdp: POMDP) -> list[str]:
    """What is wrong with the members of a posterior, their types and their shapes."""
    if not isinstance(posterior, Posterior):
        return [f"the posterior is of type {type(posterior).__name__}, not a baddr Posterior"]
    return _traced(lambda key: _posterior_shapes(key, posterior, pomdp))


def planner_structure(planner: Any, gba: GBAPOMDP) -> list[str]:
    """What is wrong with a planner's plan, its types and its shapes."""
    if not isinstance(planner, Planner):
        return [f"the planner is of type {type(planner).__name__}, not a baddr Planner"]
    return _traced(lambda key: _plan_shapes(key, planner, gba))


def filter_structure(filter: Any, gba: GBAPOMDP) -> list[str]:
    """What is wrong with the members of a filter, their types and their shapes."""
    if not isinstance(filter, Filter):
        return [
            f"the filter is of type {type(filter).__name__}, not a baddr Filter: it needs num_particles, "
            "learn_terminal and update"
        ]
    n = filter.num_particles
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        return [f"num_particles must be a positive integer, not {n!r}"]
    try:
        hash(filter)
    except TypeError:
        return [f"{type(filter).__name__} cannot be hashed: make it a frozen dataclass of plain values"]
    return _traced(lambda key: _update_shapes(key, filter, gba))


def _traced(look: Callable[[Key[Array, ""]], Problems]) -> list[str]:
    """What `look` tells of values that are tracers."""
    wrong: list[str] = []

    def trace(key: Key[Array, ""]) -> None:
        try:
            for sentence in look(key):
                wrong.append(sentence)
        except _Wrong as error:
            wrong.append(str(error))

    jax.eval_shape(trace, prng.key(SEED))
    return wrong


def _called(member: str, f: Callable[..., Any], *arguments: Any) -> Any:
    """What f gives; an exception as a sentence."""
    try:
        return f(*arguments)
    except Exception as error:
        raise _Wrong(f"{member} raised {short(error)}") from error


def _arrays(member: str, f: Callable[..., Any], *arguments: Any) -> PyTree:
    """The pytree of arrays that f gives."""
    tree = _called(member, f, *arguments)
    for leaf in jax.tree.leaves(tree):
        if not isinstance(leaf, NUMBERS):
            kind = type(leaf).__name__
            raise _Wrong(f"{member} must return a pytree of arrays, and one leaf is of type {kind}")
    return jax.tree.map(jnp.asarray, tree)


def _posterior_shapes(key: Key[Array, ""], posterior: Posterior, pomdp: POMDP) -> Problems:
    """posterior: shapes and types of what its methods return; U leaves the structure of theta as it is"""
    s, a, o = zeros(pomdp)
    theta = _arrays("prior(key)", posterior.prior, key)
    epsilon = _arrays("draw(key, theta)", posterior.draw, key, theta)
    D = _called("dynamics(theta, epsilon)", posterior.dynamics, theta, epsilon)
    if isinstance(D, Dynamics):
        yield from dynamics_shapes("dynamics(theta, epsilon)", D, pomdp)
    else:
        yield f"dynamics(theta, epsilon) must return a baddr Dynamics, not a value of type {type(D).__name__}"
    yield from _changed(f"{LEARN}, theta", theta, _arrays(LEARN, posterior.update, key, theta, s, a, s, o))


def _plan_shapes(key: Key[Array, ""], planner: Planner, gba: GBAPOMDP) -> Problems:
    """planner: shapes and types of its plan"""
    keys, steps_left = jr.split(key, RUNS), jnp.full((RUNS,), gba.horizon, jnp.int32)
    belief = jax.vmap(lambda key: initial_belief(key, gba, NUM_PARTICLES))(keys)
    plan = _called(PLAN, planner.plan, keys, gba, belief, steps_left, jnp.ones((RUNS,), bool))
    if not isinstance(plan, Plan):
        yield f"{PLAN} must return a baddr Plan, not a value of type {type(plan).__name__}"
        return
    each_action = Kind("runs, actions", (RUNS, gba.num_actions), jnp.floating)
    each_run = Kind("runs", (RUNS,), jnp.int32)
    upper = None if plan.upper is None else each_action
    wanted = Plan(each_action, each_action, each_run, each_run, upper)  # type: ignore[arg-type]
    yield from _fields("plan", plan, wanted)


def _update_shapes(key: Key[Array, ""], filter: Filter, gba: GBAPOMDP) -> Problems:
    """filter: shapes and types of the next belief and of its Info"""
    belief, (_, a, o), yes = initial_belief(key, gba, filter.num_particles), zeros(gba.pomdp), jnp.array(True)
    out = _called(UPDATE, filter.update, key, gba, belief, a, o, yes, yes)
    pair = out if isinstance(out, tuple) and len(out) == 2 else (out, None)
    if not isinstance(pair[0], Particles) or not isinstance(pair[1], Info):
        yield f"{UPDATE} must return Particles and their Info, not a value of type {type(out).__name__}"
        return
    yield from _changed(f"{UPDATE}, the belief", belief, pair[0])
    number, count, flag = (Kind("a scalar", (), kind) for kind in (jnp.floating, jnp.int32, jnp.bool_))
    tells = getattr(filter, "tells_ancestors", False)
    each = Kind("particles", (filter.num_particles,), jnp.int32) if tells else None
    wanted = Info(number, number, count, flag, count, flag, each)  # type: ignore[arg-type]
    yield from _fields("info", pair[1], wanted)


def _fields(name: str, values: Any, wanted: Any) -> Problems:
    """The fields of a NamedTuple against the kinds that they must be."""
    for field, value, kind in zip(values._fields, values, wanted, strict=True):
        if kind is None:
            continue
        if sentence := kind.problem(f"{name}.{field}", value):
            yield sentence


def _changed(member: str, before: PyTree, after: PyTree) -> Problems:
    """Whether a tree has other leaves than it had before."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield f"{member} must keep its structure: {_short_structure(before)}, not {_short_structure(after)}"
        return
    described = lambda x: f"{x.dtype} of shape {x.shape}"
    named = jax.tree_util.tree_leaves_with_path(before)
    for (path, x), y in zip(named, jax.tree.leaves(after), strict=True):
        if described(x) != described(y):
            leaf = jax.tree_util.keystr(path)
            yield f"{member}{leaf} must stay {described(x)}, not become {described(y)}"


def _short_structure(tree: PyTree) -> str:
    return str(jax.tree.structure(tree)).removeprefix("PyTreeDef(").removesuffix(")")[:100]


STRUCTURE = {"posterior": _posterior_shapes, "planner": _plan_shapes, "filter": _update_shapes}
