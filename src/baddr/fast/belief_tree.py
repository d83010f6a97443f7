"""`planners.belief_tree.search.TreeOfBeliefs`, faster: run by run on a CPU, networks tabulated, tables and
bounds of a known model or of a bank's members worked out once."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr import prng
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, uniform_weights
from baddr.core.planner import Plan, PreparedPlanner
from baddr.core.pomdp import POMDP, Dynamics, all_vectors
from baddr.fast.backend import on_cpu
from baddr.fast.network_draws import draws_of, in_order
from baddr.fast.bank_models import tables_of_members, weights_of_members
from baddr.fast.tables import Rows, Tabulated, draws_once, rows_that_matter, tabulate
from baddr.fast.tuning import MOST_ROWS
from baddr.planners.belief_tree.bounds import Bounds
from baddr.planners.belief_tree.mean_model import is_known, observation_table, transition_table
from baddr.planners.belief_tree.nodes import (
    Drawn,
    Nodes,
    TableNodes,
    Tables,
    bounds_of,
    draw_root,
    root_weights,
    tables_of,
)
from baddr.planners.belief_tree.search import (
    LARGEST_TABLES,
    Search,
    TreeOfBeliefs,
    by_tables,
    grow,
    grow_all,
    learning,
)
from baddr.planners.tree_search import effective_depth
from baddr.posteriors.bank import Bank

MOST_KNOWN_STATES = 1024  # of a known model that is searched by tables
MOST_KNOWN_OBSERVATIONS = 1024
LARGEST_COMPARISON = 1 << 28  # numbers in p(o | s, a, s'), to see whether it depends on s
SAME = 1e-6  # the largest difference of two probabilities that are called the same


class FastTree(PreparedPlanner):
    """The belief tree by particles, or by tables (which draw nothing)."""

    how: TreeOfBeliefs
    tables: Tables | None  # of a model that is known, or of all members of a bank
    bounds: Bounds | None  # in them
    # The inputs of D that are evaluated before, where they are few
    rows: Rows | None = eqx.field(static=True)
    by: str = eqx.field(static=True)

    @property
    def stream(self) -> str:
        """What the random numbers of a search depend on."""
        return f"beliefs by {self.by}"

    def prepare(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> PyTree:
        return () if self.bounds is not None else self.how.prepare(key, pomdp, belief)

    def plan_prepared(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"],
        prepared: PyTree,
    ) -> Plan:
        limit = jnp.minimum(steps_left, self.how.depth or pomdp.horizon)
        given = keys, belief, limit, active, prepared
        if not on_cpu():
            return grow_all(jax.vmap(partial(self.start, pomdp))(*given), self.how, pomdp.discount)
        one = lambda given: grow(self.start(pomdp, *given), self.how, pomdp.discount)
        return jax.lax.map(one, given)

    def start(
        self,
        pomdp: POMDP,
        key: Key[Array, ""],
        belief: Particles,
        limit: Int[Array, ""],
        active: Bool[Array, ""],
        prepared: PyTree,
    ) -> Search:
        """A run's search before its first expansion."""
        key_root, key_tree = jr.split(key)
        bounds = prepared if self.bounds is None else self.bounds
        return self.how.start(key_tree, pomdp, self.nodes(key_root, pomdp, belief), limit, active, bounds)

    def nodes(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> Nodes:
        gba, belief = learning(pomdp, belief)
        if self.tables is not None and isinstance(gba.posterior, Bank):
            weights = weights_of_members(gba, belief)
            return TableNodes(tables=self.tables, weights=weights, num_children=gba.num_observations)
        if self.tables is not None:
            drawn = Drawn(belief.states.s, belief.weights, jnp.zeros((0,), jnp.int32), ())
            weights = root_weights(drawn, 1, gba.state_sizes)
            return TableNodes(tables=self.tables, weights=weights, num_children=self.how.num_children(gba))
        if self.by == "particles" and on_cpu() and not is_known(gba.posterior):
            drawn = draw_root(key, gba, belief, self.how.num_particles)
            drawn = in_order(drawn, belief.num_particles)
            draws = draws_of(gba.models, belief.states.theta, drawn, belief.num_particles)
            return self.how.particle_nodes(gba, drawn, draws)
        if self.rows is None:
            return self.how.nodes(key, gba, belief)
        drawn = draw_root(key, gba, belief, self.how.num_particles)
        found = tabulate(gba.models, self.rows, belief.states.theta, drawn.i, drawn.epsilon)
        if found is None:
            return self.how.nodes(key, gba, belief)
        T, O = spread(found, self.rows, gba)
        weights = root_weights(drawn, drawn.i.shape[0], gba.state_sizes)
        tables = tables_of(gba.pomdp, T, O)
        return TableNodes(tables=tables, weights=weights, num_children=gba.num_observations)


def spread(
    found: Tabulated, rows: Rows, gba: GBAPOMDP
) -> tuple[Float[Array, "m A S S"], Float[Array, "m A S S Z"]]:
    """Full tables of what was evaluated at the rows that matter. Elsewhere s' is anything (the episode ends,
    and its reward is the same), and o nothing."""
    p_T, p_O = found.probabilities()
    S, A, Z, m = gba.num_states, gba.num_actions, gba.num_observations, p_T.shape[0]
    (s, a), (s_O, a_O, s_next) = (np.array(x, np.int32).T for x in rows)
    T = jnp.full((m, A, S, S), 1 / S).at[:, a, s].set(p_T)
    return T, jnp.zeros((m, A, S, S, Z)).at[:, a_O, s_O, s_next].set(p_O)


def fast_tree(how: TreeOfBeliefs, pomdp: POMDP) -> FastTree:
    """The fast form of a belief tree in this POMDP."""
    gba, known = pomdp, False
    if not isinstance(gba, GBAPOMDP):
        gba, _ = learning(pomdp, Particles((), uniform_weights(1)))
    known = is_known(gba.posterior)
    if known:
        tables = known_tables(gba)
        bounds = known_bounds(how, gba, tables)
        return FastTree(how, tables, bounds, None, "particles" if tables is None else "tables")
    if isinstance(gba.posterior, Bank) and by_tables(gba, gba.posterior.num_members):
        tables = tables_of_members(gba)
        return FastTree(how, tables, known_bounds(how, gba, tables), None, "members")
    rows = None
    if by_tables(gba, how.num_particles):
        if draws_once(gba.posterior):
            rows = rows_that_matter(gba.pomdp, MOST_ROWS)
            rows = rows if rows is not None and all(rows) else None
        return FastTree(how, None, None, rows, "tables")
    return FastTree(how, None, None, None, "particles")


def known_bounds(how: TreeOfBeliefs, gba: GBAPOMDP, tables: Tables | None) -> Any:
    """Those of a known model, which no belief changes."""
    nobody = Particles(gba_states(gba), uniform_weights(1))
    if tables is not None and None in how.own:
        horizon = effective_depth(gba.discount, gba.horizon)
        return eqx.filter_jit(bounds_of)(tables, gba.discount, horizon, how.own, gba.state_sizes)
    return eqx.filter_jit(how.prepare)(prng.key(0), gba, nobody)


def gba_states(gba: GBAPOMDP) -> Any:
    """One particle, whose state does not matter."""
    return AugmentedState(jnp.zeros((1, len(gba.state_sizes)), jnp.int32), ())


def known_tables(gba: GBAPOMDP) -> Tables | None:
    """Of a known model, where they are small enough to be searched."""
    S, A, Z = gba.num_states, gba.num_actions, gba.num_observations
    if S > MOST_KNOWN_STATES or Z > MOST_KNOWN_OBSERVATIONS or S * S * A * Z > LARGEST_COMPARISON:
        return None
    pomdp, D = gba.pomdp, gba.posterior.dynamics((), ())
    T = eqx.filter_jit(transition_table)(pomdp, D)
    O, differs = eqx.filter_jit(observations_of_next)(pomdp, D, T)
    if not differs:
        return tables_of(pomdp, T[None], O[None])
    if S * S * A * Z > LARGEST_TABLES:
        return None
    return tables_of(pomdp, T[None], eqx.filter_jit(observation_table)(pomdp, D)[None])


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
