"""Simulations that go down the tree and back up: for many in flight, and for Bellman's equation.

An entry (h, a) keeps N, the visits that have come back, and T = sum of r + gamma sum over o of n_o V_o, so
Q = T / N; a child has n_o visits of value V_o. With backup `mean` V is the mean of a node's returns, so Q is
the mean of returns, too. With `max` it is the largest Q, if every action was tried there, and the mean
before. A mean forever remembers what exploration tried and threw away; a maximum forgets it.

Where a simulation has ended it goes back up at once, level by level. There it brings its parent the child's
value as it is now, for this visit and all before it: T += r + gamma ((n + 1) V_new - n V_old). A new node's
first value is `leaf_value` or `upper`, or the return of the rollout from it. One simulation makes a node;
others that arrive with it are in the tree there, as if they had come later.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles
from baddr.planners.children import IN_PLACE, Children, no_children
from baddr.planners.choice import seen_from
from baddr.planners.simulation import (
    Flags,
    Places,
    Problem,
    Roots,
    Simulation,
    Step,
    add_rows,
    choose,
    has_leaf,
    keys_of,
    leaf_values,
    moved,
    power,
    start_simulation,
    state_of,
    take_step,
    where,
)

# Simulations that have ended, for each that may be in flight beyond one for each action.
FINISHED_PER_PLACE = 4


class Tree(NamedTuple):
    """Node 0 is the root. The last slots take the writes that do not count."""

    sums: Float[Array, "slots 3"]  # per (node, a): N, T, and visits that were chosen
    # Per node: visits n, and n V as the parent has it; first values, how many and their sum; how many actions
    # must be tried before the best of them counts.
    nodes: Float[Array, "nodes 5"]
    children: Children  # from (node, a) and o to a node
    size: Int[Array, ""]


class Path(NamedTuple):
    """The way of a simulation through the tree, and what it found below."""

    entry: Int[Array, "*places levels"]  # (h, a) at each level; the last one is spare
    r: Float[Array, "*places levels"]
    levels: Int[Array, "*places"]  # in the tree
    leaf: Int[Array, "*places"]  # the node that it has made; the spare one where it has made none
    before: Float[Array, "*places"]  # discounted rewards when it came there


class Search(NamedTuple):
    """A run's tree, and its simulations in flight, stacked."""

    tree: Tree
    now: Simulation
    path: Path
    started: Int[Array, ""]  # simulations started so far

    @property
    def works(self) -> Bool[Array, "*runs places"]:
        return self.now.running


class Arrival(NamedTuple):
    """Where simulations have come to in the tree."""

    entry: Places  # (h, a); the spare one below the tree
    child: Places  # the node of (h, a, o); 0 where there is none
    new: Flags  # it was made by this simulation


def iterate(
    problem: Problem,
    keys: Key[Array, " runs"],
    roots: Roots,
    belief: Particles,
    limit: Int[Array, " runs"],
    runs: Search,
) -> Search:
    """A step of every simulation in flight: choose, step, expand; back up those that ended, start others."""
    runs, ended, below = jax.vmap(partial(go_down, problem))(keys, roots, belief, limit, runs)
    tree = back_up(problem, runs.tree, runs.path, ended, below)
    return jax.vmap(partial(start_more, problem))(roots, runs._replace(tree=tree))


def go_down(
    problem: Problem,
    key: Key[Array, ""],
    roots: Roots,
    belief: Particles,
    limit: Int[Array, ""],
    run: Search,
) -> tuple[Search, Flags, Float[Array, " places"]]:
    """A step of a run's simulations; which of them have ended, and what those found below their leaves."""
    tree, now, path, started = run
    gamma = problem.pomdp.discount
    keys = keys_of(problem, key)
    a = choose(problem, keys, tree.sums, now)
    step = jax.vmap(partial(take_step, problem, belief, limit))(keys[:, 2], now, a)
    tree, at = arrive(problem, tree, now, a, step)
    end = step.end | at.new if has_leaf(problem) else step.end
    after = moved(now, jnp.where(at.new, 0, at.child), step, end, gamma)
    path = follow(problem, path, now, at, step.r, after.total)
    if has_leaf(problem):
        below = jnp.where(at.new, leaf_values(problem, step.s_next, limit - now.level - 1), 0)
    else:
        below = jnp.where(now.in_tree, 0, (after.total - path.before) / power(gamma, path.levels))
    return Search(tree, after, path, started), now.running & end, below


def arrive(problem: Problem, tree: Tree, now: Simulation, a: Places, step: Step) -> tuple[Tree, Arrival]:
    """Find or make the child of those that go on in the tree."""
    on_tree = now.running & now.in_tree
    goes_on = on_tree & ~step.end
    entry = now.node * problem.pomdp.num_actions + a
    found, slot = jax.vmap(tree.children.find)(entry, step.o)
    found = jnp.where(goes_on, found, 0)
    absent = goes_on & (found == 0)
    children, made, size = tree.children.put(slot, entry, step.o, absent, tree.size)
    new = absent & ((made == 0) | is_first(made, absent))
    entry = jnp.where(on_tree, entry, problem.num_entries)
    at = Arrival(entry, jnp.where(found > 0, found, made), new)
    sums = add_rows(tree.sums, entry, jnp.tile(jnp.array([0.0, 0.0, 1.0]), (problem.places, 1)))
    nodes = tree.nodes.at[node_or_spare(problem, new, at.child), 4].set(must_try(problem, step), **IN_PLACE)
    return Tree(sums, nodes, children, size), at


def node_or_spare(problem: Problem, is_one: Flags, node: Places) -> Places:
    return jnp.where(is_one & (node > 0), node, problem.num_simulations + 1)


def must_try(problem: Problem, step: Step) -> Float[Array, " places"]:
    """How many actions count at the nodes that are new, by the s that first came there."""
    nothing = jnp.zeros((problem.places, problem.pomdp.num_actions))
    see = partial(seen_from, problem.hooks)
    seen = jax.vmap(see)(state_of(step.s_next), nothing, nothing, nothing[:, 0])
    masks = [mask for mask in (seen.preferred, seen.legal) if mask is not None]
    return jnp.sum(masks[0] if masks else nothing == 0, axis=1).astype(jnp.float32)


def is_first(x: Places, among: Flags) -> Flags:
    """Of those with equal x, among some: the first."""
    first = jnp.argmax((x[:, None] == x[None]) & among[None], axis=1).astype(jnp.int32)
    return among & (first == jnp.arange(x.shape[0], dtype=jnp.int32))


def back_up(
    problem: Problem,
    tree: Tree,
    path: Path,
    ended: Bool[Array, "runs places"],
    below: Float[Array, "runs places"],
) -> Tree:
    """The way back of those that ended, level by level, in all runs: a loop for each would be one that
    selects between whole trees."""
    levels = jnp.where(ended, path.levels, 0)
    one = jax.vmap(partial(back_up_level, problem))

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        level, sums, nodes = carry
        return level - 1, *one(sums, nodes, path, (level, levels), below)

    start = levels, tree.sums, tree.nodes
    _, sums, nodes = jax.lax.while_loop(lambda carry: jnp.any(carry[0] > 0), body, start)
    return tree._replace(sums=sums, nodes=nodes)


def back_up_level(
    problem: Problem,
    sums: Float[Array, "slots 3"],
    nodes: Float[Array, "nodes 5"],
    path: Path,
    at: tuple[Places, Places],
    below: Float[Array, " places"],
) -> tuple[Float[Array, "slots 3"], Float[Array, "nodes 5"]]:
    """A visit of the entry at level `at[0]` - 1 of `at[1]`: its reward, and what its child is worth now."""
    level, levels = at
    up, at_leaf = level > 0, level == levels
    look_up = jax.vmap(lambda row, j: row[j])
    j = jnp.maximum(level - 1, 0)
    child = jnp.where(at_leaf, path.leaf, look_up(path.entry, j + 1) // problem.pomdp.num_actions)
    child = node_or_spare(problem, up, child)
    here, inner = nodes[child], up & ~at_leaf
    V = jax.vmap(partial(value, problem, sums))(jnp.where(inner, child, 0), here)
    # All who come back from a child bring V; the first of them brings the visits before it up to that, too.
    change = V + jnp.where(is_first(child, inner), here[:, 0] * V - here[:, 1], 0)
    change = jnp.where(at_leaf, below, change)
    one, new = jnp.ones_like(change), at_leaf.astype(jnp.float32)
    T = look_up(path.r, j) + problem.pomdp.discount * change
    entry = jnp.where(up, look_up(path.entry, j), problem.num_entries)
    to_node = jnp.stack([one, change, new, new * change, jnp.zeros_like(one)], axis=1)
    sums = add_rows(sums, entry, jnp.stack([one, T, jnp.zeros_like(one)], axis=1))
    return sums, add_rows(nodes, child, to_node)


def value(problem: Problem, sums: Array, node: Int[Array, ""], here: Float[Array, "5"]) -> Float[Array, ""]:
    """V of a node: the mean of all returns, or max Q where all actions that count were tried."""
    A = problem.pomdp.num_actions
    rows = jax.lax.dynamic_slice(sums, (node * A, 0), (A, 3))
    N, T = rows[:, 0], rows[:, 1]
    mean = (here[3] + jnp.sum(T)) / jnp.maximum(here[2] + jnp.sum(N), 1)
    if problem.backup == "mean":
        return mean
    tried = jnp.sum(N > 0).astype(jnp.float32)
    best = jnp.max(jnp.where(N > 0, T / jnp.maximum(N, 1), -jnp.inf))
    return jnp.where(tried >= here[4], best, mean)


def follow(
    problem: Problem, path: Path, now: Simulation, at: Arrival, r: Array, total: Float[Array, " places"]
) -> Path:
    """The paths after a step, which are a level longer in the tree."""
    on_tree = now.running & now.in_tree
    level = jnp.where(on_tree, now.level, problem.depth)
    leave = jax.vmap(lambda row, j, x: row.at[j].set(x, **IN_PLACE))
    return path._replace(
        entry=leave(path.entry, level, at.entry),
        r=leave(path.r, level, r),
        levels=path.levels + on_tree.astype(jnp.int32),
        leaf=jnp.where(at.new, at.child, path.leaf),
        before=jnp.where(at.new, total, path.before),
    )


def start_more(problem: Problem, roots: Roots, run: Search) -> Search:
    """Start simulations in free places: at first one for each action, then so many that returns are known of
    most (FINISHED_PER_PLACE). What is chosen before any return is known is wasted, and stays in the means."""
    now, path = run.now, run.path
    free = ~now.running
    flying = problem.places - jnp.sum(free, dtype=jnp.int32)
    target = problem.pomdp.num_actions + (run.started - flying) // FINISHED_PER_PLACE
    rank = jnp.cumsum(free, dtype=jnp.int32) - 1
    number = run.started + rank
    starts = free & (rank < jnp.minimum(target, problem.in_flight) - flying)
    starts = starts & (number < problem.num_simulations)
    start = jax.vmap(partial(start_simulation, problem), in_axes=(None, 0, 0))
    now = jax.vmap(where)(starts, start(roots, number, now.steps), now)
    path = path._replace(levels=jnp.where(starts, 0, path.levels), leaf=jnp.where(starts, 0, path.leaf))
    return Search(run.tree, now, path, run.started + jnp.sum(starts, dtype=jnp.int32))


def first(problem: Problem, active: Bool[Array, ""], roots: Roots) -> Search:
    """A run's search before its first iteration."""
    places, n, pomdp = problem.places, problem.num_simulations, problem.pomdp
    none, nothing, off = jnp.zeros((places,), jnp.int32), jnp.zeros((places,)), jnp.zeros((places,), bool)
    now = jax.vmap(partial(start_simulation, problem, roots))(none, none)._replace(running=off)
    children = no_children(n + 1, pomdp.num_actions, pomdp.observation_sizes)
    tree = Tree(jnp.zeros((problem.num_entries + 1, 3)), jnp.zeros((n + 2, 5)), children, jnp.int32(1))
    levels = jnp.zeros((places, problem.depth + 1))
    path = Path(levels.astype(jnp.int32), levels, none, none, nothing)
    return start_more(problem, roots, Search(tree, now, path, jnp.where(active, 0, n)))
