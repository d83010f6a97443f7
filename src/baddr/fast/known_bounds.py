"""A known model's tables, and bounds in it, worked out once and for all.

Blind policies say little where a goal is some steps away. The bounds are then those of the point-based
solver: where episodes are long in proportion to the discount, vectors without a horizon below and the fast
informed bound above; in small models, vectors for each number of steps left below. A domain's own bounds
stand beside them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.sparse import csr_array

from baddr import prng
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, uniform_weights
from baddr.core.pomdp import POMDP, Dynamics, all_vectors
from baddr.planners.belief_tree.bounds import Bounds
from baddr.planners.belief_tree.mean_model import observation_table, transition_table
from baddr.planners.belief_tree.nodes import Before, Tables, bounds_of, tables_of
from baddr.planners.belief_tree.search import LARGEST_TABLES, TreeOfBeliefs
from baddr.planners.tree_search import effective_depth
from baddr.solve.initial import fast_informed_bound, informed_backup, layers
from baddr.solve.listing import start_of
from baddr.solve.model import SparseModel
from baddr.solve.point_based import Budget
from baddr.solve.stored import stored_solution

MOST_STATES = 1024  # of a known model that is searched by tables
MOST_OBSERVATIONS = 1024
LARGEST_COMPARISON = 1 << 28  # numbers in p(o | s, a, s'), to see whether it depends on s
SAME = 1e-6  # the largest difference of two probabilities that are called the same
LONG = 0.1  # gamma^horizon: where it is less, what comes after the horizon counts little
STARTS = 256  # states that an episode starts in, drawn
SMALL = 1 << 16  # states x observations x steps: the solver's trials for each step take seconds
SPARSE = 4  # a number that is looked up costs as much as so many in a product
# Of the solver: trials, and not seconds, so that equal settings give equal bounds. More vectors are of little
# use to a tree, which looks at all of them in every expansion.
BUDGET = Budget(precision=1e-3, trials=30, vectors=96)
BY_STEPS = Budget(precision=1e-3, trials=64, vectors=96)  # with 30, Light-Dark has 44 in place of 60


def known_bounds(how: TreeOfBeliefs, gba: GBAPOMDP, tables: Tables | None) -> Any:
    """Those of a known model, or of several side by side, which no belief changes."""
    if tables is None:
        # States do not matter to value iteration; walks start from them.
        s = jax.jit(jax.vmap(gba.pomdp.initial_state))(jr.split(prng.key(1), STARTS))
        belief = Particles(AugmentedState(s, ()), uniform_weights(STARTS))
        return eqx.filter_jit(how.prepare)(prng.key(0), gba, belief)
    horizon = effective_depth(gba.discount, gba.horizon)
    bounds = eqx.filter_jit(bounds_of)(tables, gba.discount, horizon, how.own, gba.state_sizes)
    one = tables.T.shape[-1] == 1 and tables.O.ndim == 4
    if one and is_long(gba):
        return tightened(bounds, sparse(gba, tables), horizon)
    if one and is_solved(gba):
        return tightened_by_steps(bounds, sparse(gba, tables), horizon)
    return bounds


def is_long(pomdp: POMDP) -> bool:
    """Whether little is earned after the horizon: the solver's vectors need none, then."""
    return pomdp.discount < 1 and pomdp.discount**pomdp.horizon < LONG


def is_solved(pomdp: POMDP) -> bool:
    """Whether the solver is asked for bounds, where the model is known and small."""
    horizon = effective_depth(pomdp.discount, pomdp.horizon)
    return is_long(pomdp) or pomdp.num_states * pomdp.num_observations * horizon <= SMALL


def tightened(bounds: Bounds, model: SparseModel, horizon: int) -> Bounds:
    """With the vectors of the solver below, and the fast informed bound above.

    The policy of a vector goes on for ever. With h steps left it earns as much, less at most what the best of
    all states is worth, gamma^h later.
    """
    assert bounds.lower is not None and bounds.upper is not None
    most = max(0.0, float(np.max(fast_informed_bound(model))))  # of a policy that has ended: 0
    alphas = stored_solution(model, BUDGET).alphas
    later = most * model.discount ** np.arange(horizon + 1)
    vectors = alphas[None] - later[:, None, None]
    vectors[0] = np.minimum(vectors[0], 0)
    above = np.stack([np.zeros_like(model.R), *layers(model, informed_backup(model), horizon, 1)])
    lower = jnp.concatenate([bounds.lower, jnp.asarray(vectors, bounds.lower.dtype)], axis=1)
    upper = jnp.minimum(bounds.upper, jnp.asarray(above, bounds.upper.dtype))
    return Bounds(lower, upper, bounds.own, bounds.sizes)


def tightened_by_steps(bounds: Bounds, model: SparseModel, horizon: int) -> Bounds:
    """With the vectors of the solver for 1, 2, ..., `horizon` steps left below."""
    assert bounds.lower is not None
    solution = stored_solution(model, BY_STEPS, horizon)
    steps, alphas = solution.steps_left, solution.alphas
    blind = np.asarray(bounds.lower)
    most = max(np.bincount(steps))
    vectors = np.repeat(blind[:, :1], most, axis=1)  # where there are fewer
    for h in range(1, horizon + 1):
        mine = alphas[steps == h]
        vectors[h, : len(mine)] = mine
    return Bounds(jnp.concatenate([blind, vectors], axis=1), bounds.upper, bounds.own, bounds.sizes)


def sparse(gba: GBAPOMDP, tables: Tables) -> SparseModel:
    """The tables for the solver, with rows of O that sum to one."""
    T, O, R = (np.asarray(x[..., 0], np.float64) for x in tables[:3])
    O = np.swapaxes(O, 1, 2)
    total = O.sum(axis=2, keepdims=True)
    O = np.where(total > 0, O / np.maximum(total, 1e-300), 1 / O.shape[2])  # where no s' leads, anything
    rows = lambda table: tuple(map(csr_array, table))
    start, exact = start_of(gba.pomdp)
    return SparseModel(rows(T), rows(O), R, start, float(gba.discount), exact)


def known_tables(gba: GBAPOMDP) -> Tables | None:
    """Of a known model, where they are small enough to be searched."""
    S, A, Z = gba.num_states, gba.num_actions, gba.num_observations
    if S > MOST_STATES or Z > MOST_OBSERVATIONS or S * S * A * Z > LARGEST_COMPARISON:
        return None
    pomdp, D = gba.pomdp, gba.posterior.dynamics((), ())
    T = eqx.filter_jit(transition_table)(pomdp, D)
    O, differs = eqx.filter_jit(observations_of_next)(pomdp, D, T)
    if not differs:
        tables = tables_of(pomdp, T[None], O[None])
        return tables._replace(before=sources(np.asarray(tables.T[..., 0])))
    if S * S * A * Z > LARGEST_TABLES:
        return None
    return tables_of(pomdp, T[None], eqx.filter_jit(observation_table)(pomdp, D)[None])


def sources(T: Float[np.ndarray, "A S S"]) -> Before | None:
    """The s before each s', where they are so few that looking them up beats a product with all."""
    S, rows = T.shape[1], np.swapaxes(T, 1, 2)
    most = max(1, int((rows > 0).sum(axis=2).max()))
    if most * SPARSE > S:
        return None
    s = np.argsort(rows == 0, axis=2, kind="stable")[:, :, :most]  # those of positive probability first
    return Before(jnp.asarray(s, jnp.int32), jnp.asarray(np.take_along_axis(rows, s, axis=2)))


def observations_of_next(
    pomdp: POMDP, D: Dynamics, T: Float[Array, "A S S"]
) -> tuple[Float[Array, "A S Z"], Bool[Array, ""]]:
    """p(o | a, s'), and whether o depends on s, too. One s after the other: all at once need not fit."""
    s = jnp.asarray(all_vectors(pomdp.state_sizes))
    o, actions = jnp.asarray(all_vectors(pomdp.observation_sizes)), jnp.arange(T.shape[0], dtype=jnp.int32)

    def from_one(bounds: tuple[Array, Array], x: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        s_here, reached = x[0], x[1][:, :, None] > 0
        each = lambda a, s_next, o: jnp.exp(D.observation_log_prob(s_here, a, s_next, o))
        over_o = jax.vmap(each, in_axes=(None, None, 0))
        p = jax.vmap(jax.vmap(over_o, in_axes=(None, 0, None)), in_axes=(0, None, None))(actions, s, o)
        low, high = bounds
        return (jnp.where(reached & (p < low), p, low), jnp.where(reached & (p > high), p, high)), None

    shape = (*T.shape[:2], o.shape[0])
    start = jnp.full(shape, 2.0), jnp.zeros(shape)
    (low, high), _ = jax.lax.scan(from_one, start, (s, jnp.swapaxes(T, 0, 1)))
    return high, jnp.any((low <= 1) & (high - low > SAME))
