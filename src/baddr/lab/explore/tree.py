"""The tree of beliefs of one plan, node by node, as plain values."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP
from baddr.fast.belief_tree import FastTree
from baddr.planners.belief_tree.nodes import Nodes
from baddr.planners.belief_tree.search import Tree, step, written

LIKELY = 1e-6  # children of less probability are not shown


def grown(
    key: Key[Array, ""], planner: FastTree, gba: GBAPOMDP, belief: Particles, steps_left: Array
) -> tuple[Nodes, Tree]:
    """The tree that the planner grows from a belief, and what its weights are about."""
    how = replace(planner.how, stop_when_certain=False)  # a reader wants to see more than what decides
    limit = jnp.minimum(steps_left, how.depth or gba.horizon)
    prepared = planner.prepare(key, gba, belief)
    search = planner.start(gba, key, belief, limit, jnp.array(True), prepared)
    # A step of a tree that is decided changes nothing.
    body = lambda e, tree: step(e, search._replace(tree=tree), how, gba.discount)
    tree = jax.lax.fori_loop(1, how.num_expansions + 1, body, search.tree)
    return search.nodes, written(tree, jnp.int32(how.num_expansions))


def root_view(tree: Tree, gamma: float) -> dict[str, Any]:
    """The root's bounds, and how many expansions lie below each action."""
    expansion, node = np.asarray(tree.expansion), np.asarray(tree.node)
    _, A, C = expansion.shape
    below = np.zeros(A, int)
    for e in range(2, int(tree.size) + 1):
        x = node[e]
        while x // (A * C) > 1:
            x = node[x // (A * C)]
        below[x // C % A] += 1
    lower, upper = float(tree.lower[0, 0, 0]), float(tree.upper[0, 0, 0])
    return {"lower": lower, "upper": upper, "expansions": int(tree.size), "below": below.tolist()}


def node_view(tree: Tree, number: int, gba: GBAPOMDP, world: POMDP) -> list[dict[str, Any]]:
    """The actions at node `number`, with their values and the beliefs after each observation. Nothing where
    the node is a leaf."""
    P, lower, upper = (np.asarray(x, np.float64) for x in (tree.P, tree.lower, tree.upper))
    expansion, rho = np.asarray(tree.expansion), np.asarray(tree.rho, np.float64)
    _, A, C = P.shape
    if not 0 <= number < P.size:
        return []
    e = int(expansion.reshape(-1)[number])
    if e == 0:
        return []
    shown = []
    for a in range(A):
        Q = lambda V, a=a: float(rho[e, a] + gba.discount * (P[e, a] * V[e, a]).sum())
        children = [
            {
                "node": (e * A + a) * C + c,
                "observation": c if C == world.num_observations else None,
                "p": float(P[e, a, c]),
                "lower": float(lower[e, a, c]),
                "upper": float(upper[e, a, c]),
                "leaf": int(expansion[e, a, c]) == 0,
                "state": _marginals(tree, (e, a, c), world),
            }
            for c in np.argsort(-P[e, a]).tolist()
            if P[e, a, c] > LIKELY
        ]
        shown.append({"action": a, "lower": Q(lower), "upper": Q(upper), "children": children})
    return shown


def _marginals(tree: Tree, place: tuple[int, int, Any], world: POMDP) -> list[list[float]]:
    """p(s_i = .) for each feature of the state, at a node."""
    e, a, c = place
    w = np.asarray(tree.blocks.W[e, a, c], np.float64)
    w = w / max(w.sum(), 1e-300)
    sizes = world.state_sizes
    leaves = jax.tree.leaves(tree.blocks.of)
    if leaves:  # particles, each with its state
        s = np.asarray(leaves[0][e, a])
        return [np.bincount(s[:, i], w, n).tolist() for i, n in enumerate(sizes)]
    joint = w.reshape(*sizes, -1).sum(axis=-1)  # all states in each model
    axes = range(len(sizes))
    return [joint.sum(axis=tuple(j for j in axes if j != i)).tolist() for i in axes]
