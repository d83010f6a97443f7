"""PO-UCT with model root sampling (Alg. 2), many trees at once.

One flat loop over explicitly batched lanes. Each iteration moves every lane by one
simulated step; a lane that ends its simulation starts the next at once, so no lane waits for another.

The backup of a finished simulation rides along with later ones. Its returns need no backward pass: with C_j
the discounted rewards before level j and C the total, G_j = (C - C_j) / gamma^j. So it can run from the root
down: a simulation that stands at level j first backs up what is pending there, and leaves its own entry. At
each level at most one entry is pending, the last one left there, and it is backed up before anything at that
level is read again. Each iteration writes one entry of the statistics instead of a whole path, and every
simulation sees all earlier ones.

Several lanes may share a tree (`lanes`): simulations in flight that do not see each other's returns yet, but
do see each other's visits, which count from the moment of the choice (Liu et al., 2020, "Watch the
unobserved"). One lane is PO-UCT as published.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import Particles, one_by_one, tree_at_index
from baddr.core.pomdp import POMDP, Action, Scalar, flat_index
from baddr.fast import table_search
from baddr.planners.children import IN_PLACE, Children, no_children

Rollout = Callable[[Key[Array, ""], Any], Action]  # a policy (key, s) -> a
LeafValue = Callable[[Any], Scalar]  # an estimate s -> V(s)

# Rewards are not searched where gamma^depth is below this: they would change a value by less than a
# thousandth of their size, and the division by gamma^j would amplify rounding.
SMALLEST_DISCOUNT = 1e-3


class Root(NamedTuple):
    """What a search leaves at its root."""

    Q: Float[Array, "*runs A"]
    N: Float[Array, "*runs A"]
    num_nodes: Int[Array, "*runs"]
    num_steps: Int[Array, "*runs"]  # simulated steps


class _Tree(NamedTuple):
    """Nodes are histories; node 0 is the root, and the last slot takes the writes that do not count."""

    # Per (node, a): visits N(h, a) that were backed up, the sum of their returns and, where lanes share the
    # tree, visits that were chosen.
    sums: Float[Array, "slots columns"]
    children: Children  # from (node, a) and o to a node
    size: Int[Array, ""]


class _Path(NamedTuple):
    """What is pending at level j: an entry of `sums`, and the discounted rewards of its simulation."""

    entry: Int[Array, " levels"]  # the spare one where nothing is pending
    before: Float[Array, " levels"]  # the rewards before level j
    total: Float[Array, " levels"]  # all of them


class _Simulation(NamedTuple):
    """One lane's simulation in progress."""

    s: PyTree
    draw: PyTree
    node: Int[Array, ""]
    in_tree: Bool[Array, ""]
    running: Bool[Array, ""]
    level: Int[Array, ""]
    total: Float[Array, ""]  # discounted rewards so far
    tree_levels: Int[Array, ""]  # levels of its path that lie in the tree
    pending: Int[Array, ""]  # levels at which older simulations may have entries left
    steps: Int[Array, ""]  # simulated by this lane
    live: Bool[Array, ""]  # not out of work yet


class _Search(NamedTuple):
    """A run's tree, and its lanes stacked."""

    tree: _Tree
    path: _Path
    now: _Simulation
    started: Int[Array, ""]  # simulations started so far


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


def random_argmax(key: Key[Array, ""], score: Float[Array, " A"]) -> Action:
    tie_break = jr.uniform(key, score.shape)
    return jnp.argmax(jnp.where(score == jnp.max(score), tie_break, -1)).astype(jnp.int32)


def search(
    keys: Key[Array, " runs"],
    pomdp: POMDP,
    belief: Particles,
    *,
    num_simulations: int,
    exploration: float,
    depth: int,
    steps_left: Int[Array, " runs"],
    active: Bool[Array, " runs"] | None = None,
    rollout: Rollout | None = None,
    leaf_value: LeafValue | None = None,
    lanes: int = 1,
    method: Literal["", "lanes", "loop", "kernel"] = "",
) -> Root:
    """Alg. 2 from each run's belief: the root statistics of `num_simulations` simulations.

    A simulation starts from `pomdp.sample_roots`, so this plans in a plain POMDP and in a GBA-POMDP alike.
    Depth is limited to min(depth, steps_left). Below the tree, actions come from `rollout` (uniform
    where None), or a simulation ends at the node that it adds, valued by `leaf_value`. A run that is not
    `active` is passed over. `lanes` simulations of a tree are in flight at a time. With one lane, few inputs
    and uniform rollouts the `method` may be that of `table_search`, a compiled loop or a kernel; it is where
    that is available.
    """
    num_runs, lanes = keys.shape[0], min(lanes, num_simulations)
    active = jnp.ones((num_runs,), bool) if active is None else active

    def sample_roots(key: Key[Array, ""], belief: Particles) -> tuple[Any, PyTree, Key[Array, ""]]:
        key_roots, key_loop = jr.split(key)
        return *pomdp.sample_roots(key_roots, belief, num_simulations), key_loop

    s, draws, keys_loop = one_by_one(sample_roots)(keys, belief)
    roots = s, pomdp.prepare(belief, draws)
    depth = effective_depth(pomdp.discount, depth)
    limit = jnp.minimum(depth, steps_left)
    if not method and lanes == 1 and rollout is None and leaf_value is None and table_search.available():
        method = "loop" if jax.default_backend() == "cpu" else "kernel"
    if method in ("loop", "kernel") and pomdp.has_tables:
        tables = pomdp.tables(belief, roots[1])
        assert tables is not None
        found = table_search.search_tables(
            keys_loop,
            tables,
            jax.vmap(jax.vmap(partial(flat_index, sizes=pomdp.state_sizes)))(roots[0]),
            limit,
            active,
            discount=pomdp.discount,
            exploration=exploration,
            depth=depth,
            kernel=method == "kernel",
            interpret=jax.default_backend() == "cpu",
        )
        return Root(found.total / jnp.maximum(found.N, 1), found.N, found.num_nodes, found.num_steps)
    # A lane alone makes XLA copy its whole tree in every iteration (the one-lane gather is fused into each of
    # its readers, which then outlive the write). A second, idle lane avoids it.
    width = 2 if num_runs == lanes == 1 else lanes
    A, gamma = pomdp.num_actions, pomdp.discount
    num_entries = (num_simulations + 1) * A

    def backup(sums: Array, path: _Path, now: _Simulation) -> Float[Array, "slots columns"]:
        """What is pending at the lanes' levels: N(h, a) += 1, and the return to Q(h, a)'s sum."""
        entry, before, total = jax.vmap(tree_at_index)(path, jnp.minimum(now.level, depth))
        G = (total - before) / _power(gamma, now.level)
        if lanes == 1:
            return sums.at[entry].add(jnp.stack([jnp.ones_like(G), G], axis=1), **IN_PLACE)
        return _add(sums, entry, jnp.stack([jnp.ones_like(G), G, jnp.zeros_like(G)], axis=1))

    def simulate(
        key: Key[Array, ""], sums: Array, belief: Particles, limit: Int[Array, ""], now: _Simulation
    ) -> tuple[Action, PyTree, Array, Scalar, Bool[Array, ""]]:
        """Choose an action and take a step: a, s', o, r, and whether the simulation ends."""
        key_action, key_rollout, key_step = jr.split(key, 3)
        here = jax.lax.dynamic_slice(sums, (now.node * A, 0), (A, sums.shape[1]))
        N, Q = here[:, 0], here[:, 1] / jnp.maximum(here[:, 0], 1)
        if lanes > 1:  # an action whose visits are all in flight is as good as the average
            average = jnp.sum(here[:, 1]) / jnp.maximum(jnp.sum(N), 1)
            N, Q = here[:, 2], jnp.where(N > 0, Q, average)
        if rollout is None:  # a tree node that was never visited chooses uniformly: so does a rollout
            a = ucb(key_action, jnp.where(now.in_tree, N, 0), Q, exploration)
        else:
            a = jnp.where(now.in_tree, ucb(key_action, N, Q, exploration), rollout(key_rollout, now.s))
        world = pomdp.root_pomdp(belief, now.draw)
        s_next, o = world.step(key_step, now.s, a)
        end = world.is_terminal(now.s, a, s_next) | (now.level + 1 >= limit)
        return a, s_next, o, world.reward(now.s, a, s_next), end

    def iterate(
        key: Key[Array, ""],
        roots: tuple[PyTree, PyTree],
        belief: Particles,
        limit: Int[Array, ""],
        run: _Search,
    ) -> _Search:
        tree, path, now, started = run
        sums = backup(tree.sums, path, now)
        keys = jnp.broadcast_to(key, (width,)) if lanes == 1 else jr.split(key, lanes)
        step = jax.vmap(simulate, in_axes=(0, None, None, None, 0))
        a, s_next, o, r, end = step(keys, sums, belief, limit, now)

        # Leave the step on the path, and find or make the child h' = (h, a, o).
        on_tree = now.running & now.in_tree
        entry = now.node * A + a
        left = jnp.where(on_tree, entry, num_entries)
        path = jax.vmap(_leave)(path, jnp.minimum(now.level, depth), left, now.total)
        if lanes > 1:
            sums = _add(sums, left, jnp.tile(jnp.array([0.0, 0.0, 1.0]), (lanes, 1)))
        known, slot = jax.vmap(tree.children.find)(entry, o)
        known = jnp.where(on_tree, known, 0)
        leaf = on_tree & (known == 0) & ~end
        tree = _Tree(sums, *tree.children.put(slot, entry, o, leaf, tree.size))
        if leaf_value is not None:
            r = r + jnp.where(leaf, gamma * jax.vmap(leaf_value)(s_next), 0)
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

        # Start the next simulation where this one has ended. A lane that finds no work left goes down once
        # more, to back up what is pending.
        path = path._replace(total=jax.vmap(_settle)(path.total, ended, now.tree_levels, now.total))
        done = now.live & (ended | (flushing & (now.level >= now.pending)))
        number = started + jnp.cumsum(done, dtype=jnp.int32) - 1
        fresh = jax.vmap(begin, in_axes=(None, 0, 0, 0))(roots, number, now, ended)
        now = jax.vmap(_where)(done, fresh, now)
        return _Search(tree, path, now, started + jnp.sum(done, dtype=jnp.int32))

    def begin(
        roots: PyTree, number: Int[Array, ""], before: _Simulation, ended: Bool[Array, ""]
    ) -> _Simulation:
        """Simulation `number`, where there is one, after the one `before` it in its lane."""
        s, draw = tree_at_index(roots, jnp.minimum(number, num_simulations - 1))
        running, zero = number < num_simulations, jnp.int32(0)
        return _Simulation(
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

    def first(active: Bool[Array, ""], roots: PyTree) -> _Search:
        zero, off = jnp.int32(0), jnp.array(False)
        s, draw = tree_at_index(roots, zero)
        none = _Simulation(s, draw, zero, off, off, zero, jnp.float32(0), zero, zero, zero, off)
        numbers = jnp.arange(width, dtype=jnp.int32)
        now = jax.vmap(begin, in_axes=(None, 0, None, None))(roots, numbers, none, off)
        works = active & (numbers < lanes)
        now = now._replace(running=now.running & works, in_tree=now.in_tree & works, live=now.live & works)
        children = no_children(num_simulations + 1, A, pomdp.observation_sizes)
        nothing = jnp.zeros((width, depth + 1))
        path = _Path(jnp.full((width, depth + 1), num_entries, jnp.int32), nothing, nothing)
        return _Search(
            _Tree(jnp.zeros((num_entries + 1, 2 if lanes == 1 else 3)), children, jnp.int32(1)),
            path,
            now,
            jnp.int32(lanes),
        )

    def body(carry: tuple[Int[Array, ""], _Search]) -> tuple[Int[Array, ""], _Search]:
        i, runs = carry
        keys_now = jax.vmap(jr.fold_in, in_axes=(0, None))(keys_loop, i)
        return i + 1, jax.vmap(iterate)(keys_now, roots, belief, limit, runs)

    start = jnp.int32(0), jax.vmap(first)(active, roots)
    _, (tree, _, now, _) = jax.lax.while_loop(lambda carry: jnp.any(carry[1].now.live), body, start)
    N, total = tree.sums[:, :A, 0], tree.sums[:, :A, 1]
    return Root(total / jnp.maximum(N, 1), N, tree.size, jnp.sum(now.steps, axis=1, dtype=jnp.int32))


def _add(
    sums: Float[Array, "slots columns"], entry: Int[Array, " lanes"], new: Float[Array, "lanes columns"]
) -> Float[Array, "slots columns"]:
    """sums[entry] += new. Lanes with one entry write the same, so the order of writes does not matter."""
    same = entry[:, None] == entry[None]
    total = jnp.sum(jnp.where(same[:, :, None], new[None], 0), axis=1)
    return sums.at[entry].set(sums[entry] + total, **IN_PLACE)


def _power(gamma: float, level: Int[Array, "*lanes"]) -> Float[Array, "*lanes"]:
    return jnp.float32(gamma) ** level.astype(jnp.float32)


def _leave(path: _Path, level: Int[Array, ""], entry: Int[Array, ""], before: Scalar) -> _Path:
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


def best_action(key: Key[Array, ""], root: Root) -> Action:
    """argmax Q at the root among the actions that were tried; ties at random."""
    return random_argmax(key, jnp.where(root.N > 0, root.Q, -jnp.inf))
