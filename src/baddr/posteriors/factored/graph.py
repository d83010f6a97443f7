"""A graph: for each action, on what each feature of s' and of o depends, and what is known of it before.

A feature is learned (Dirichlet counts, a row for each of its parents' values), known (a table of weights that
all particles share) or computed (a function, nothing is stored).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Int

from baddr.core.pomdp import Action, State
from baddr.posteriors.dirichlet import Counts

Slice = Literal["s", "s_next", "o"]
Parent = tuple[Slice, int]  # feature i of s, of s' or of o
Structure = Literal["true", "uncertain", "matched", "full"]


@dataclass(frozen=True)
class Tie:
    """A row that is a Dirichlet which others share: whose, its counts, and the value in each category."""

    of: Hashable
    counts: tuple[float, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """p(feature | parents) under one action.

    `row` gives the Dirichlet counts for the parents' values or, where the node is not `learned`, weights in
    proportion to probabilities. `candidates` are features that the agent cannot exclude as parents: with an
    uncertain structure, each of `parents` and `candidates` may be one or not. `tie` gives, for the parents'
    values, the Dirichlet that the row shares with others where parameters are tied; None: it is its own.
    """

    parents: tuple[Parent, ...]
    row: Callable[..., Any]  # values of the parents -> numbers, one for each value of the feature
    learned: bool = True
    candidates: tuple[Parent, ...] = ()
    tie: Callable[..., Tie | None] | None = None


@dataclass(frozen=True)
class Computed:
    """A feature that is a known function of (s, a, s'), where only its parents in s' are sure to be drawn."""

    parents: tuple[Parent, ...]
    value: Callable[[State, Action, State], Int[Array, ""]]


Feature = Computed | Node | tuple[Node, ...]  # a node for all actions (with counts for each), or one for each


@dataclass(frozen=True)
class Graph:
    """The prior of a factored BA-POMDP: each feature of s' (T) and of o (O) as a function of its parents.

    The parents of a feature of s' are features of s and others of s'; those of a feature of o are features of
    s' and earlier ones of o.
    """

    state_sizes: tuple[int, ...]
    observation_sizes: tuple[int, ...]
    num_actions: int
    T: tuple[Feature, ...]
    O: tuple[Feature, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of all features, in the order (s, s', o)."""
        return (*self.state_sizes, *self.state_sizes, *self.observation_sizes)

    def index(self, parent: Parent) -> int:
        """Its place among all features."""
        of, i = parent
        return i + {"s": 0, "s_next": 1, "o": 2}[of] * len(self.state_sizes)

    def nodes(self) -> Iterator[tuple[int, int, Node]]:
        """(a, i, node) of all tables; i counts the features of s', then those of o."""
        for i, feature in enumerate((*self.T, *self.O)):
            if not isinstance(feature, Computed):
                per_action = feature if isinstance(feature, tuple) else (feature,) * self.num_actions
                for a, node in enumerate(per_action):
                    yield a, i, node


def parents(of: Slice, features: Iterable[int]) -> tuple[Parent, ...]:
    """Several features of one slice."""
    return tuple((of, i) for i in features)


def fully_connected(
    counts: Counts, state_sizes: tuple[int, ...], observation_sizes: tuple[int, ...]
) -> Graph:
    """The graph with all edges, whose counts are marginals of flat tables: it equals their `Dirichlet`."""
    A = counts.T.shape[1]
    T = np.moveaxis(np.asarray(counts.T), 1, 0).reshape(A, *state_sizes, *state_sizes)
    O = np.asarray(counts.O).reshape(A, *state_sizes, *observation_sizes)

    def node(table: np.ndarray, given: Slice, of: Slice, n: int, i: int) -> Node:
        marginal = table.sum(axis=tuple(range(n + i + 1, table.ndim)))
        return Node(parents(given, range(n)) + parents(of, range(i)), lambda *values: marginal[values])

    def features(tables: np.ndarray, given: Slice, of: Slice, n: int) -> tuple[Feature, ...]:
        return tuple(tuple(node(table, given, of, len(state_sizes), i) for table in tables) for i in range(n))

    return Graph(
        state_sizes,
        observation_sizes,
        A,
        features(T, "s", "s_next", len(state_sizes)),
        features(O, "s_next", "o", len(observation_sizes)),
    )


def untied(graph: Graph) -> Graph:
    """The graph in which every row has a Dirichlet of its own."""

    def one(feature: Feature) -> Feature:
        if isinstance(feature, Computed):
            return feature
        loose = lambda node: replace(node, tie=None)
        return tuple(map(loose, feature)) if isinstance(feature, tuple) else loose(feature)

    return replace(graph, T=tuple(map(one, graph.T)), O=tuple(map(one, graph.O)))


def is_tied(graph: Graph) -> bool:
    """Whether some of its nodes have rows that can be tied."""
    return any(node.learned and node.tie is not None for _, _, node in graph.nodes())


# What a particle holds, from the sizes alone.


def parents_of(node: Node, structure: Structure) -> tuple[Parent, ...]:
    """The parents that the table of a node has room for."""
    return node.parents if structure == "true" else (*node.parents, *node.candidates)


def edges_of(node: Node, structure: Structure) -> tuple[Parent, ...]:
    """The parents of a node that are uncertain."""
    if not node.learned or not node.candidates:
        return ()
    return {"uncertain": parents_of(node, structure), "matched": node.candidates}.get(structure, ())


def num_counts(graph: Graph, structure: Structure = "true") -> int:
    """Counts per particle, from the sizes alone."""
    return sum(
        math.prod(graph.sizes[graph.index(p)] for p in parents_of(node, structure))
        * graph.sizes[len(graph.state_sizes) + i]
        for _, i, node in graph.nodes()
        if node.learned
    )


def num_edges(graph: Graph, structure: Structure = "true") -> int:
    """Edges per particle that may be there or not."""
    return sum(len(edges_of(node, structure)) for _, _, node in graph.nodes())


def particle_bytes(graph: Graph, structure: Structure = "true") -> int:
    """The memory of one particle's theta, without allocating it."""
    return 4 * num_counts(graph, structure) + num_edges(graph, structure)
