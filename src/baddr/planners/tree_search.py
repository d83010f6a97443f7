"""PO-UCT with model root sampling (Alg. 2), many trees at once.

One flat loop over the simulations in flight. Each iteration moves every one of them by one simulated step;
where one ends, the next starts at once, so none waits for another.

The backup of a finished simulation rides along with later ones. Its returns need no backward pass: with C_j
the discounted rewards before level j and C the total, G_j = (C - C_j) / gamma^j. So it can run from the root
down: a simulation that stands at level j first backs up what is pending there, and leaves its own entry. At
each level at most one entry is pending, the last one left there, and it is backed up before anything at that
level is read again. Each iteration writes one entry of the statistics instead of a whole path, and every
simulation sees all earlier ones.

Several simulations of one tree may be in flight: they do not see each other's returns yet, but do see each
other's visits, which count from the moment of the choice (Liu et al., 2020, "Watch the unobserved"). One at
a time is PO-UCT as published. `core.plain` has the same with dicts and recursion.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, tree_at_index
from baddr.core.planner import Plan, Planner, random_argmax
from baddr.core.pomdp import POMDP, Action, Dynamics, Scalar
from baddr.planners.children import IN_PLACE, Children, no_children

Rollout = Callable[[Key[Array, ""], Any], Action]  # a policy (key, s) -> a
LeafValue = Callable[[Any], Scalar]  # an estimate s -> V(s)

# Rewards are not searched where gamma^depth is below this: they would change a value by less than a
# thousandth of their size, and the division by gamma^j would amplify rounding.
SMALLEST_DISCOUNT = 1e-3


class TreeSearch(Planner):
    """PO-UCT. It plans in a plain POMDP and in a GBA-POMDP alike.

    With `root_sampling` (Alg. 2) a simulation in a GBA-POMDP draws one D ~ p(.; theta) at its root and runs
    in the POMDP with those dynamics; without it, it runs in the GBA-POMDP itself and learns as it goes. Below
    the tree, actions come from `rollout` (uniform where None), or a simulation ends at the node that it adds,
    valued by `leaf_value`.
    """

    num_simulations: int = eqx.field(static=True)
    exploration: float = eqx.field(static=True)
    depth: int = eqx.field(static=True, default=0)  # 0: to the end of the episode
    in_flight: int = eqx.field(static=True, default=1)  # simulations of a tree at a time
    root_sampling: bool = eqx.field(static=True, default=True)
    rollout: Rollout | None = eqx.field(static=True, default=None)
    leaf_value: LeafValue | None = eqx.field(static=True, default=None)

    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
    ) -> Plan:
        keys_loop, roots = jax.vmap(partial(self.roots, pomdp))(keys, belief)
        return search(keys_loop, self, pomdp, belief, roots, steps_left, active)

    def roots(
        self, pomdp: POMDP, key: Key[Array, ""], belief: Particles
    ) -> tuple[Key[Array, ""], tuple[Any, PyTree]]:
        """The key of a run's search, and where its simulations start: their s, and what else was drawn."""
        key_roots, key_loop = jr.split(key)
        return key_loop, sample_roots(key_roots, self, pomdp, belief)

    def depth_in(self, pomdp: POMDP) -> int:
        return effective_depth(pomdp.discount, self.depth or pomdp.horizon)


def effective_depth(discount: float, depth: int) -> int:
    """The depth at which a search stops at the latest."""
    if discount <= 0:
        return 1
    if discount >= 1:
        return depth
    return max(1, min(depth, int(math.log(SMALLEST_DISCOUNT) / math.log(discount))))


def ucb(key: Key[Array, ""], N: Float[Array, " A"], Q: Float[Array, " A"], u: float) -> Action:
    """argmax Q + u sqrt(ln(1 + N(h)) / N(h, a)); unvisited actions first; ties at random."""
    bonus = u * jnp.sqrt(jnp.log1p(jnp.sum(N)) / jnp.maximum(N, 1))
    return random_argmax(key, jnp.where(N > 0, Q + bonus, jnp.inf))


# Where simulations start, and in what they run.


def samples_roots(how: TreeSearch, pomdp: POMDP) -> bool:
    """Whether each simulation draws a D at its root, and keeps it."""
    return isinstance(pomdp, GBAPOMDP) and how.root_sampling


def sample_roots(key: Key[Array, ""], how: TreeSearch, pomdp: POMDP, belief: Particles) -> tuple[Any, PyTree]:
    """A state for each simulation by weight; with root sampling, also whose it is and the epsilon of a D."""
    if not samples_roots(how, pomdp):
        return belief.at(jax.vmap(belief.sample)(jr.split(key, how.num_simulations))), ()
    assert isinstance(pomdp, GBAPOMDP)

    def one(key_particle: Key[Array, ""], key_D: Key[Array, ""]) -> tuple[Any, PyTree]:
        i = belief.sample(key_particle)
        s, theta = belief.at(i)
        return s, (i, pomdp.posterior.draw(key_D, theta))

    return jax.vmap(one)(*jr.split(key, (2, how.num_simulations)))


def world_of(how: TreeSearch, pomdp: POMDP, belief: Particles, draw: PyTree) -> POMDP:
    """The POMDP that a simulation with this draw runs in: the member of the family whose dynamics are its
    D."""
    if not samples_roots(how, pomdp):
        return pomdp
    assert isinstance(pomdp, GBAPOMDP)
    D = draw if isinstance(draw, Dynamics) else pomdp.models.dynamics(belief.states.theta, *draw)
    return pomdp.pomdp.with_dynamics(D)


# The state of a search.


class Tree(NamedTuple):
    """Nodes are histories; node 0 is the root, and the last slot takes the writes that do not count."""

    # Per (node, a): visits N(h, a) that were backed up, the sum of their returns and, where several
    # simulations are in flight, visits that were chosen.
    sums: Float[Array, "slots columns"]
    children: Children  # from (node, a) and o to a node
    size: Int[Array, ""]


class Path(NamedTuple):
    """What is pending at level j: an entry of `sums`, and the discounted rewards of its simulation."""

    entry: Int[Array, " levels"]  # the spare one where nothing is pending
    before: Float[Array, " levels"]  # the rewards before level j
    total: Float[Array, " levels"]  # all of them


class Simulation(NamedTuple):
    """A simulation in flight."""

    s: PyTree
    draw: PyTree
    node: Int[Array, ""]
    in_tree: Bool[Array, ""]
    running: Bool[Array, ""]
    level: Int[Array, ""]
    total: Float[Array, ""]  # discounted rewards so far
    tree_levels: Int[Array, ""]  # levels of its path that lie in the tree
    pending: Int[Array, ""]  # levels at which older simulations may have entries left
    steps: Int[Array, ""]  # simulated in this place so far
    live: Bool[Array, ""]  # this place is not out of work yet


class Search(NamedTuple):
    """A run's tree, and its simulations in flight, stacked."""

    tree: Tree
    path: Path
    now: Simulation
    started: Int[Array, ""]  # simulations started so far


class Problem(NamedTuple):
    """What is searched, and how."""

    how: TreeSearch
    pomdp: POMDP
    in_flight: int
    places: int  # for simulations in flight; one may stay idle
    depth: int

    @property
    def num_entries(self) -> int:
        return (self.how.num_simulations + 1) * self.pomdp.num_actions


def search(
    keys: Key[Array, " runs"],
    how: TreeSearch,
    pomdp: POMDP,
    belief: Particles,
    roots: tuple[PyTree, PyTree],
    steps_left: Int[Array, " runs"],
    active: Bool[Array, " runs"] | None = None,
) -> Plan:
    """Alg. 2 from each run's roots, to a depth of min(depth, steps_left). A run that is not `active` is
    passed over. In a draw, a `Dynamics` may stand for the index of a particle and epsilon."""
    num_runs, in_flight = keys.shape[0], min(how.in_flight, how.num_simulations)
    # A simulation alone makes XLA copy its whole tree in every iteration (the gather of one is fused into
    # each of its readers, which then outlive the write). A second, idle place avoids it.
    places = 2 if num_runs == in_flight == 1 else in_flight
    problem = Problem(how, pomdp, in_flight, places, how.depth_in(pomdp))
    active = jnp.ones((num_runs,), bool) if active is None else active
    limit = jnp.minimum(problem.depth, steps_left)

    def body(carry: tuple[Int[Array, ""], Search]) -> tuple[Int[Array, ""], Search]:
        i, runs = carry
        keys_now = jax.vmap(jr.fold_in, in_axes=(0, None))(keys, i)
        return i + 1, jax.vmap(partial(iterate, problem))(keys_now, roots, belief, limit, runs)

    start = jnp.int32(0), jax.vmap(partial(first, problem))(active, roots)
    _, (tree, _, now, _) = jax.lax.while_loop(lambda carry: jnp.any(carry[1].now.live), body, start)
    A = pomdp.num_actions
    N, total = tree.sums[:, :A, 0], tree.sums[:, :A, 1]
    return Plan(total / jnp.maximum(N, 1), N, tree.size, jnp.sum(now.steps, axis=1, dtype=jnp.int32))


# The phases of an iteration, of one run.


def iterate(
    problem: Problem,
    key: Key[Array, ""],
    roots: tuple[PyTree, PyTree],
    belief: Particles,
    limit: Int[Array, ""],
    run: Search,
) -> Search:
    """A step of every simulation in flight: back up, choose, step, expand; start the next where one ended."""
    how, gamma = problem.how, problem.pomdp.discount
    tree, path, now, started = run
    sums = back_up(problem, tree.sums, path, now)
    one = problem.in_flight == 1
    keys = jnp.broadcast_to(key, (problem.places,)) if one else jr.split(key, problem.in_flight)
    simulate = jax.vmap(partial(simulate_step, problem), in_axes=(0, None, None, None, 0))
    a, s_next, o, r, end = simulate(keys, sums, belief, limit, now)
    on_tree = now.running & now.in_tree
    tree, path, known, leaf = expand(problem, Tree(sums, *tree[1:]), path, now, a, o, on_tree & ~end)
    if how.leaf_value is not None:
        r = r + jnp.where(leaf, gamma * jax.vmap(how.leaf_value)(s_next), 0)
        end = end | leaf
    ended, flushing = now.running & end, ~now.running
    now = now._replace(
        s=s_next,
        node=known,
        in_tree=known > 0,
        total=jnp.where(now.running, now.total + _power(gamma, now.level) * r, now.total),
        tree_levels=now.tree_levels + on_tree.astype(jnp.int32),
        steps=now.steps + now.running.astype(jnp.int32),
        running=now.running & ~end,
        level=now.level + 1,
    )
    # A place that finds no work left goes down once more, to back up what is pending.
    path = path._replace(total=jax.vmap(_settle)(path.total, ended, now.tree_levels, now.total))
    done = now.live & (ended | (flushing & (now.level >= now.pending)))
    number = started + jnp.cumsum(done, dtype=jnp.int32) - 1
    start = jax.vmap(partial(start_simulation, problem), in_axes=(None, 0, 0, 0))
    now = jax.vmap(_where)(done, start(roots, number, now, ended), now)
    return Search(tree, path, now, started + jnp.sum(done, dtype=jnp.int32))


def back_up(problem: Problem, sums: Array, path: Path, now: Simulation) -> Float[Array, "slots columns"]:
    """What is pending at the simulations' levels: N(h, a) += 1, and the return to Q(h, a)'s sum."""
    entry, before, total = jax.vmap(tree_at_index)(path, jnp.minimum(now.level, problem.depth))
    G = (total - before) / _power(problem.pomdp.discount, now.level)
    if problem.in_flight == 1:
        return sums.at[entry].add(jnp.stack([jnp.ones_like(G), G], axis=1), **IN_PLACE)
    return _add(sums, entry, jnp.stack([jnp.ones_like(G), G, jnp.zeros_like(G)], axis=1))


def choose(keys: Key[Array, "2"], problem: Problem, sums: Array, now: Simulation) -> Action:
    """By UCB in the tree, by the rollout policy below it."""
    key_action, key_rollout = keys
    how, A = problem.how, problem.pomdp.num_actions
    here = jax.lax.dynamic_slice(sums, (now.node * A, 0), (A, sums.shape[1]))
    N, Q = here[:, 0], here[:, 1] / jnp.maximum(here[:, 0], 1)
    if problem.in_flight > 1:  # an action whose visits are all in flight is as good as the average
        average = jnp.sum(here[:, 1]) / jnp.maximum(jnp.sum(N), 1)
        N, Q = here[:, 2], jnp.where(N > 0, Q, average)
    if how.rollout is None:  # a tree node that was never visited chooses uniformly: so does a rollout
        return ucb(key_action, jnp.where(now.in_tree, N, 0), Q, how.exploration)
    return jnp.where(now.in_tree, ucb(key_action, N, Q, how.exploration), how.rollout(key_rollout, now.s))


def simulate_step(
    problem: Problem,
    key: Key[Array, ""],
    sums: Array,
    belief: Particles,
    limit: Int[Array, ""],
    now: Simulation,
) -> tuple[Action, PyTree, Array, Scalar, Bool[Array, ""]]:
    """Choose an action and take a step: a, s', o, r, and whether the simulation ends."""
    keys = jr.split(key, 3)
    a = choose(keys[:2], problem, sums, now)
    world = world_of(problem.how, problem.pomdp, belief, now.draw)
    s_next, o = world.step(keys[2], now.s, a)
    end = world.is_terminal(now.s, a, s_next) | (now.level + 1 >= limit)
    return a, s_next, o, world.reward(now.s, a, s_next), end


def expand(
    problem: Problem,
    tree: Tree,
    path: Path,
    now: Simulation,
    a: Int[Array, " places"],
    o: Int[Array, "places observation_features"],
    goes_on: Bool[Array, " places"],
) -> tuple[Tree, Path, Int[Array, " places"], Bool[Array, " places"]]:
    """Leave the step on the path, and find or make the child h' = (h, a, o) of those that go on in the tree.

    The nodes that were known (0: none), and where one was made."""
    on_tree = now.running & now.in_tree
    entry = now.node * problem.pomdp.num_actions + a
    left = jnp.where(on_tree, entry, problem.num_entries)
    path = jax.vmap(_leave)(path, jnp.minimum(now.level, problem.depth), left, now.total)
    sums = tree.sums
    if problem.in_flight > 1:
        sums = _add(sums, left, jnp.tile(jnp.array([0.0, 0.0, 1.0]), (problem.in_flight, 1)))
    known, slot = jax.vmap(tree.children.find)(entry, o)
    known = jnp.where(on_tree, known, 0)
    leaf = (known == 0) & goes_on
    return Tree(sums, *tree.children.put(slot, entry, o, leaf, tree.size)), path, known, leaf


def start_simulation(
    problem: Problem, roots: PyTree, number: Int[Array, ""], before: Simulation, ended: Bool[Array, ""]
) -> Simulation:
    """Simulation `number`, where there is one, after the one `before` it in its place."""
    n = problem.how.num_simulations
    s, draw = tree_at_index(roots, jnp.minimum(number, n - 1))
    running, zero = number < n, jnp.int32(0)
    return Simulation(
        s=s,
        draw=draw,
        node=zero,
        in_tree=jnp.array(True),
        running=running,
        level=zero,
        total=jnp.float32(0),
        tree_levels=zero,
        pending=jnp.where(before.pending > before.level, before.pending, before.tree_levels),
        steps=before.steps,
        live=running | ended,
    )


def first(problem: Problem, active: Bool[Array, ""], roots: PyTree) -> Search:
    """A run's search before its first iteration."""
    zero, off, places = jnp.int32(0), jnp.array(False), problem.places
    s, draw = tree_at_index(roots, zero)
    none = Simulation(s, draw, zero, off, off, zero, jnp.float32(0), zero, zero, zero, off)
    numbers = jnp.arange(places, dtype=jnp.int32)
    start = jax.vmap(partial(start_simulation, problem), in_axes=(None, 0, None, None))
    now = start(roots, numbers, none, off)
    works = active & (numbers < problem.in_flight)
    now = now._replace(running=now.running & works, in_tree=now.in_tree & works, live=now.live & works)
    pomdp, entries = problem.pomdp, problem.num_entries
    children = no_children(problem.how.num_simulations + 1, pomdp.num_actions, pomdp.observation_sizes)
    sums = jnp.zeros((entries + 1, 2 if problem.in_flight == 1 else 3))
    nothing = jnp.zeros((places, problem.depth + 1))
    path = Path(jnp.full((places, problem.depth + 1), entries, jnp.int32), nothing, nothing)
    return Search(Tree(sums, children, jnp.int32(1)), path, now, jnp.int32(problem.in_flight))


def _add(
    sums: Float[Array, "slots columns"], entry: Int[Array, " places"], new: Float[Array, "places columns"]
) -> Float[Array, "slots columns"]:
    """sums[entry] += new. Places with one entry write the same, so the order of writes does not matter."""
    same = entry[:, None] == entry[None]
    total = jnp.sum(jnp.where(same[:, :, None], new[None], 0), axis=1)
    return sums.at[entry].set(sums[entry] + total, **IN_PLACE)


def _power(gamma: float, level: Int[Array, "*places"]) -> Float[Array, "*places"]:
    return jnp.float32(gamma) ** level.astype(jnp.float32)


def _leave(path: Path, level: Int[Array, ""], entry: Int[Array, ""], before: Scalar) -> Path:
    """Leave an entry at a level, for a later simulation to back up."""
    return path._replace(
        entry=path.entry.at[level].set(entry, **IN_PLACE),
        before=path.before.at[level].set(before, **IN_PLACE),
    )


def _settle(
    totals: Float[Array, " levels"], ended: Bool[Array, ""], levels: Int[Array, ""], total: Scalar
) -> Float[Array, " levels"]:
    """The totals with that of a simulation that has ended, at the levels where it left its entries."""
    own = jnp.arange(totals.shape[0], dtype=jnp.int32) < levels
    return jnp.where(ended & own, total, totals)


def _where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)
