"""Alg. 2 with Bellman's backup, beside `core.plain`: a node is worth what its best action is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from baddr.core import plain


def empty(search: plain.Search) -> tuple[list[int], list[float]]:
    return [0] * search.num_actions, [0.0] * search.num_actions


@dataclass
class BellmanNode:
    N: list[int]
    T: list[float]  # of each action: the rewards, and gamma times what the children have reported
    first: list[float] = field(default_factory=list)  # the node's first value
    visits: int = 0
    reported: float = 0.0  # visits * V, as the parent knows it

    @property
    def Q(self) -> list[float]:
        return [t / max(n, 1) for t, n in zip(self.T, self.N, strict=True)]

    @property
    def V(self) -> float:
        """Of the best action, if all were tried; the mean of the returns before."""
        returns, number = sum(self.first) + sum(self.T), len(self.first) + sum(self.N)
        return max(self.Q) if all(self.N) else returns / number

    def report(self) -> float:
        """Another visit, and V for it and all before it: what that changes for the parent."""
        change = (self.visits + 1) * self.V - self.reported
        self.visits, self.reported = self.visits + 1, self.reported + change
        return change


def bellman(
    random: np.random.Generator, search: plain.Search, root: Callable, num_simulations: int
) -> tuple[BellmanNode, dict[tuple, BellmanNode]]:
    """As `po_uct`."""
    tree = {(): BellmanNode(*empty(search))}
    for _ in range(num_simulations):
        s, D = root(random)
        simulate_bellman(random, search, tree, D, s, ())
    return tree[()], tree


def simulate_bellman(
    random: np.random.Generator,
    search: plain.Search,
    tree: dict[tuple, BellmanNode],
    D: Any,
    s: Any,
    h: tuple,
) -> None:
    """A simulation from s at the node h, and its backup there."""
    node, level = tree[h], len(h) // 2 + 1
    a = plain.ucb(random, node.N, node.Q, search.exploration)
    s_next, o, r, terminal = search.step(random, D, s, a)
    child, change = (*h, a, o), 0.0
    if not terminal and level < search.depth:
        if child in tree:
            simulate_bellman(random, search, tree, D, s_next, child)
        else:
            tree[child] = BellmanNode(*empty(search))
            tree[child].first.append(plain.rollout(random, search, D, s_next, level))
        change = tree[child].report()
    node.N[a] += 1
    node.T[a] += r + search.discount * change
