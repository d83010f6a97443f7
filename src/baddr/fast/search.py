"""`planners.tree_search.TreeSearch`, faster: roots drawn run by run, networks tabulated, small POMDPs by
tables."""

import warnings
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP, flat_index
from baddr.fast.backend import has_kernels, on_cpu
from baddr.fast.compiler import small_loops_are_compiled
from baddr.fast.lone_search import search_alone
from baddr.fast.loops import one_by_one, over_all
from baddr.fast.table_search import By, Limits, search_tables
from baddr.fast.tables import Rows, draws_once, has_tables, rows_that_matter, tables, tabulate
from baddr.fast.tuning import MOST_ROWS
from baddr.planners.choice import Hooks
from baddr.planners.tree_search import TreeSearch, is_plain, is_published, samples_roots, search


class FastSearch(Planner):
    """PO-UCT by a tree, path by path (`lone_search`), or by tables (a stream of random numbers of its own).

    Which of them depends on the settings and the POMDP alone, so that a run can be resumed.
    """

    how: TreeSearch
    # The inputs of D that are evaluated before, where they are few
    rows: Rows | None = eqx.field(static=True)
    by: Literal["tree", "paths"] | By = eqx.field(static=True)

    @property
    def stream(self) -> str:
        """What the random numbers of a search depend on."""
        by_tree = "tree" if is_published(self.how) else "round trip"
        return {"tree": by_tree, "paths": "paths"}.get(self.by, "tables")

    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
    ) -> Plan:
        active = jnp.ones(keys.shape, bool) if active is None else active
        keys_loop, (s, draws) = one_by_one(partial(self.how.roots, pomdp))(keys, belief)
        draws = self.prepare(pomdp, belief, draws)
        if self.by in ("tree", "paths"):
            by = search if self.by == "tree" else search_alone
            return by(keys_loop, self.how, pomdp, belief, (s, draws), steps_left, active)
        assert isinstance(pomdp, GBAPOMDP) and self.rows is not None
        limits = Limits(pomdp.discount, self.how.exploration, self.how.depth_in(pomdp))
        found = search_tables(
            keys_loop,
            tables(pomdp, belief, draws, self.rows),
            jax.vmap(jax.vmap(partial(flat_index, sizes=pomdp.state_sizes)))(s),
            jnp.minimum(limits.depth, steps_left),
            active,
            limits,
            self.by,
        )
        return Plan(found.total / jnp.maximum(found.N, 1), found.N, found.num_nodes, found.num_steps)

    def prepare(self, pomdp: POMDP, belief: Particles, draws: PyTree) -> PyTree:
        """The draws of all runs' simulations, with networks evaluated where that is worth it."""
        if not isinstance(pomdp, GBAPOMDP) or self.rows is None or not all(self.rows):
            return draws
        found = over_all(partial(tabulate, pomdp.models, self.rows))(belief.states.theta, *draws)
        return draws if found is None else found


def fast_search(how: TreeSearch, pomdp: POMDP) -> FastSearch:
    """The fast form of a search in this POMDP."""
    rows = None
    if isinstance(pomdp, GBAPOMDP) and samples_roots(how, pomdp) and draws_once(pomdp.posterior):
        rows = rows_that_matter(pomdp.pomdp, MOST_ROWS)
    if not is_plain(how) or how.hooks != Hooks() or not has_tables(pomdp, rows):
        return FastSearch(how, rows, "paths" if how.by_paths and on_cpu() else "tree")
    if on_cpu() and not small_loops_are_compiled():
        warnings.warn(
            "Searches take ten times as long as they could: call baddr.compile_small_loops() before JAX "
            "first computes. Results are the same.",
            stacklevel=4,
        )
    return FastSearch(how, rows, "kernel" if has_kernels() else "loop")
