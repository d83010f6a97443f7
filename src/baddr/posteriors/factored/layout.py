"""Where the tables of a graph lie: all counts of a particle are one vector, all known weights another."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int

from baddr.core.pomdp import Action, State
from baddr.posteriors.factored.graph import Computed, Graph, Node, Structure, edges_of, parents_of


class Table(NamedTuple):
    """The counts of one learned node: where they begin, their shape, the edge of each axis but the last."""

    start: int
    shape: tuple[int, ...]
    edges: tuple[int, ...]  # -1: certain


class Layout(NamedTuple):
    """Where the row of node i lies: at start[a][i] + sum_j stride[a][i][j] x_j, with x = (s, s', o).

    A row is part of the counts where learned[a][i], and of the known weights otherwise.
    """

    state_sizes: tuple[int, ...]
    observation_sizes: tuple[int, ...]
    computed: tuple[Callable[[State, Action, State], Int[Array, ""]] | None, ...]  # per node
    layers: tuple[tuple[int, ...], ...]  # of s': nodes whose parents are drawn in earlier layers
    learned: tuple[tuple[bool, ...], ...]
    start: tuple[tuple[int, ...], ...]
    stride: tuple[tuple[tuple[int, ...], ...], ...]
    edge: tuple[tuple[tuple[int, ...], ...], ...]  # the number of an edge that is uncertain, or -1
    tables: tuple[Table, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of all nodes."""
        return (*self.state_sizes, *self.observation_sizes)

    @property
    def observation_layers(self) -> tuple[tuple[int, ...], ...]:
        """Observation features are drawn one after the other where one depends on another, else at once."""
        n, m = len(self.state_sizes), len(self.observation_sizes)
        nodes = tuple(range(n, n + m))
        among = np.array(self.stride)[:, n:, 2 * n :]
        return tuple((i,) for i in nodes) if np.any(among) else (nodes,)


def lay_out(graph: Graph, structure: Structure) -> tuple[Layout, list[float], list[float]]:
    """The layout, the counts with all parents present, and the known weights."""
    A, N, X = graph.num_actions, len(graph.T) + len(graph.O), len(graph.sizes)
    start, learned = np.zeros((A, N), int), np.zeros((A, N), bool)
    stride, edge = np.zeros((A, N, X), int), np.full((A, N, X), -1)
    counts: list[float] = []
    known: list[float] = []
    tables, num_edges = [], 0
    for a, i, node in graph.nodes():
        size = graph.sizes[len(graph.state_sizes) + i]
        axes = [graph.index(p) for p in parents_of(node, structure)]
        if i >= len(graph.T) and max(axes, default=-1) >= len(graph.state_sizes) + i:
            raise ValueError(f"observation feature {i - len(graph.T)} depends on itself or a later one")
        uncertain = {graph.index(p) for p in edges_of(node, structure)}
        shape = tuple(graph.sizes[j] for j in axes)
        storage = counts if node.learned else known
        start[a, i], learned[a, i] = len(storage), node.learned
        edges = []
        for axis, j in enumerate(axes):
            stride[a, i, j] = size * math.prod(shape[axis + 1 :])
            if j in uncertain:
                edge[a, i, j], num_edges = num_edges, num_edges + 1
            edges.append(int(edge[a, i, j]))
        if node.learned:
            tables.append(Table(len(storage), (*shape, size), tuple(edges)))
        storage += _table(node, shape, size)
    layout = Layout(
        state_sizes=graph.state_sizes,
        observation_sizes=graph.observation_sizes,
        computed=tuple(f.value if isinstance(f, Computed) else None for f in (*graph.T, *graph.O)),
        layers=_layers(graph, structure),
        learned=_tuples(learned),
        start=_tuples(start),
        stride=_tuples(stride),
        edge=_tuples(edge),
        tables=tuple(tables),
    )
    return layout, counts, known


def _table(node: Node, shape: tuple[int, ...], size: int) -> list[float]:
    """All rows of a node. Its candidates, the last parents, make no difference to them."""
    entries = []
    for values in itertools.product(*map(range, shape)):
        row = [float(x) for x in node.row(*values[: len(node.parents)])]
        if len(row) != size or min(row) < 0 or sum(row) <= 0:
            raise ValueError(f"{row}, given {node.parents} = {values}, is no row of {size} counts")
        entries += row
    return entries


def _layers(graph: Graph, structure: Structure) -> tuple[tuple[int, ...], ...]:
    """The features of s' in an order in which they can be drawn."""
    needs: list[set[int]] = [set() for _ in graph.T]
    for i, feature in enumerate(graph.T):
        if isinstance(feature, Computed):
            needs[i] = {j for of, j in feature.parents if of == "s_next"}
    for _, i, node in graph.nodes():
        if i < len(graph.T):
            needs[i] |= {j for of, j in parents_of(node, structure) if of == "s_next"}
    layers, drawn = [], set()
    while len(drawn) < len(needs):
        layer = tuple(i for i, need in enumerate(needs) if i not in drawn and need <= drawn)
        if not layer:
            raise ValueError("the features of s' depend on each other in a circle")
        layers.append(layer)
        drawn |= set(layer)
    return tuple(layers)


def _tuples(array: np.ndarray) -> tuple:
    """Nested tuples, which can be hashed."""
    return tuple(map(_tuples, array)) if array.ndim > 1 else tuple(array.tolist())
