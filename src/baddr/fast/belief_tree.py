"""`planners.belief_tree.search.TreeOfBeliefs`, faster: run by run on a CPU, networks tabulated, tables and
bounds of a known model or of a bank's members worked out once."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, uniform_weights
from baddr.core.planner import Plan, PreparedPlanner
from baddr.core.pomdp import POMDP
from baddr.fast.backend import on_cpu
from baddr.fast.bank_models import tables_of_members, weights_of_members
from baddr.fast.known_bounds import known_bounds, known_tables
from baddr.fast.network_draws import draws_of, in_order
from baddr.fast.solved_simulators import SolvedSimulators, solved_simulators
from baddr.fast.tables import Rows, Tabulated, draws_once, rows_that_matter, tabulate
from baddr.fast.tuning import MOST_ROWS
from baddr.planners.belief_tree.bounds import Bounds
from baddr.planners.belief_tree.mean_model import is_known
from baddr.planners.belief_tree.nodes import (
    Drawn,
    Nodes,
    TableNodes,
    Tables,
    draw_root,
    root_weights,
    tables_of,
)
from baddr.planners.belief_tree.search import (
    Search,
    TreeOfBeliefs,
    by_tables,
    grow,
    grow_all,
    learning,
)
from baddr.posteriors.bank import Bank


class FastTree(PreparedPlanner):
    """The belief tree by particles, or by tables (which draw nothing)."""

    how: TreeOfBeliefs
    tables: Tables | None  # of a model that is known, or of all members of a bank
    bounds: Bounds | None  # in them
    # The inputs of D that are evaluated before, where they are few
    rows: Rows | None = eqx.field(static=True)
    by: str = eqx.field(static=True)
    solved: SolvedSimulators | None = None  # which have policies for a model that is uncertain

    @property
    def stream(self) -> str:
        """What the random numbers of a search depend on."""
        return f"beliefs by {self.by}"

    def prepare(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> PyTree:
        prepared = () if self.bounds is not None else self.how.prepare(key, pomdp, belief)
        if self.solved is None:
            return prepared
        return prepared, self.solved.nearest(jr.fold_in(key, 1), *learning(pomdp, belief))

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
        if self.solved is not None:
            prepared, which = prepared
            prepared = replace(prepared, policies=(self.solved.policies, which))
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
        small = by_tables(gba, self.how.num_models(gba, belief))
        if on_cpu() and not small and not is_known(gba.posterior):
            drawn = draw_root(key, gba, belief, self.how.num_particles)
            if not isinstance(gba.posterior, Bank):  # whose particles are drawn by weight
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
    solved = solved_simulators(how, gba.pomdp)
    return FastTree(how, None, None, None, "particles" if solved is None else "particles, solved", solved)
