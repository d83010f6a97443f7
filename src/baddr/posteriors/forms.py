"""Which features of a graph can be summed out (`tables`), found from the graph; and the tables for it."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from baddr.core.pomdp import State, all_vectors, flat_index
from baddr.posteriors.factored import Computed, Factored, Graph, Node
from baddr.posteriors.factored.layout import Layout, lay_out
from baddr.posteriors.factored.ties import Shared, tie
from baddr.posteriors.grids import bank_of

NUM_PROBES = 64  # random values of the other features, to see what a computed feature reads
NUM_CHECKS = 4096
MOST_OUTCOMES = 4096  # of the features that are read together


class NoForm(ValueError):
    """A graph whose features cannot be summed out, with the reason."""


class Form(NamedTuple):
    """Which features have a table and which are sampled."""

    state_sizes: tuple[int, ...]
    num_actions: int
    first_size: int  # of the observation's features
    features: tuple[int, ...]  # with a table
    sampled: tuple[int, ...]
    computed: tuple[int, ...]  # features of o
    chance: tuple[int, ...]  # features of o with a table of probabilities
    owner: tuple[int, ...]  # of each count, the feature (by its place among those with a table)
    num_read: int

    @property
    def largest(self) -> int:
        return max(self.state_sizes[i] for i in self.features)

    @property
    def digits(self) -> Int[np.ndarray, "outcomes read"]:
        """The values of the features that are read, by outcome."""
        return all_vectors((self.largest,) * self.num_read)

    @property
    def sampled_sizes(self) -> tuple[int, ...]:
        return tuple(self.state_sizes[i] for i in self.sampled)

    def sampled_number(self, s: State) -> Int[Array, ""]:
        """The number of u."""
        return flat_index(s[np.array(self.sampled)], self.sampled_sizes) if self.sampled else jnp.int32(0)

    def state(self, u: Int[Array, ""], x: Int[Array, " features"]) -> State:
        """s, from the number of u and the features with tables."""
        s = jnp.zeros((len(self.state_sizes),), jnp.int32).at[np.array(self.features)].set(x)
        if not self.sampled:
            return s
        return s.at[np.array(self.sampled)].set(jnp.asarray(all_vectors(self.sampled_sizes))[u])


def find_form(graph: Graph, shared: Sequence[Shared], num_counts: int) -> Form:
    """Computed features are sampled, and all others must depend on themselves, on those and on the action."""
    sampled = tuple(i for i, feature in enumerate(graph.T) if isinstance(feature, Computed))
    features = tuple(i for i in range(len(graph.T)) if i not in sampled)
    if not features:
        raise NoForm("no feature of its state has a table of probabilities")
    n = len(graph.T)
    for _, i, node in graph.nodes():
        wrong = [p for p in node.parents if i < n and (p[0] != "s" or p[1] not in (i, *sampled))]
        if wrong:
            raise NoForm(f"feature {i} of s' depends on {wrong[0]}, which is neither itself nor computed")
    owner = np.zeros(num_counts, int)
    for group in shared:
        owners = {_owner(graph, features, a, i) for a, i in group.nodes}
        if len(owners) > 1:
            raise NoForm("several features share one Dirichlet")
        owner[group.start : group.start + group.size] = owners.pop()
    computed = tuple(i for i, feature in enumerate(graph.O) if isinstance(feature, Computed))
    chance = tuple(i for i in range(len(graph.O)) if i not in computed)
    sizes = graph.state_sizes, graph.num_actions, graph.observation_sizes[0]
    return Form(*sizes, features, sampled, computed, chance, tuple(owner.tolist()), 1)


def _owner(graph: Graph, features: tuple[int, ...], a: int, i: int) -> int:
    """The feature whose table holds the models of node i, by its place."""
    if i < len(graph.T):
        return features.index(i)
    read = _read_by(graph, features, a, i)
    if len(read) != 1:
        raise NoForm(f"feature {i - len(graph.T)} of o is learned, and depends on {len(read)} features")
    return read[0]


def _read_by(graph: Graph, features: tuple[int, ...], a: int, i: int) -> list[int]:
    """The features with a table that node i of o reads under an action."""
    feature: Any = graph.O[i - len(graph.T)]
    node: Node = feature[a] if isinstance(feature, tuple) else feature
    wrong = [p for p in node.parents if p[0] != "s_next" or p[1] not in features]
    if wrong or len(node.parents) > 1:
        raise NoForm(f"feature {i - len(graph.T)} of o depends on {node.parents}")
    return [features.index(p[1]) for p in node.parents]


class Numbers(NamedTuple):
    """The arrays of `FeatureTables`, where their shapes are written."""

    factored: Factored
    bank: np.ndarray
    weights: np.ndarray
    start: np.ndarray
    T: np.ndarray
    evidence: tuple[np.ndarray, ...]
    reads: np.ndarray
    outcome: np.ndarray
    seen: np.ndarray
    factors: np.ndarray
    form: Form


def numbers(graph: Graph, start: Sequence[Float[np.ndarray, " _"]], grid: int) -> Numbers:
    """All that the tables of a graph need; `start` has p(s_0) of every feature."""
    factored = Factored(graph, tied=True)
    layout, counts, known = lay_out(graph, "true")
    counts, places, shared = tie(graph, layout, counts)
    form = find_form(graph, shared, len(counts))
    bank, weights = _bank(form, shared, np.array(counts), grid)
    row = lambda a, i, x: _row(layout, places, bank, np.array(known), a, i, x)
    probe = Probe(layout, form)
    reads = probe.reads()
    form = form._replace(num_read=max(1, max(map(len, reads))))
    if form.largest**form.num_read > MOST_OUTCOMES:
        raise NoForm(f"{form.num_read} features are read at once")
    outcome, seen = probe.outcomes(form, reads)
    padded = np.array([[*r, *[len(form.features)] * (form.num_read - len(r))] for r in reads], np.int32)
    first = np.zeros((len(form.features), form.largest))
    for k, i in enumerate(form.features):
        first[k, : len(start[i])] = start[i]
    T, evidence = _kernels(form, layout, row, weights.shape[1]), _evidence(graph, form, row, weights.shape[1])
    factors = _factor(form, reads, outcome, seen)
    return Numbers(factored, bank, weights, first, T, evidence, padded, outcome, seen, factors, form)


def _bank(
    form: Form, shared: Sequence[Shared], counts: np.ndarray, grid: int
) -> tuple[np.ndarray, np.ndarray]:
    """The models of every feature, as many for each; and the prior's weights."""
    banks = []
    for k in range(len(form.features)):
        mine = [g for g in shared if form.owner[g.start] == k]
        places = np.concatenate([np.arange(g.start, g.start + g.size) for g in mine] or [np.zeros(0, int)])
        banks.append((places, *bank_of([counts[g.start : g.start + g.size] for g in mine], grid, seed=k)))
    most = max(len(w) for *_, w in banks)
    bank, weights = np.ones((most, max(1, len(counts)))), np.zeros((len(banks), most))
    for k, (places, models, w) in enumerate(banks):
        weights[k, : len(w)] = w
        bank[: len(w), places.astype(int)] = models
        bank[len(w) :, places.astype(int)] = models[:1]  # of weight zero
    return bank, weights


def _row(
    layout: Layout, places: np.ndarray, bank: np.ndarray, known: np.ndarray, a: int, i: int, x: dict[int, int]
) -> Float[np.ndarray, "values models"]:
    """A row of node i under every model, given values of (s, s', o) by their place."""
    start = layout.start[a][i] + sum(layout.stride[a][i][j] * value for j, value in x.items())
    index = np.arange(start, start + layout.sizes[i])
    if layout.learned[a][i]:
        share = places[index]
        rows = np.sum(np.where(share[..., None] >= 0, bank.T[np.maximum(share, 0)], 0), axis=1)
    else:
        rows = np.repeat(known[index][:, None], len(bank), axis=1)
    return rows / rows.sum(axis=0, keepdims=True)


def _kernels(form: Form, layout: Layout, row: Any, G: int) -> np.ndarray:
    u_values = all_vectors(form.sampled_sizes) if form.sampled else np.zeros((1, 0), int)
    size = form.largest
    T = np.zeros((len(u_values) * form.num_actions, len(form.features), size, size, G), np.float32)
    for c, (u, a) in enumerate(itertools.product(u_values, range(form.num_actions))):
        given = dict(zip(form.sampled, u.tolist(), strict=True))
        for k, i in enumerate(form.features):
            for x in range(form.state_sizes[i]):
                T[c, k, x, : form.state_sizes[i]] = row(a, i, {**given, i: x})
    return T


def _evidence(graph: Graph, form: Form, row: Any, G: int) -> tuple[np.ndarray, ...]:
    n, m, X, found = len(graph.T), len(form.features), form.largest, []
    for o in form.chance:
        table = np.ones((form.num_actions, graph.observation_sizes[o], m, X, G), np.float32)
        for a in range(form.num_actions):
            read = _read_by(graph, form.features, a, n + o)
            if not read:  # it tells nothing, and any feature may hold its probability
                table[a, :, 0] = row(a, n + o, {})[:, None]
            for k in read:
                i = form.features[k]
                for x in range(form.state_sizes[i]):
                    table[a, :, k, x] = row(a, n + o, {n + i: x})
        found.append(table)
    return tuple(found)


class Probe:
    """Asks what is computed from what, of (u, a) and the features of s' that have tables."""

    def __init__(self, layout: Layout, form: Form):
        self.layout, self.form, self.random = layout, form, np.random.default_rng(0)
        self.sizes = np.array([form.state_sizes[i] for i in form.features])
        self.U = math.prod(form.sampled_sizes)
        self.contexts = self.U * form.num_actions
        self.ask = jax.jit(jax.vmap(self._ask))

    def _ask(self, c: Array, before: Array, x: Array) -> tuple[Array, Array]:
        """(u', the computed features of o); `before` are the values that the features had in s."""
        form, n = self.form, len(self.form.state_sizes)
        s, a = form.state(c // form.num_actions, before), c % form.num_actions
        s_next = form.state(jnp.int32(0), x)
        for layer in self.layout.layers:
            for i in layer:
                value = self.layout.computed[i]
                if value is not None:
                    s_next = s_next.at[i].set(value(s, a, s_next))
        seen = [self.layout.computed[n + i](s, a, s_next) for i in form.computed]  # type: ignore[misc]
        return form.sampled_number(s_next), jnp.stack(seen) if seen else jnp.zeros((0,), jnp.int32)

    def _random(self, *shape: int) -> np.ndarray:
        return self.random.integers(0, self.sizes, (*shape, len(self.sizes))).astype(np.int32)

    def _all(self, c: np.ndarray, before: np.ndarray, x: np.ndarray) -> np.ndarray:
        u, seen = self.ask(jnp.asarray(c, jnp.int32), jnp.asarray(before), jnp.asarray(x))
        return np.concatenate([np.asarray(u)[:, None], np.asarray(seen)], axis=1)

    def reads(self) -> list[tuple[int, ...]]:
        """The features that u' and o depend on, for each (u, a)."""
        m, size = len(self.sizes), int(self.sizes.max())
        x = self._random(self.contexts, NUM_PROBES, 1, 1).repeat(m, 2).repeat(size, 3)
        for k in range(m):
            x[:, :, k, :, k] = np.minimum(np.arange(size), self.sizes[k] - 1)
        c = np.broadcast_to(np.arange(self.contexts)[:, None, None, None], x.shape[:-1]).reshape(-1)
        flat = x.reshape(-1, m)
        found = self._all(c, np.zeros_like(flat), flat).reshape(*x.shape[:-1], -1)
        depends = np.any(found != found[:, :, :, :1], axis=(1, 3, 4))
        return [tuple(np.flatnonzero(row).tolist()) for row in depends]

    def outcomes(self, form: Form, reads: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
        """u' and o by the values of the features that are read. The others make no difference: checked."""
        digits, m = form.digits, len(self.sizes)
        x = np.zeros((self.contexts, len(digits), m), np.int32)
        for c, read in enumerate(reads):
            for r, k in enumerate(read):
                x[c, :, k] = np.minimum(digits[:, r], self.sizes[k] - 1)
        every = np.repeat(np.arange(self.contexts), len(digits))
        flat = x.reshape(-1, m)
        found = self._all(every, np.zeros_like(flat), flat).reshape(self.contexts, len(digits), -1)
        c, other = self.random.integers(0, self.contexts, NUM_CHECKS), self._random(NUM_CHECKS)
        shape = (form.largest,) * form.num_read
        values = [
            [*v[list(reads[i])], *[0] * (form.num_read - len(reads[i]))]
            for i, v in zip(c, other, strict=True)
        ]
        place = np.ravel_multi_index(tuple(np.array(values, int).T), shape)
        if np.any(self._all(c, self._random(NUM_CHECKS), other) != found[c, place]):
            raise NoForm("what is computed depends on more features than could be found")
        return found[:, :, 0].astype(np.int32), found[:, :, 1:].astype(np.int32)


def _factor(
    form: Form, reads: Sequence[tuple[int, ...]], outcome: np.ndarray, seen: np.ndarray
) -> np.ndarray:
    """Whether (u', o) leaves a product of sets of values, for each context: then tables stay independent."""
    sizes = [form.state_sizes[i] for i in form.features]
    factors = np.ones(len(reads), bool)
    for c, read in enumerate(reads):
        limit = np.array([*[sizes[k] for k in read], *[1] * (form.num_read - len(read))])
        legal = np.flatnonzero(np.all(form.digits < limit, axis=1))
        events: dict[bytes, list[int]] = {}
        for j in legal.tolist():
            events.setdefault(np.append(outcome[c, j], seen[c, j]).tobytes(), []).append(j)
        for event in events.values():
            values = form.digits[event]
            factors[c] &= math.prod(len(set(column)) for column in values.T) == len(values)
    return factors
