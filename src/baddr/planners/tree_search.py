"""PO-UCT with model root sampling (Alg. 2), many trees at once.

One flat loop over the simulations in flight. Each iteration moves every one of them by one simulated step;
where one ends, the next starts at once, so none waits for another. No iteration goes up a whole path:
`published` (one simulation at a time, means) and `round_trip` say how values come to the root nevertheless.

Several simulations of one tree may be in flight: they do not see each other's returns yet, but do see each
other's visits, which count from the moment of the choice (Liu et al., 2020, "Watch the unobserved"). Those
that stand at one node choose in turn (`choice`). `core.plain` has the published one with dicts and recursion.
"""

import math
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP
from baddr.planners import published, round_trip
from baddr.planners.choice import Hooks
from baddr.planners.simulation import Problem

# Rewards are not searched where gamma^depth is below this: they would change a value by less than a
# thousandth of their size, and the division by gamma^j would amplify rounding.
SMALLEST_DISCOUNT = 1e-3


class TreeSearch(Planner):
    """PO-UCT. It plans in a plain POMDP and in a GBA-POMDP alike.

    With `root_sampling` (Alg. 2) a simulation in a GBA-POMDP draws one D ~ p(.; theta) at its root and runs
    in the POMDP with those dynamics; without it, it runs in the GBA-POMDP itself and learns as it goes. Below
    the tree, actions come from the hooks' `rollout` (uniform where None), or a simulation ends at the node
    that it adds, valued by `leaf_value` or `upper`.
    """

    num_simulations: int = eqx.field(static=True)
    exploration: float = eqx.field(static=True)
    depth: int = eqx.field(static=True, default=0)  # 0: to the end of the episode
    in_flight: int = eqx.field(static=True, default=1)  # simulations of a tree at a time
    by_paths: bool = eqx.field(static=True, default=False)  # one at a time: its path is backed up at its end
    root_sampling: bool = eqx.field(static=True, default=True)
    backup: Literal["mean", "max"] = eqx.field(static=True, default="mean")
    hooks: Hooks = eqx.field(static=True, default=Hooks())

    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
    ) -> Plan:
        keys_loop, roots = jax.vmap(partial(self.roots, pomdp))(keys, belief)
        return search(keys_loop, self, pomdp, belief, roots, steps_left, active)

    def roots(
        self, pomdp: POMDP, key: Key[Array, ""], belief: Particles
    ) -> tuple[Key[Array, ""], tuple[Any, PyTree]]:
        """The key of a run's search, and where its simulations start: their s, and what else was drawn."""
        key_roots, key_loop = jr.split(key)
        return key_loop, sample_roots(key_roots, self, pomdp, belief)

    def depth_in(self, pomdp: POMDP) -> int:
        return effective_depth(pomdp.discount, self.depth or pomdp.horizon)


def effective_depth(discount: float, depth: int) -> int:
    """The depth at which a search stops at the latest."""
    if discount <= 0:
        return 1
    if discount >= 1:
        return depth
    return max(1, min(depth, int(math.log(SMALLEST_DISCOUNT) / math.log(discount))))


def is_published(how: TreeSearch) -> bool:
    """Whether values come to the root as in `published`: of one simulation at a time, and means."""
    return is_plain(how) and not how.by_paths


def is_plain(how: TreeSearch) -> bool:
    """Whether this is PO-UCT as published, however it is computed."""
    return min(how.in_flight, how.num_simulations) == 1 and how.backup == "mean"


def samples_roots(how: TreeSearch, pomdp: POMDP) -> bool:
    """Whether each simulation draws a D at its root, and keeps it."""
    return isinstance(pomdp, GBAPOMDP) and how.root_sampling


def sample_roots(key: Key[Array, ""], how: TreeSearch, pomdp: POMDP, belief: Particles) -> tuple[Any, PyTree]:
    """A state for each simulation by weight; with root sampling, also whose it is and the epsilon of a D."""
    if not samples_roots(how, pomdp):
        return belief.at(jax.vmap(belief.sample)(jr.split(key, how.num_simulations))), ()
    assert isinstance(pomdp, GBAPOMDP)

    def one(key_particle: Key[Array, ""], key_D: Key[Array, ""]) -> tuple[Any, PyTree]:
        i = belief.sample(key_particle)
        s, theta = belief.at(i)
        return s, (i, pomdp.posterior.draw(key_D, theta))

    return jax.vmap(one)(*jr.split(key, (2, how.num_simulations)))


def search(
    keys: Key[Array, " runs"],
    how: TreeSearch,
    pomdp: POMDP,
    belief: Particles,
    roots: tuple[PyTree, PyTree],
    steps_left: Int[Array, " runs"],
    active: Bool[Array, " runs"] | None = None,
) -> Plan:
    """Alg. 2 from each run's roots, to a depth of min(depth, steps_left). A run that is not `active` is
    passed over. In a draw, a `Dynamics` may stand for the index of a particle and epsilon."""
    found = grow(keys, how, pomdp, belief, roots, steps_left, active)
    tree, A = found.tree, pomdp.num_actions
    N, total = tree.sums[:, :A, 0], tree.sums[:, :A, 1]
    num_steps = jnp.sum(found.now.steps, axis=1, dtype=jnp.int32)
    return Plan(total / jnp.maximum(N, 1), N, tree.size, num_steps)


def grow(
    keys: Key[Array, " runs"],
    how: TreeSearch,
    pomdp: POMDP,
    belief: Particles,
    roots: tuple[PyTree, PyTree],
    steps_left: Int[Array, " runs"],
    active: Bool[Array, " runs"] | None = None,
) -> published.Search | round_trip.Search:
    """The searches of all runs when they have ended, with their trees."""
    problem = problem_of(how, pomdp, keys.shape[0])
    by = published if is_published(how) else round_trip
    active = jnp.ones(keys.shape, bool) if active is None else active
    limit = jnp.minimum(problem.depth, steps_left)

    def body(carry: tuple[Int[Array, ""], Any]) -> tuple[Int[Array, ""], Any]:
        i, runs = carry
        keys_now = jax.vmap(jr.fold_in, in_axes=(0, None))(keys, i)
        return i + 1, by.iterate(problem, keys_now, roots, belief, limit, runs)

    start = jnp.int32(0), jax.vmap(partial(by.first, problem))(active, roots)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1].works), body, start)[1]


def problem_of(how: TreeSearch, pomdp: POMDP, num_runs: int) -> Problem:
    """The search of each of so many runs."""
    in_flight = min(how.in_flight, how.num_simulations)
    # A simulation alone makes XLA copy its whole tree in every iteration (the gather of one is fused into
    # each of its readers, which then outlive the write). A second, idle place avoids it.
    places = 2 if num_runs == in_flight == 1 else in_flight
    return Problem(
        pomdp=pomdp,
        hooks=how.hooks,
        num_simulations=how.num_simulations,
        exploration=how.exploration,
        backup=how.backup,
        samples_roots=samples_roots(how, pomdp),
        in_flight=in_flight,
        places=places,
        depth=how.depth_in(pomdp),
    )
