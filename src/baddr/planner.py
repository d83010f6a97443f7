"""PO-UCT with model root sampling (Alg. 2), many trees at once.

One flat loop over explicitly batched lanes, one lane per run. Each iteration moves every lane by one
simulated step; a lane that ends its simulation starts the next at once, so no lane waits for another.

The backup of a finished simulation rides along with the next one. Its returns need no backward pass:
with C_j the discounted rewards before level j and C the total, G_j = (C - C_j) / gamma^j. So it can run
from the root down, and in the iteration in which the new simulation stands at level j, level j of the old
path is backed up just before it is read. Each iteration writes one entry of the statistics instead of a
whole path, every simulation sees all earlier ones, and the old path's storage is free for the new path
just behind it. Only where a new simulation ends before the old path does, the lane pauses.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.children import IN_PLACE, Children, no_children
from baddr.particles import Particles, tree_at_index
from baddr.pomdp import POMDP, Action, Scalar

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

    sums: Float[Array, "slots 2"]  # per (node, a): visits N(h, a) and the sum of their returns
    children: Children  # from (node, a) and o to a node
    size: Int[Array, ""]


class _Path(NamedTuple):
    """Level j: the entry of `sums` passed at depth j, and the discounted rewards before it."""

    entry: Int[Array, " levels"]
    before: Float[Array, " levels"]


class _Simulation(NamedTuple):
    """One lane's simulation in progress, and the finished one that is still being backed up."""

    s: PyTree
    draw: PyTree
    node: Int[Array, ""]
    in_tree: Bool[Array, ""]
    running: Bool[Array, ""]
    level: Int[Array, ""]
    total: Float[Array, ""]  # discounted rewards so far
    tree_levels: Int[Array, ""]  # levels of the path that lie in the tree
    backup_levels: Int[Array, ""]  # of the finished simulation
    backup_total: Float[Array, ""]
    started: Int[Array, ""]  # simulations started so far, this one included
    steps: Int[Array, ""]


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
) -> Root:
    """Alg. 2 from each run's belief: the root statistics of `num_simulations` simulations.

    A simulation starts from `pomdp.sample_root`, so this plans in a plain POMDP and in a GBA-POMDP alike.
    Depth is limited to min(depth, steps_left). Below the tree, actions come from `rollout` (uniform
    where None), or a simulation ends at the node that it adds, valued by `leaf_value`. A run that is not
    `active` is passed over.
    """
    num_runs = keys.shape[0]
    active = jnp.ones((num_runs,), bool) if active is None else active
    if num_runs == 1:
        # A lane alone makes XLA copy its whole tree in every iteration (the one-lane gather is fused into
        # each of its readers, which then outlive the write). A second, idle lane avoids it.
        twice = lambda tree: jax.tree.map(lambda x: jnp.concatenate([x, x]), tree)
        both = search(
            twice(keys),
            pomdp,
            twice(belief),
            num_simulations=num_simulations,
            exploration=exploration,
            depth=depth,
            steps_left=twice(steps_left),
            active=jnp.concatenate([active, jnp.zeros_like(active)]),
            rollout=rollout,
            leaf_value=leaf_value,
        )
        return tree_at_index(both, jnp.array([0]))

    depth = effective_depth(pomdp.discount, depth)
    limit = jnp.minimum(depth, steps_left)
    A, gamma = pomdp.num_actions, pomdp.discount
    num_entries = (num_simulations + 1) * A

    def sample_roots(key: Key[Array, ""], belief: Particles) -> tuple[PyTree, PyTree]:
        return jax.vmap(pomdp.sample_root, in_axes=(0, None))(jr.split(key, num_simulations), belief)

    def iterate(
        key: Key[Array, ""],
        roots: tuple[PyTree, PyTree],
        belief: Particles,
        limit: Int[Array, ""],
        lane: tuple[_Tree, _Path, _Simulation],
    ) -> tuple[_Tree, _Path, _Simulation]:
        tree, path, now = lane
        key_action, key_rollout, key_step = jr.split(key, 3)
        gamma_j = jnp.float32(gamma) ** now.level.astype(jnp.float32)

        # Back up level j of the finished simulation: N(h, a) += 1, and its return to Q(h, a)'s sum.
        G = (now.backup_total - path.before[now.level]) / gamma_j
        entry = jnp.where(now.level < now.backup_levels, path.entry[now.level], num_entries)
        sums = tree.sums.at[entry].add(jnp.stack([jnp.float32(1), G]), **IN_PLACE)

        # Choose an action and simulate it.
        here = jax.lax.dynamic_slice(sums, (now.node * A, 0), (A, 2))
        N, Q = here[:, 0], here[:, 1] / jnp.maximum(here[:, 0], 1)
        if rollout is None:  # a tree node that was never visited chooses uniformly: so does a rollout
            a = ucb(key_action, jnp.where(now.in_tree, N, 0), Q, exploration)
        else:
            a = jnp.where(now.in_tree, ucb(key_action, N, Q, exploration), rollout(key_rollout, now.s))
        world = pomdp.root_pomdp(belief, now.draw)
        s_next, o = world.step(key_step, now.s, a)
        r = world.reward(now.s, a, s_next)
        end = world.is_terminal(now.s, a, s_next) | (now.level + 1 >= limit)

        # Record the step on the path, and find or make the child h' = (h, a, o).
        on_tree = now.running & now.in_tree
        level = jnp.where(on_tree, now.level, depth)
        entry = now.node * A + a
        path = _Path(
            path.entry.at[level].set(entry, **IN_PLACE),
            path.before.at[level].set(now.total, **IN_PLACE),
        )
        known, place = tree.children.find(entry, o, on_tree)
        leaf = on_tree & (known == 0) & ~end
        children, expanded = tree.children.put(place, entry, o, known, tree.size, leaf)
        tree = _Tree(sums, children, tree.size + expanded.astype(jnp.int32))
        if leaf_value is not None:
            r = r + jnp.where(leaf, gamma * leaf_value(s_next), 0)
            end = end | leaf

        now = now._replace(
            s=s_next,
            node=known,
            in_tree=now.in_tree & (known > 0),
            total=jnp.where(now.running, now.total + gamma_j * r, now.total),
            tree_levels=now.tree_levels + on_tree.astype(jnp.int32),
            steps=now.steps + now.running.astype(jnp.int32),
            running=now.running & ~end,
            level=now.level + 1,
        )

        # Start the next simulation where both this one and the older backup are done.
        done = ~now.running & (now.level >= now.backup_levels) & (now.started <= num_simulations)
        s_root, draw = tree_at_index(roots, jnp.minimum(now.started, num_simulations - 1))
        zero = jnp.int32(0)
        fresh = _Simulation(
            s=s_root,
            draw=draw,
            node=zero,
            in_tree=jnp.array(True),
            running=now.started < num_simulations,
            level=zero,
            total=jnp.float32(0),
            tree_levels=zero,
            backup_levels=now.tree_levels,
            backup_total=now.total,
            started=now.started + 1,
            steps=now.steps,
        )
        return tree, path, jax.tree.map(lambda x, y: jnp.where(done, x, y), fresh, now)

    def first(active: Bool[Array, ""], roots: PyTree) -> tuple[_Tree, _Path, _Simulation]:
        zero = jnp.int32(0)
        s, draw = tree_at_index(roots, zero)
        tree = _Tree(
            jnp.zeros((num_entries + 1, 2)),
            no_children(num_simulations + 1, A, pomdp.observation_sizes),
            jnp.int32(1),
        )
        path = _Path(jnp.zeros((depth + 1,), jnp.int32), jnp.zeros((depth + 1,)))
        return (
            tree,
            path,
            _Simulation(
                s=s,
                draw=draw,
                node=zero,
                in_tree=active,
                running=active,
                level=zero,
                total=jnp.float32(0),
                tree_levels=zero,
                backup_levels=zero,
                backup_total=jnp.float32(0),
                started=jnp.where(active, 1, num_simulations + 2),
                steps=zero,
            ),
        )

    def unfinished(carry) -> Bool[Array, ""]:
        _, (_, _, now) = carry
        pending = now.running | (now.level < now.backup_levels) | (now.started <= num_simulations)
        return jnp.any(pending)

    def body(carry):
        i, lanes = carry
        keys_now = jax.vmap(jr.fold_in, in_axes=(0, None))(keys_loop, i)
        return i + 1, jax.vmap(iterate)(keys_now, roots, belief, limit, lanes)

    keys_roots, keys_loop = jnp.moveaxis(jax.vmap(jr.split)(keys), 1, 0)
    roots = jax.vmap(sample_roots)(keys_roots, belief)
    _, (tree, _, now) = jax.lax.while_loop(unfinished, body, (jnp.int32(0), jax.vmap(first)(active, roots)))
    N, total = jnp.moveaxis(tree.sums[:, :A], -1, 0)
    return Root(total / jnp.maximum(N, 1), N, tree.size, now.steps)


def best_action(key: Key[Array, ""], root: Root) -> Action:
    """argmax Q at the root among the actions that were tried; ties at random."""
    return random_argmax(key, jnp.where(root.N > 0, root.Q, -jnp.inf))
