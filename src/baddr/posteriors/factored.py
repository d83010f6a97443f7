"""The factored BA-POMDP (Katt et al. 2019): a dynamic Bayes network per action with Dirichlet counts.

A `Graph` says, for each feature of s' and of o and for each action, on what that feature depends and what is
known of it before. A feature is learned (Dirichlet counts, a row for each of its parents' values), known (a
table of weights that all particles share) or computed (a function, nothing is stored). Only counts are part
of theta, so that memory depends on what is uncertain.

Where the parents of a node are uncertain themselves, a particle carries its own graph: a bit for each edge.
The tables have room for all parents; a parent that is absent counts as 0 in the index of the row.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from baddr import prng
from baddr.core.pomdp import Action, Observation, Scalar, SplitDynamics, State
from baddr.core.posterior import Posterior
from baddr.posteriors.dirichlet import Counts

Slice = Literal["s", "s_next", "o"]
Parent = tuple[Slice, int]  # feature i of s, of s' or of o
Structure = Literal["true", "uncertain", "matched", "full"]
Values = Sequence[Int[Array, ""] | None]  # of all features of (s, s', o); None: not drawn yet
Edges = Bool[Array, "*particles edges"]
Seed = UInt32[Array, "2"]
Places = Int[Array, "entries shares"]  # where the counts lie that an entry of the tables is the sum of


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


# Tables, and where they lie.


def parents_of(node: Node, structure: Structure) -> tuple[Parent, ...]:
    """The parents that the table of a node has room for."""
    return node.parents if structure == "true" else (*node.parents, *node.candidates)


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


def edges_of(node: Node, structure: Structure) -> tuple[Parent, ...]:
    """The parents of a node that are uncertain."""
    if not node.learned or not node.candidates:
        return ()
    return {"uncertain": parents_of(node, structure), "matched": node.candidates}.get(structure, ())


def particle_bytes(graph: Graph, structure: Structure = "true") -> int:
    """The memory of one particle's theta, without allocating it."""
    return 4 * num_counts(graph, structure) + num_edges(graph, structure)


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


# D and its posterior.


class FactoredDynamics(SplitDynamics):
    """The D of a Bayes network: p(s' | s, a) and p(o | a, s') as products over the features.

    The counts are those of all particles, with the number of this D's own: a step reads a few of its rows,
    and the rest is not copied.
    """

    counts: Float[Array, "particles counts"]
    particle: Int[Array, "*counts"]  # one, or one for each of the counts
    edges: Bool[Array, " edges"]
    known: Float[Array, " known"]
    layout: Layout = eqx.field(static=True)
    seed: Seed | None = None  # of a D that is drawn from the counts; without it, D is their expected model
    places: Places | None = None  # of tied counts

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        n, m = len(self.layout.state_sizes), len(self.layout.observation_sizes)
        x = self._sample(key, self.layout.layers, s, a, [*s, *[None] * (n + m)])
        return _vector(x[n : 2 * n])

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        n, m = len(self.layout.state_sizes), len(self.layout.observation_sizes)
        x = self._sample(key, self.layout.observation_layers, s, a, [*s, *s_next, *[None] * m])
        return _vector(x[2 * n :])

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        n, m = len(self.layout.state_sizes), len(self.layout.observation_sizes)
        return self._log_prob(tuple(range(n)), s, a, s_next, [*s, *s_next, *[None] * m])

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        n, m = len(self.layout.state_sizes), len(self.layout.observation_sizes)
        return self._log_prob(tuple(range(n, n + m)), s, a, s_next, [*s, *s_next, *o])

    def rows(self, nodes: tuple[int, ...], a: Action, x: Values) -> Float[Array, "nodes values"]:
        """The rows of some nodes that are tables, short ones filled up with zeros."""
        sizes = np.array([self.layout.sizes[i] for i in nodes])[:, None]
        column = np.arange(sizes.max(), dtype=np.int32)[None]
        start = row_starts(self.layout, nodes, self.edges, a, x)
        index, learned = start[:, None] + column, np.array(self.layout.learned)[:, nodes]
        rows = self.known.at[index].get(mode="clip") if not learned.all() else jnp.zeros(index.shape)
        if learned.any():
            if self.places is not None:
                counts = self._shares(self.places.at[index].get(mode="clip"))
            else:
                counts = self.counts.at[self.particle, index].get(mode="clip")
                if self.seed is not None:
                    counts = jax.vmap(_drawn_row, (None, 0, 0))(self.seed, start, counts)
            rows = counts if learned.all() else jnp.where(jnp.asarray(learned)[a][:, None], counts, rows)
        return rows if np.all(column < sizes) else jnp.where(column < sizes, rows, 0)

    def _shares(self, place: Int[Array, "nodes values shares"]) -> Float[Array, "nodes values"]:
        """Entries of tied tables: each is the sum of its shares; there are none at -1."""
        there = jnp.maximum(place, 0)
        whose = self.particle[there] if self.particle.ndim else self.particle
        counts = jnp.where(place >= 0, self.counts[whose, there], 0)
        if self.seed is not None:
            drawn = jax.vmap(_drawn_row, (None, 0, 0))
            flat = drawn(self.seed, there.reshape(-1), counts.reshape(-1, 1))
            counts = flat.reshape(place.shape)
        return jnp.sum(counts, axis=-1)

    def _sample(
        self, key: Key[Array, ""], layers: tuple[tuple[int, ...], ...], s: State, a: Action, x: Values
    ) -> Values:
        """x with the values of these nodes, layer after layer."""
        x, n, used = list(x), len(self.layout.state_sizes), 0
        u = jr.uniform(key, (sum(map(len, layers)),))
        for layer in layers:
            computed, tables = _split(self.layout, layer)
            s_next = _vector([jnp.int32(0) if value is None else value for value in x[n : 2 * n]])
            for i in computed:
                x[n + i] = self.layout.computed[i](s, a, s_next)  # type: ignore[misc]
            if tables:
                drawn = inversion(u[used : used + len(tables)], self.rows(tables, a, x))
                for k, i in enumerate(tables):
                    x[n + i] = drawn[k]
            used += len(layer)
        return x

    def _log_prob(self, nodes: tuple[int, ...], s: State, a: Action, s_next: State, x: Values) -> Scalar:
        n = len(self.layout.state_sizes)
        computed, tables = _split(self.layout, nodes)
        agree = [self.layout.computed[i](s, a, s_next) == x[n + i] for i in computed]  # type: ignore[misc]
        log_p = jnp.where(jnp.all(jnp.array(agree)), 0.0, -jnp.inf) if agree else jnp.zeros(())
        if not tables:
            return log_p
        rows = self.rows(tables, a, x)
        p = entries(rows, _vector([x[n + i] for i in tables])) / jnp.sum(rows, axis=1)
        return log_p + jnp.sum(jnp.log(p))


def _drawn_row(seed: Seed, start: Int[Array, ""], alpha: Float[Array, " values"]) -> Float[Array, " values"]:
    """Gamma(alpha, 1) draws, zero where alpha is: in proportion, a Dirichlet draw.

    The seed and the row's place determine it: a row is the same whenever D reads it, and those that it does
    not read are never drawn.
    """
    key = jr.fold_in(jr.wrap_key_data(seed, impl=prng.IMPL), start)
    return prng.gamma(key, alpha)


def _split(layout: Layout, nodes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those that are computed, and those that are tables."""
    computed = tuple(i for i in nodes if layout.computed[i] is not None)
    return computed, tuple(i for i in nodes if layout.computed[i] is None)


def _vector(values: Sequence[Int[Array, ""] | None]) -> Int[Array, " n"]:
    return jnp.stack([value for value in values if value is not None])


def row_starts(
    layout: Layout, nodes: tuple[int, ...], edges: Edges, a: Action, x: Values
) -> Int[Array, " nodes"]:
    """Where the row of each node begins, given the values of its parents."""
    start = np.array(layout.start, np.int32)[:, nodes]
    stride = np.array(layout.stride, np.int32)[:, nodes]
    used = np.flatnonzero(stride.any(axis=(0, 1))).tolist()
    if not used:
        return jnp.asarray(start)[a]
    here = jnp.asarray(stride[:, :, used])[a]
    edge = np.array(layout.edge)[:, nodes][:, :, used]
    if np.any(edge >= 0):
        number = jnp.asarray(edge)[a]
        here = jnp.where((number < 0) | edges[number], here, 0)
    return jnp.asarray(start)[a] + jnp.sum(
        here * _vector([x[j] for j in used])[None], axis=1, dtype=jnp.int32
    )


def entries(rows: Float[Array, "n values"], values: Int[Array, " n"]) -> Float[Array, " n"]:
    """Of each row, the entry of its value."""
    chosen = jnp.arange(rows.shape[1], dtype=values.dtype)[None] == values[:, None]
    return jnp.sum(jnp.where(chosen, rows, 0), axis=1)


def inversion(u: Float[Array, " n"], rows: Float[Array, "n values"]) -> Int[Array, " n"]:
    """A value of each row in proportion to its weights, from uniform numbers.

    A value of weight zero is never drawn, as in `prng.categorical`. The sums are written out: they fuse with
    what surrounds them.
    """
    running = list(itertools.accumulate(rows[:, j] for j in range(rows.shape[1])))
    total = running[-1]
    index = sum(((r <= u * total).astype(jnp.int32) for r in running), jnp.zeros(u.shape, jnp.int32))
    last = sum(((r < total).astype(jnp.int32) for r in running), jnp.zeros(u.shape, jnp.int32))
    return jnp.minimum(index, last)


class FactoredCounts(NamedTuple):
    """theta: the counts of all learned nodes in one vector, and which of the uncertain edges are there."""

    counts: Float[Array, "*particles counts"]
    edges: Edges


class Factored(Posterior):
    """Dirichlet counts per node, action and parents' values; U adds one to the row of each learned node.

    With structure "true" all particles have the graph as it is, with "full" the candidates are parents too,
    and with "uncertain" each edge of a node that has candidates is there with `edge_probability`, in each
    particle independently: the filter then weighs structures. With "matched" only its candidates are
    uncertain: the parents that its prior counts depend on are there. The prior row of a node that lacks some
    of its parents is the mean of the rows over their values: a row's total is the same in every structure.

    `expected` (the default): a draw is the expected model of the counts. Otherwise it is drawn from the
    Dirichlets.
    """

    counts: Float[Array, " counts"]  # of the prior, all parents present
    known: Float[Array, " known"]
    places: Places | None
    layout: Layout = eqx.field(static=True)
    num_edges: int = eqx.field(static=True)
    edge_probability: float = eqx.field(static=True)
    expected: bool = eqx.field(static=True)

    def __init__(
        self,
        graph: Graph,
        structure: Structure = "true",
        edge_probability: float = 0.5,
        expected: bool = True,
        tied: bool = False,
    ):
        self.layout, counts, known = lay_out(graph, structure)
        self.places = None
        if tied:
            if structure != "true":
                raise ValueError("tied parameters need a structure that is known")
            counts, places, _ = tie(graph, self.layout, counts)
            self.places = jnp.asarray(places)
        self.counts, self.known = jnp.asarray(counts, jnp.float32), jnp.asarray(known, jnp.float32)
        self.num_edges, self.edge_probability = num_edges(graph, structure), edge_probability
        self.expected = expected

    def prior(self, key: Key[Array, ""]) -> FactoredCounts:
        edges = jr.bernoulli(key, self.edge_probability, (self.num_edges,))
        return FactoredCounts(self.prior_counts(edges), edges)

    def prior_counts(self, edges: Edges) -> Float[Array, " counts"]:
        """The prior of a structure: the mean over the values of the parents that are absent."""
        if self.num_edges == 0:
            return self.counts
        return jnp.concatenate([_prior_table(self.counts, table, edges) for table in self.layout.tables])

    def draw(self, key: Key[Array, ""], theta: FactoredCounts) -> PyTree:
        return None if self.expected else jr.bits(key, (2,))

    def dynamics(self, theta: FactoredCounts, epsilon: PyTree) -> FactoredDynamics:
        return self.dynamics_among(jax.tree.map(lambda x: x[None], theta), jnp.int32(0), epsilon)

    def dynamics_among(self, thetas: FactoredCounts, i: Int[Array, ""], epsilon: PyTree) -> FactoredDynamics:
        """The D of particle i among stacked theta, of which it reads single rows."""
        return FactoredDynamics(
            thetas.counts, i, thetas.edges[i], self.known, self.layout, epsilon, self.places
        )

    def update(
        self, key: Key[Array, ""], theta: FactoredCounts, s: State, a: Action, s_next: State, o: Observation
    ) -> FactoredCounts:
        learned = np.array(self.layout.learned)
        nodes = tuple(np.flatnonzero(learned.any(axis=0)).tolist())
        if not nodes:
            return theta
        x, n = [*s, *s_next, *o], len(s)
        index = row_starts(self.layout, nodes, theta.edges, a, x) + _vector([x[n + i] for i in nodes])
        grows = jnp.asarray(learned[:, nodes])[a]
        if self.places is not None:
            index = _shared(key, theta.counts, self.places.at[index].get(mode="clip"))
        counts = theta.counts.at[jnp.where(grows, index, theta.counts.shape[0])].add(1, mode="drop")
        return FactoredCounts(counts, theta.edges)

    def log_score(self, theta: FactoredCounts) -> Scalar:
        """The Bayesian-Dirichlet score of theta's structure: log p(the data in its counts | structure)."""
        prior, score = self.prior_counts(theta.edges), jnp.zeros(())
        for table in self.layout.tables:
            part = slice(table.start, table.start + math.prod(table.shape))
            score += log_evidence(prior[part].reshape(table.shape), theta.counts[part].reshape(table.shape))
        return score


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


def _shared(
    key: Key[Array, ""], counts: Float[Array, " counts"], places: Int[Array, "nodes shares"]
) -> Int[Array, " nodes"]:
    """Where a value that was seen counts: of several categories that give it, one in proportion."""
    if places.shape[1] == 1:
        return places[:, 0]
    weights = jnp.where(places >= 0, counts[jnp.maximum(places, 0)], 0)
    return entries(places.astype(float), inversion(jr.uniform(key, places.shape[:1]), weights)).astype(
        jnp.int32
    )


def expected_dynamics(graph: Graph) -> FactoredDynamics:
    """The expected model of a graph's prior: the graph itself, where all its nodes are known."""
    posterior = Factored(graph)
    return posterior.dynamics(FactoredCounts(posterior.counts, jnp.zeros((0,), bool)), None)


def _prior_table(counts: Float[Array, " counts"], table: Table, edges: Edges) -> Float[Array, " entries"]:
    rows = counts[table.start : table.start + math.prod(table.shape)].reshape(table.shape)
    for axis, edge in enumerate(table.edges):
        if edge >= 0:
            rows = jnp.where(edges[edge], rows, jnp.mean(rows, axis=axis, keepdims=True))
    return rows.reshape(-1)


def log_evidence(prior: Float[Array, "*rows values"], counts: Float[Array, "*rows values"]) -> Scalar:
    """The Bayesian-Dirichlet score: log p(data) of Dirichlet rows whose counts grew from `prior` to `counts`.

    A row gives sum_v [lnG(n_v) - lnG(alpha_v)] - [lnG(n) - lnG(alpha)], where alpha and n are its totals.
    """
    of_entries = jnp.where(prior > 0, log_rising(jnp.where(prior > 0, prior, 1), counts - prior), 0)
    impossible = jnp.any((prior <= 0) & (counts > prior))
    alpha, n = jnp.sum(prior, axis=-1), jnp.sum(counts, axis=-1)
    score = jnp.sum(of_entries) - jnp.sum(log_rising(alpha, n - alpha))
    return jnp.where(impossible, -jnp.inf, score)


def log_rising(alpha: Float[Array, "*n"], k: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """lnG(alpha + k) - lnG(alpha) for alpha > 0.

    By the recursion up to alpha + 8 and Stirling's series there, with the large terms cancelled by hand: the
    difference of two lnG near 10,000 would leave three digits in single precision.
    """
    shift = jnp.float32(8)
    b = alpha + shift
    series = lambda x: 1 / (12 * x) - 1 / (360 * x**3)
    above = k * jnp.log(b + k) + (b - 0.5) * jnp.log1p(k / b) - k + series(b + k) - series(b)
    return above - sum((jnp.log1p(k / (alpha + i)) for i in range(8)), jnp.zeros_like(alpha))


def edge_probabilities(edges: Edges, weights: Float[Array, " particles"]) -> Float[Array, " edges"]:
    """p(edge | history) for each uncertain edge, from the particles."""
    return jax.vmap(lambda e: jnp.sum(jnp.where(e, weights, 0)), in_axes=1)(edges)
