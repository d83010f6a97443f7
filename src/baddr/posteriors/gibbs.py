"""Rejuvenation of Dirichlet counts: relabelling, and a Gibbs sweep over models and state histories.

The counts of a particle are the prior's and those of a state history. Given the counts, (T, O) is a draw from
their Dirichlets; given (T, O) and all that was done and seen, the history is a draw by forward filtering,
backward sampling; and its counts take the place of the old ones. T and O are *drawn*: with expected ones the
posterior would not stay as it is.
"""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from baddr import prng
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.pomdp import all_vectors, feature_vector, flat_index
from baddr.core.rejuvenation import Moves
from baddr.posteriors.dirichlet import Counts, Dirichlet
from baddr.posteriors.evidence import log_evidence
from baddr.posteriors.memory import Codes, Memory, ParticleMoves
from baddr.posteriors.paths import Tables, draw_paths

Rows = tuple[tuple[int, int], ...]


class GibbsCounts(ParticleMoves):
    """For the tabular `Dirichlet`."""

    prior: Counts
    p0: Float[Array, " S"]
    permutations: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    spread: tuple[Rows, Rows] = eqx.field(static=True)  # of T and of O: those with several possible values
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    codes: Codes = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    rows_at_once: int = eqx.field(static=True, default=1)
    ends: Bool[Array, "A S S"] | None = None

    def move(
        self, key: Key[Array, ""], states: AugmentedState, memory: Memory
    ) -> tuple[AugmentedState, Moves]:
        key_relabel, key_model, key_paths = jr.split(key, 3)
        n = states.s.shape[0]
        before = states
        states, relabelled = jax.vmap(self.relabel)(jr.split(key_relabel, n), states)
        model = self.model(key_model, states.theta)
        paths = draw_paths(key_paths, model, memory, self.codes, self.rows_at_once)
        theta = Counts(
            T=self.prior.T[None] + jnp.transpose(paths.T, (3, 1, 0, 2)),
            O=self.prior.O[None] + jnp.transpose(paths.O, (3, 0, 2, 1)),
        )
        s = jax.vmap(lambda s: feature_vector(s, self.state_sizes))(paths.s)
        after = AugmentedState(s, theta)
        after = jax.vmap(lambda yes, x, y: jax.tree.map(lambda x, y: jnp.where(yes, x, y), x, y))(
            paths.possible, after, states
        )
        changed = _differ(after.theta, before.theta)
        count = lambda yes: jnp.sum(yes, dtype=jnp.int32)
        return after, Moves(jnp.int32(1), relabelled=count(relabelled), moved=count(changed))

    def relabel(self, key: Key[Array, ""], state: AugmentedState) -> tuple[AugmentedState, Bool[Array, ""]]:
        """Metropolis: (s, counts) to (pi s, pi counts) for a random pi. What was seen is as likely under
        either; the prior tells them apart."""
        if not self.permutations:
            return state, jnp.array(False)
        key_pi, key_accept = jr.split(key)
        which = jr.randint(key_pi, (), 0, len(self.permutations))
        pi = jnp.array(self.permutations, jnp.int32)[which]
        seen = jax.tree.map(jnp.subtract, state.theta, self.prior)
        other = Counts(
            T=self.prior.T + seen.T[pi][:, :, pi],
            O=self.prior.O + seen.O[:, pi],
        )
        log_ratio = self.log_score(other) - self.log_score(state.theta)
        accepted = jnp.log(jr.uniform(key_accept)) < log_ratio
        s = feature_vector(pi[flat_index(state.s, self.state_sizes)], self.state_sizes)
        new = AugmentedState(s, other)
        return jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, state), accepted

    def log_score(self, theta: Counts) -> Float[Array, ""]:
        """log p(the history in the counts), the models integrated out."""
        score = jnp.zeros(())
        for x, prior, rows in zip(theta, self.prior, self.spread, strict=True):
            if rows:
                i, j = np.array(rows).T
                score += log_evidence(prior[i, j], x[i, j])
        return score

    def model(self, key: Key[Array, ""], theta: Counts) -> Tables:
        """(T, O) ~ Dirichlet(counts) of each particle."""
        key_T, key_O = jr.split(key)
        T, O = _drawn(key_T, theta.T, self.spread[0]), _drawn(key_O, theta.O, self.spread[1])
        return Tables(self.p0, jnp.transpose(T, (2, 1, 3, 0)), jnp.transpose(O, (1, 3, 2, 0)), self.ends)


def gibbs_counts(
    posterior: Dirichlet,
    p0: Float[np.ndarray, " S"],
    horizon: int,
    capacity: int,
    rows_at_once: int = 1,
    ends: Bool[np.ndarray, "A S S"] | None = None,
) -> GibbsCounts:
    """The moves of a tabular posterior, whose states start as p0 says, and whose episodes end as `ends`."""
    A, _, Z = posterior.counts.O.shape
    T, O = (np.asarray(x) for x in posterior.counts)
    return GibbsCounts(
        prior=posterior.counts,
        p0=jnp.asarray(p0, jnp.float32),
        permutations=relabellings(T, O, p0, posterior.state_sizes, ends),
        spread=(_spread(T), _spread(O)),
        state_sizes=posterior.state_sizes,
        codes=Codes(A, posterior.observation_sizes, Z, horizon),
        capacity=capacity,
        rows_at_once=rows_at_once,
        ends=None if ends is None else jnp.asarray(ends),
    )


def relabellings(
    T: Float[np.ndarray, "S A S"],
    O: Float[np.ndarray, "A S Z"],
    p0: np.ndarray,
    sizes: Sequence[int],
    ends: Bool[np.ndarray, "A S S"] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Permutations of states, each its own inverse, after which every history is still possible: two values
    of a feature, or two features, change places. The start, what is impossible, and what ends an episode must
    stay as they are."""
    vectors, found = all_vectors(tuple(sizes)), []
    changes = []
    for i, size in enumerate(sizes):
        for x, y in itertools.combinations(range(size), 2):
            column = vectors[:, i]
            changes.append(_replaced(vectors, i, np.where(column == x, y, np.where(column == y, x, column))))
    for i, j in itertools.combinations(range(len(sizes)), 2):
        if sizes[i] == sizes[j]:
            changes.append(_replaced(_replaced(vectors, i, vectors[:, j]), j, vectors[:, i]))
    for changed in changes:
        pi = np.asarray(np.ravel_multi_index(tuple(changed.T), tuple(sizes)))
        same = np.array_equal(p0[pi], p0) and np.array_equal((T > 0)[pi][:, :, pi], T > 0)
        same = same and (ends is None or np.array_equal(ends[:, pi][:, :, pi], ends))
        if same and np.array_equal((O > 0)[:, pi], O > 0):
            found.append(tuple(pi.tolist()))
    return tuple(found)


def _replaced(vectors: np.ndarray, i: int, column: np.ndarray) -> np.ndarray:
    changed = vectors.copy()
    changed[:, i] = column
    return changed


def _spread(table: Float[np.ndarray, "I J values"]) -> Rows:
    return tuple((int(i), int(j)) for i, j in np.argwhere(np.sum(table > 0, axis=-1) > 1))


def _drawn(key: Key[Array, ""], alpha: Float[Array, "n I J values"], spread: Rows) -> Array:
    """Dirichlet draws of all rows; of those with one possible value nothing is drawn."""
    certain = alpha / jnp.sum(alpha, axis=-1, keepdims=True)
    if not spread:
        return certain
    i, j = np.array(spread).T
    rows = alpha[:, i, j]
    gamma = prng.gamma(key, rows)
    total = jnp.sum(gamma, axis=-1, keepdims=True)  # zero, where tiny counts round to nothing
    return certain.at[:, i, j].set(
        jnp.where(total > 0, gamma / jnp.where(total > 0, total, 1), certain[:, i, j])
    )


def _differ(x: Counts, y: Counts) -> Bool[Array, " n"]:
    differ = [jnp.any(p != q, axis=tuple(range(1, p.ndim))) for p, q in zip(x, y, strict=True)]
    return differ[0] | differ[1]
