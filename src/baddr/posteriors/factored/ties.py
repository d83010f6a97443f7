"""Tied parameters: rows of several tables that are one Dirichlet."""

import itertools
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from baddr.posteriors.factored.graph import Graph, Node, Tie
from baddr.posteriors.factored.layout import Layout


class Shared(NamedTuple):
    """A Dirichlet: where its counts begin, how many there are, and the nodes (a, i) that it is a row of."""

    start: int
    size: int
    nodes: set[tuple[int, int]]


def tie(
    graph: Graph, layout: Layout, counts: Sequence[float]
) -> tuple[list[float], Int[np.ndarray, "n k"], list[Shared]]:
    """The counts of all different Dirichlets, of which of them each entry of the tables is the sum, and the
    Dirichlets. What is impossible has no count."""
    found: list[float] = []
    homes: dict[Hashable, Shared] = {}
    places: list[list[int]] = [[] for _ in counts]
    for a, i, node in graph.nodes():
        if not node.learned:
            continue
        shape = tuple(graph.sizes[graph.index(p)] for p in node.parents)
        size = graph.sizes[len(graph.state_sizes) + i]
        for row, values in enumerate(itertools.product(*map(range, shape))):
            start = layout.start[a][i] + row * size
            share = _tie(node, (a, i), values, counts[start : start + size])
            if share.of not in homes:
                homes[share.of] = Shared(len(found), len(share.counts), set())
                found += share.counts
            home = homes[share.of]
            home.nodes.add((a, i))
            for category, value in enumerate(share.values):
                places[start + value].append(home.start + category)
    most = max(map(len, places), default=1)
    filled = np.array([p + [-1] * (most - len(p)) for p in places], np.int32).reshape(-1, most)
    return found, filled, list(homes.values())


def _tie(node: Node, of: tuple[int, int], values: tuple[int, ...], row: Sequence[float]) -> Tie:
    """The Dirichlet of a row; its own, where it shares none."""
    share = node.tie(*values) if node.tie is not None else None
    own = [v for v, count in enumerate(row) if count > 0]
    return share or Tie((of, values), tuple(row[v] for v in own), tuple(own))
