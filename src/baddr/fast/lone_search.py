"""PO-UCT of few runs on a CPU: one simulation after the other, a loop down its path and a loop up again.

`planners.round_trip` with one in flight: the same random numbers, and the same values. What many in flight
are for, a wide step, a CPU does not need where each simulation has weights of its own to fetch. So nothing is
computed that nobody looks at: no idle place steps, and where a simulation is below the tree or ends there is
no observation (with networks half of a step). The loop down only reads the tree, the loop up only writes what
it has read in the same step: XLA copies neither.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import Particles
from baddr.core.planner import Plan
from baddr.core.pomdp import POMDP, Dynamics
from baddr.fast.dropout_models import DropoutModels
from baddr.fast.models import FrozenModels, PartialModels
from baddr.planners.children import IN_PLACE, no_children
from baddr.planners.round_trip import Path, Tree, back_up_level, must_try, node_or_spare
from baddr.planners.simulation import (
    Problem,
    Roots,
    Simulation,
    Step,
    choose,
    has_leaf,
    keys_of,
    leaf_values,
    moved,
    power,
    start_simulation,
    take_step,
)
from baddr.planners.tree_search import TreeSearch, problem_of


class World(NamedTuple):
    """What a simulation runs in."""

    belief: Particles  # of all runs
    draw: PyTree
    limit: Int[Array, ""]  # of its depth


class Down(NamedTuple):
    """A simulation on its way down. Arrays of simulations have an axis of one place."""

    now: Simulation
    path: Path
    slot: Int[Array, "1"]  # where its new node belongs; of a simulation that has made none yet, anything
    o: Int[Array, "1 observation_features"]  # that led there
    made: Bool[Array, "1"]
    must_try: Float[Array, "1"]  # actions there
    below: Float[Array, "1"]  # what the new node is worth, where a domain says so


def search_alone(
    keys: Key[Array, " runs"],
    how: TreeSearch,
    pomdp: POMDP,
    belief: Particles,
    roots: Roots,
    steps_left: Int[Array, " runs"],
    active: Bool[Array, " runs"],
) -> Plan:
    """Run after run. Theta of all runs are one stack: none is copied."""
    problem = problem_of(how, pomdp, 1)._replace(in_flight=1, places=1)
    flat = lambda tree: jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:2]), *x.shape[2:]), tree)
    runs, particles = belief.log_weights.shape
    first = particles * jnp.arange(runs, dtype=jnp.int32)
    s, draw = roots
    if problem.samples_roots and not isinstance(draw, Dynamics):
        draw = draw[0] + first[:, None], *draw[1:]
    stack, limit = flat(belief), jnp.minimum(problem.depth, steps_left)

    def one(x: tuple[Any, ...]) -> Plan:
        key, roots, limit, active = x
        tree, steps = grow(key, problem, stack, roots, limit, active)
        N, total = tree.sums[: pomdp.num_actions, 0], tree.sums[: pomdp.num_actions, 1]
        return Plan(total / jnp.maximum(N, 1), N, tree.size, steps)

    return jax.lax.map(one, (keys, (s, draw), limit, active))


def grow(
    key: Key[Array, ""],
    problem: Problem,
    belief: Particles,
    roots: Roots,
    limit: Int[Array, ""],
    active: Bool[Array, ""],
) -> tuple[Tree, Int[Array, ""]]:
    """The tree of all simulations, and how many steps they took."""
    pomdp, n = problem.pomdp, problem.num_simulations
    children = no_children(n + 1, pomdp.num_actions, pomdp.observation_sizes)
    tree = Tree(jnp.zeros((problem.num_entries + 1, 3)), jnp.zeros((n + 2, 5)), children, jnp.int32(1))

    def simulate(number: Int[Array, ""], carry: tuple[Tree, Int[Array, ""]]) -> tuple[Tree, Int[Array, ""]]:
        tree, steps = carry
        start = set_out(problem, roots, number, steps)
        world = World(belief, cut_out(problem, belief, start.now.draw), limit)
        down = go_down(key, problem, world, tree, start)
        return back_up(problem, *expand(problem, tree, down)), down.now.steps[0]

    return jax.lax.fori_loop(0, jnp.where(active, n, 0), simulate, (tree, jnp.int32(0)))


def set_out(problem: Problem, roots: Roots, number: Int[Array, ""], steps: Int[Array, ""]) -> Down:
    """Simulation `number` at the root, after so many steps of all before it."""
    now = jax.tree.map(lambda x: x[None], start_simulation(problem, roots, number, steps))
    none, nothing, off = jnp.zeros((1,), jnp.int32), jnp.zeros((1,)), jnp.zeros((1,), bool)
    levels = jnp.zeros((1, problem.depth + 1))
    path = Path(levels.astype(jnp.int32), levels, none, none, nothing)
    o = jnp.zeros((1, len(problem.pomdp.observation_sizes)), jnp.int32)
    return Down(now, path, none, o, off, nothing, nothing)


def cut_out(problem: Problem, belief: Particles, draw: PyTree) -> PyTree:
    """The draw of a simulation. Networks read all of their weights in every step: they are fetched here, once
    for all steps."""
    draw = jax.tree.map(lambda x: x[0], draw)
    models: Any = getattr(problem.pomdp, "models", None)
    if isinstance(draw, Dynamics) or not problem.samples_roots or not has_networks(models):
        return draw
    return models.dynamics(belief.states.theta, *draw)


def has_networks(models: Any) -> bool:
    """Whether a particle has networks of its own, for one half of D at least."""
    if isinstance(models, FrozenModels):
        return has_networks(models.inner)
    if isinstance(models, PartialModels):
        return has_networks(models.transition) or has_networks(models.observation)
    return isinstance(models, DropoutModels)


def go_down(key: Key[Array, ""], problem: Problem, world: World, tree: Tree, start: Down) -> Down:
    """The simulation at its end."""

    def body(down: Down) -> Down:
        now = down.now
        keys = keys_of(problem, jr.fold_in(key, now.steps[0]))
        a = choose(problem, keys, tree.sums, now)
        step = wanted_step(problem, world, keys[0, 2], now, a)
        return follow(problem, tree, world.limit, down, a, step)

    return jax.lax.while_loop(lambda down: down.now.running[0], body, start)


def wanted_step(
    problem: Problem, world: World, key: Key[Array, ""], now: Simulation, a: Int[Array, "1"]
) -> Step:
    """A step, with an observation where somebody looks at it."""
    alone = jax.tree.map(lambda x: x[0], now._replace(draw=()))._replace(draw=world.draw)
    step = lambda: take_step(problem, world.belief, world.limit, key, alone, a[0])
    blank = jnp.zeros((len(problem.pomdp.observation_sizes),), jnp.int32)
    looks = alone.in_tree & (alone.level + 1 < world.limit)
    found = jax.lax.cond(looks, step, lambda: step()._replace(o=blank))
    return jax.tree.map(lambda x: x[None], found)


def follow(
    problem: Problem, tree: Tree, limit: Int[Array, ""], down: Down, a: Int[Array, "1"], step: Step
) -> Down:
    """The simulation after a step: at a child that is known, or below the tree."""
    now, path, gamma = down.now, down.path, problem.pomdp.discount
    entry = now.node * problem.pomdp.num_actions + a
    found, slot = jax.vmap(tree.children.find)(entry, step.o)
    goes_on = now.in_tree & ~step.end
    found, new = jnp.where(goes_on, found, 0), goes_on & (found == 0)
    after = moved(now, found, step, step.end | new if has_leaf(problem) else step.end, gamma)
    level = jnp.where(now.in_tree, now.level, problem.depth)[0]
    path = path._replace(
        entry=path.entry.at[0, level].set(jnp.where(now.in_tree, entry, problem.num_entries)[0], **IN_PLACE),
        r=path.r.at[0, level].set(step.r[0], **IN_PLACE),
        levels=path.levels + now.in_tree.astype(jnp.int32),
        before=jnp.where(new, after.total, path.before),
    )
    below = down.below
    if has_leaf(problem):
        below = jnp.where(new, leaf_values(problem, step.s_next, limit - now.level - 1), below)
    here = slot, step.o, new, must_try(problem, step), below
    there = down.slot, down.o, down.made, down.must_try, down.below
    pick = lambda x, y: jnp.where(new.reshape(1, *(1,) * (x.ndim - 1)), x, y)
    return Down(after, path, *jax.tree.map(pick, here, there))


def expand(problem: Problem, tree: Tree, down: Down) -> tuple[Tree, Path, Float[Array, "1"]]:
    """The tree with the simulation's new node, its path, and what it found below."""
    now, path = down.now, down.path
    last = path.entry[:, jnp.maximum(path.levels[0] - 1, 0)]
    children, leaf, size = tree.children.put(down.slot, last, down.o, down.made, tree.size)
    at = node_or_spare(problem, down.made, leaf)
    nodes = tree.nodes.at[at, 4].set(down.must_try, **IN_PLACE)
    below = down.below
    if not has_leaf(problem):
        below = (now.total - path.before) / power(problem.pomdp.discount, path.levels)
    below = jnp.where(down.made, below, 0)
    return Tree(tree.sums, nodes, children, size), path._replace(leaf=leaf), below


def back_up(problem: Problem, tree: Tree, path: Path, below: Float[Array, "1"]) -> Tree:
    """The way back, level by level."""

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        level, sums, nodes = carry
        return level - 1, *back_up_level(problem, sums, nodes, path, (level, path.levels), below)

    start = path.levels, tree.sums, tree.nodes
    _, sums, nodes = jax.lax.while_loop(lambda carry: carry[0][0] > 0, body, start)
    return tree._replace(sums=sums, nodes=nodes)
