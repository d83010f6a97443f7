"""Rejuvenation of factored counts and of structures: Gibbs sweeps, relabelling, and edges that come and go.

The order, for each particle: (T, O | counts) drawn; (states | T, O, history) by forward filtering, backward
sampling; (labels | states) and (graph | states), by Metropolis with the Bayesian-Dirichlet ratio, the tables
integrated out. The chain's state is kept, whether or not the last proposal was accepted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr import prng
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.pomdp import all_vectors, feature_vector
from baddr.core.rejuvenation import Moves
from baddr.posteriors.factored import Factored, FactoredCounts
from baddr.posteriors.factored.dynamics import Edges
from baddr.posteriors.factored.layout import Layout, Table
from baddr.posteriors.gibbs import relabellings
from baddr.posteriors.memory import Codes, Memory, ParticleMoves
from baddr.posteriors.paths import Tables, draw_paths

TOGGLES_PER_EDGE = 2


class Place(NamedTuple):
    """Where the probability of (s, s') or of (s', o) by one learned node lies among the counts."""

    a: int
    base: Int[np.ndarray, "I J"]
    edges: tuple[tuple[int, Int[np.ndarray, "I J"]], ...]  # what an uncertain edge adds, where it is there

    def where(self, edges: Edges) -> Int[Array, "I J"]:
        index = jnp.asarray(self.base, jnp.int32)
        for number, more in self.edges:
            index = index + jnp.where(edges[number], jnp.asarray(more, jnp.int32), 0)
        return index


@dataclass(frozen=True, eq=False)  # the same only as itself: arrays have no hash
class Flat:
    """The graph over flat states: its learned nodes, and what all others say."""

    T: tuple[Place, ...]
    O: tuple[Place, ...]
    known_T: Float[np.ndarray, "A S S"]
    known_O: Float[np.ndarray, "A S Z"]


class GibbsFactored(ParticleMoves):
    """For `Factored`, whose states can be listed."""

    posterior: Factored
    p0: Float[Array, " S"]
    flat: Flat = eqx.field(static=True)
    permutations: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    codes: Codes = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    rows_at_once: int = eqx.field(static=True, default=1)
    ends: Bool[Array, "A S S"] | None = None

    def move(
        self, key: Key[Array, ""], states: AugmentedState, memory: Memory
    ) -> tuple[AugmentedState, Moves]:
        key_model, key_paths, key_rest = jr.split(key, 3)
        n, old = states.s.shape[0], states.theta
        T, O = jax.vmap(self.model)(jr.split(key_model, n), old)
        model = Tables(self.p0, jnp.transpose(T, (1, 2, 3, 0)), jnp.transpose(O, (1, 3, 2, 0)), self.ends)
        paths = draw_paths(key_paths, model, memory, self.codes, self.rows_at_once)
        seen = jnp.transpose(paths.T, (3, 0, 1, 2)), jnp.transpose(paths.O, (3, 0, 2, 1))
        s, theta, relabelled = jax.vmap(self.relabel_and_toggle)(
            jr.split(key_rest, n), paths.s, seen, old.edges
        )
        s = jax.vmap(lambda s: feature_vector(s, self.posterior.layout.state_sizes))(s)
        after = AugmentedState(s, theta)
        keep = jax.vmap(lambda yes, x, y: jax.tree.map(lambda x, y: jnp.where(yes, x, y), x, y))
        after = keep(paths.possible, after, states)
        changed = jnp.any(after.theta.counts != old.counts, axis=1)
        changed |= jnp.any(after.theta.edges != old.edges, axis=1)
        count = lambda yes: jnp.sum(yes, dtype=jnp.int32)
        return after, Moves(jnp.int32(1), relabelled=count(relabelled), moved=count(changed))

    def model(self, key: Key[Array, ""], theta: FactoredCounts) -> tuple[Array, Array]:
        """(T, O) drawn from the Dirichlets, over flat states."""
        alpha = theta.counts
        gamma = prng.gamma(key, alpha)
        rows = [_rows(gamma, table) for table in self.posterior.layout.tables]
        p = jnp.concatenate(
            [(x / jnp.maximum(jnp.sum(x, -1, keepdims=True), 1e-30)).reshape(-1) for x in rows]
        )
        T, O = jnp.asarray(self.flat.known_T, jnp.float32), jnp.asarray(self.flat.known_O, jnp.float32)
        for place in self.flat.T:
            T = T.at[place.a].multiply(p[place.where(theta.edges)])
        for place in self.flat.O:
            O = O.at[place.a].multiply(p[place.where(theta.edges)])
        return T, O

    def counts(self, seen: tuple[Array, Array], edges: Edges) -> Float[Array, " counts"]:
        """The prior's counts of a structure, and those of a history."""
        counts = self.posterior.prior_counts(edges)
        for places, flat in zip((self.flat.T, self.flat.O), seen, strict=True):
            for place in places:
                counts = counts.at[place.where(edges)].add(flat[place.a])
        return counts

    def log_score(self, seen: tuple[Array, Array], edges: Edges) -> Float[Array, ""]:
        """log p(history, structure), the tables integrated out."""
        p = self.posterior.edge_probability
        log_prior = jnp.sum(jnp.where(edges, jnp.log(p), jnp.log1p(-p)), dtype=jnp.float32)
        return log_prior + self.posterior.log_score(FactoredCounts(self.counts(seen, edges), edges))

    def relabel_and_toggle(
        self, key: Key[Array, ""], s: Int[Array, ""], seen: tuple[Array, Array], edges: Edges
    ) -> tuple[Int[Array, ""], FactoredCounts, Bool[Array, ""]]:
        """Metropolis: the states under other names, and one edge after the other."""
        key_labels, key_edges = jr.split(key)
        s, seen, relabelled = self.relabel(key_labels, s, seen, edges)
        number = edges.shape[0]

        def toggle(now: tuple[Array, Array], key: Key[Array, ""]) -> tuple[tuple[Array, Array], None]:
            edges, score = now
            key_edge, key_accept = jr.split(key)
            other = edges ^ (jnp.arange(number) == jr.randint(key_edge, (), 0, number))
            new = self.log_score(seen, other)
            accepted = jnp.log(jr.uniform(key_accept)) < new - score
            return (jnp.where(accepted, other, edges), jnp.where(accepted, new, score)), None

        if number:
            keys = jr.split(key_edges, TOGGLES_PER_EDGE * number)
            (edges, _), _ = jax.lax.scan(toggle, (edges, self.log_score(seen, edges)), keys)
        return s, FactoredCounts(self.counts(seen, edges), edges), relabelled

    def relabel(
        self, key: Key[Array, ""], s: Int[Array, ""], seen: tuple[Array, Array], edges: Edges
    ) -> tuple[Int[Array, ""], tuple[Array, Array], Bool[Array, ""]]:
        """As in `gibbs`: what was seen is as likely, and the prior decides."""
        if not self.permutations:
            return s, seen, jnp.array(False)
        key_pi, key_accept = jr.split(key)
        which = jr.randint(key_pi, (), 0, len(self.permutations))
        pi = jnp.array(self.permutations, jnp.int32)[which]
        other = seen[0][:, pi][:, :, pi], seen[1][:, pi]
        log_ratio = self.log_score(other, edges) - self.log_score(seen, edges)
        accepted = jnp.log(jr.uniform(key_accept)) < log_ratio
        choose = lambda x, y: jnp.where(accepted, x, y)
        return choose(pi[s], s), (choose(other[0], seen[0]), choose(other[1], seen[1])), accepted


def _rows(counts: Float[Array, " counts"], table: Table) -> Float[Array, "..."]:
    size = int(np.prod(table.shape))
    return counts[table.start : table.start + size].reshape(table.shape)


def gibbs_factored(
    posterior: Factored,
    p0: Float[np.ndarray, " S"],
    horizon: int,
    capacity: int,
    rows_at_once: int = 1,
    ends: Bool[np.ndarray, "A S S"] | None = None,
) -> GibbsFactored:
    """The moves of a factored posterior, whose states start as p0 says, and whose episodes end as `ends`."""
    layout = posterior.layout
    flat = flatten(layout, np.asarray(posterior.known, np.float64))
    A, _, Z = flat.known_O.shape
    T = np.moveaxis(flat.known_T, 0, 1)
    alike = relabellings(T, flat.known_O, p0, layout.state_sizes, ends)
    same = lambda pi: np.allclose(T[pi][:, :, pi], T) and np.allclose(flat.known_O[:, pi], flat.known_O)
    return GibbsFactored(
        posterior=posterior,
        p0=jnp.asarray(p0, jnp.float32),
        flat=flat,
        permutations=tuple(pi for pi in alike if same(np.array(pi))),
        codes=Codes(A, layout.observation_sizes, Z, horizon),
        capacity=capacity,
        rows_at_once=rows_at_once,
        ends=None if ends is None else jnp.asarray(ends),
    )


def flatten(layout: Layout, known: Float[np.ndarray, " known"]) -> Flat:
    """The nodes of a graph over all (s, s') and all (s', o)."""
    s, o, A = all_vectors(layout.state_sizes), all_vectors(layout.observation_sizes), len(layout.start)
    n, S, Z = len(layout.state_sizes), len(s), len(o)
    pairs = np.concatenate([np.repeat(s, S, 0), np.tile(s, (S, 1)), np.zeros((S * S, o.shape[1]), int)], 1)
    seen = np.concatenate([np.zeros((S * Z, n), int), np.repeat(s, Z, 0), np.tile(o, (S, 1))], 1)
    found: dict[bool, list[Place]] = {False: [], True: []}
    tables = {False: np.ones((A, S, S)), True: np.ones((A, S, Z))}
    for a in range(A):
        for i, value in enumerate(layout.computed):
            of_o = i >= n
            x, shape = (seen, (S, Z)) if of_o else (pairs, (S, S))
            if value is not None:
                ask = jax.vmap(lambda x, a=a, value=value: value(x[:n], jnp.int32(a), x[n : 2 * n]))
                tables[of_o][a] *= (np.asarray(ask(jnp.asarray(x, jnp.int32))) == x[:, n + i]).reshape(shape)
                continue
            place = _place(layout, a, i, x, shape)
            if layout.learned[a][i]:
                found[of_o].append(place)
            else:
                rows = known[
                    place.base - x[:, n + i].reshape(shape) + np.arange(layout.sizes[i])[:, None, None]
                ]
                tables[of_o][a] *= known[place.base] / rows.sum(0)
    return Flat(tuple(found[False]), tuple(found[True]), tables[False], tables[True])


def _place(layout: Layout, a: int, i: int, x: np.ndarray, shape: tuple[int, int]) -> Place:
    n = len(layout.state_sizes)
    base, edges = layout.start[a][i] + x[:, n + i], []
    for j, stride in enumerate(layout.stride[a][i]):
        if layout.edge[a][i][j] >= 0:
            edges.append((layout.edge[a][i][j], (stride * x[:, j]).reshape(shape)))
        else:
            base = base + stride * x[:, j]
    return Place(a, base.reshape(shape), tuple(edges))
