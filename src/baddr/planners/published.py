"""PO-UCT as published (Alg. 2): one simulation at a time, and Q is the mean of returns.

The backup of a finished simulation rides along with later ones. Its returns need no backward pass: with C_j
the discounted rewards before level j and C the total, G_j = (C - C_j) / gamma^j. So it can run from the root
down: a simulation that stands at level j first backs up what is pending there, and leaves its own entry. At
each level at most one entry is pending, the last one left there, and it is backed up before anything at that
level is read again. Each iteration writes one entry of the statistics instead of a whole path, and every
simulation sees all earlier ones.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles, tree_at_index
from baddr.planners.children import IN_PLACE, Children, no_children
from baddr.planners.simulation import (
    Flags,
    Places,
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
    where,
)


class Tree(NamedTuple):
    """Nodes are histories; node 0 is the root, and the last slot takes the writes that do not count."""

    sums: Float[Array, "slots 2"]  # per (node, a): visits N(h, a), and the sum of their returns
    children: Children  # from (node, a) and o to a node
    size: Int[Array, ""]


class Path(NamedTuple):
    """What is pending at level j: an entry of `sums`, and the discounted rewards of its simulation."""

    entry: Int[Array, " levels"]  # the spare one where nothing is pending
    before: Float[Array, " levels"]  # the rewards before level j
    total: Float[Array, " levels"]  # all of them


class Backlog(NamedTuple):
    """What a place has still to back up."""

    tree_levels: Int[Array, "*places"]  # levels of its simulation's path that lie in the tree
    pending: Int[Array, "*places"]  # levels at which older simulations may have entries left
    live: Bool[Array, "*places"]  # this place is not out of work yet


class Search(NamedTuple):
    """A run's tree, and its simulations in flight, stacked."""

    tree: Tree
    path: Path
    now: Simulation
    backlog: Backlog
    started: Int[Array, ""]  # simulations started so far

    @property
    def works(self) -> Bool[Array, "*runs places"]:
        return self.backlog.live


def iterate(
    problem: Problem,
    keys: Key[Array, " runs"],
    roots: Roots,
    belief: Particles,
    limit: Int[Array, " runs"],
    runs: Search,
) -> Search:
    """A step of every run's simulation."""
    return jax.vmap(partial(iterate_one, problem))(keys, roots, belief, limit, runs)


def iterate_one(
    problem: Problem,
    key: Key[Array, ""],
    roots: Roots,
    belief: Particles,
    limit: Int[Array, ""],
    run: Search,
) -> Search:
    """A step of a run's simulation: back up, choose, step, expand; start the next where it ended."""
    gamma = problem.pomdp.discount
    tree, path, now, backlog, started = run
    sums = back_up(problem, tree.sums, path, now)
    keys = keys_of(problem, key)
    a = choose(problem, keys, sums, now)
    step = jax.vmap(partial(take_step, problem, belief, limit))(keys[:, 2], now, a)
    on_tree = now.running & now.in_tree
    tree, path, known, leaf = expand(problem, Tree(sums, *tree[1:]), path, now, a, step)
    end = step.end
    if has_leaf(problem):
        below = leaf_values(problem, step.s_next, limit - now.level - 1)
        step = step._replace(r=step.r + jnp.where(leaf, gamma * below, 0))
        end = end | leaf
    ended, flushing = now.running & end, ~now.running
    now = moved(now, known, step, end, gamma)
    backlog = backlog._replace(tree_levels=backlog.tree_levels + on_tree.astype(jnp.int32))
    # A place that finds no work left goes down once more, to back up what is pending.
    path = path._replace(total=jax.vmap(_settle)(path.total, ended, backlog.tree_levels, now.total))
    done = backlog.live & (ended | (flushing & (now.level >= backlog.pending)))
    number = started + jnp.cumsum(done, dtype=jnp.int32) - 1
    next_one = jax.vmap(partial(_next, problem), in_axes=(None, 0, 0, 0, 0))
    now, backlog = jax.vmap(where)(done, next_one(roots, number, now, backlog, ended), (now, backlog))
    return Search(tree, path, now, backlog, started + jnp.sum(done, dtype=jnp.int32))


def back_up(problem: Problem, sums: Array, path: Path, now: Simulation) -> Float[Array, "slots 2"]:
    """What is pending at the simulations' levels: N(h, a) += 1, and the return to Q(h, a)'s sum."""
    entry, before, total = jax.vmap(tree_at_index)(path, jnp.minimum(now.level, problem.depth))
    G = (total - before) / power(problem.pomdp.discount, now.level)
    return sums.at[entry].add(jnp.stack([jnp.ones_like(G), G], axis=1), **IN_PLACE)


def expand(
    problem: Problem, tree: Tree, path: Path, now: Simulation, a: Places, step: Step
) -> tuple[Tree, Path, Places, Flags]:
    """Leave the step on the path, and find or make the child h' = (h, a, o) of those that go on in the tree.

    The nodes that were known (0: none), and where one was made."""
    on_tree = now.running & now.in_tree
    entry = now.node * problem.pomdp.num_actions + a
    left = jnp.where(on_tree, entry, problem.num_entries)
    path = jax.vmap(_leave)(path, jnp.minimum(now.level, problem.depth), left, now.total)
    known, slot = jax.vmap(tree.children.find)(entry, step.o)
    known = jnp.where(on_tree, known, 0)
    leaf = (known == 0) & on_tree & ~step.end
    children, _, size = tree.children.put(slot, entry, step.o, leaf, tree.size)
    return Tree(tree.sums, children, size), path, known, leaf


def _next(
    problem: Problem,
    roots: Roots,
    number: Int[Array, ""],
    before: Simulation,
    backlog: Backlog,
    ended: Bool[Array, ""],
) -> tuple[Simulation, Backlog]:
    """Simulation `number`, where there is one, after the one `before` it in its place."""
    now = start_simulation(problem, roots, number, before.steps)
    pending = jnp.where(backlog.pending > before.level, backlog.pending, backlog.tree_levels)
    return now, Backlog(jnp.int32(0), pending, now.running | ended)


def first(problem: Problem, active: Bool[Array, ""], roots: Roots) -> Search:
    """A run's search before its first iteration."""
    zero, places = jnp.int32(0), problem.places
    numbers = jnp.arange(places, dtype=jnp.int32)
    now = jax.vmap(partial(start_simulation, problem, roots, steps=zero))(numbers)
    works = active & (numbers < problem.in_flight)
    now = now._replace(running=now.running & works, in_tree=now.in_tree & works)
    none = jnp.zeros_like(numbers)
    pomdp, entries = problem.pomdp, problem.num_entries
    children = no_children(problem.num_simulations + 1, pomdp.num_actions, pomdp.observation_sizes)
    sums = jnp.zeros((entries + 1, 2))
    nothing = jnp.zeros((places, problem.depth + 1))
    path = Path(jnp.full((places, problem.depth + 1), entries, jnp.int32), nothing, nothing)
    backlog = Backlog(none, none, now.running)
    return Search(Tree(sums, children, jnp.int32(1)), path, now, backlog, jnp.int32(problem.in_flight))


def _leave(path: Path, level: Int[Array, ""], entry: Int[Array, ""], before: Array) -> Path:
    """Leave an entry at a level, for a later simulation to back up."""
    return path._replace(
        entry=path.entry.at[level].set(entry, **IN_PLACE),
        before=path.before.at[level].set(before, **IN_PLACE),
    )


def _settle(
    totals: Float[Array, " levels"], ended: Bool[Array, ""], levels: Int[Array, ""], total: Array
) -> Float[Array, " levels"]:
    """The totals with that of a simulation that has ended, at the levels where it left its entries."""
    own = jnp.arange(totals.shape[0], dtype=jnp.int32) < levels
    return jnp.where(ended & own, total, totals)
