"""The D of a Bayes network: rows of counts, read where they lie."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from baddr import prng
from baddr.core.pomdp import Action, Observation, Scalar, SplitDynamics, State
from baddr.posteriors.factored.layout import Layout

Values = Sequence[Int[Array, ""] | None]  # of all features of (s, s', o); None: not drawn yet
Edges = Bool[Array, "*particles edges"]
Seed = UInt32[Array, "2"]
Places = Int[Array, "entries shares"]  # where the counts lie that an entry of the tables is the sum of


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
        return vector(x[n : 2 * n])

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        n, m = len(self.layout.state_sizes), len(self.layout.observation_sizes)
        x = self._sample(key, self.layout.observation_layers, s, a, [*s, *s_next, *[None] * m])
        return vector(x[2 * n :])

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
            s_next = vector([jnp.int32(0) if value is None else value for value in x[n : 2 * n]])
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
        p = entries(rows, vector([x[n + i] for i in tables])) / jnp.sum(rows, axis=1)
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


def vector(values: Sequence[Int[Array, ""] | None]) -> Int[Array, " n"]:
    return jnp.stack([value for value in values if value is not None])


# Rows.


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
    return jnp.asarray(start)[a] + jnp.sum(here * vector([x[j] for j in used])[None], axis=1, dtype=jnp.int32)


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
