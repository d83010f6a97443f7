"""A simulation in flight: what it carries, how it chooses and steps, and how the next one starts.

What the two loops (`published`, `round_trip`) have in common.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, tree_at_index
from baddr.core.pomdp import POMDP, Action, Dynamics
from baddr.planners.children import IN_PLACE
from baddr.planners.choice import Hooks, at_once, in_turn, seen_from

Places = Int[Array, " places"]
Flags = Bool[Array, " places"]
Roots = tuple[PyTree, PyTree]  # the s of each simulation, and what else was drawn for it


class Problem(NamedTuple):
    """What is searched, and how."""

    pomdp: POMDP
    hooks: Hooks
    num_simulations: int
    exploration: float
    backup: Literal["mean", "max"]
    samples_roots: bool  # a draw stands for the D that a simulation keeps
    in_flight: int
    places: int  # for simulations in flight; one may stay idle
    depth: int

    @property
    def num_entries(self) -> int:
        return (self.num_simulations + 1) * self.pomdp.num_actions


class Simulation(NamedTuple):
    """A simulation in flight."""

    s: PyTree
    draw: PyTree
    node: Int[Array, "*places"]
    in_tree: Bool[Array, "*places"]
    running: Bool[Array, "*places"]
    level: Int[Array, "*places"]
    total: Float[Array, "*places"]  # discounted rewards so far
    steps: Int[Array, "*places"]  # simulated in this place so far


class Step(NamedTuple):
    """What a simulated step came to."""

    s_next: PyTree
    o: Int[Array, "*places observation_features"]
    r: Float[Array, "*places"]
    end: Bool[Array, "*places"]  # of the simulation


def keys_of(problem: Problem, key: Key[Array, ""]) -> Key[Array, "places 3"]:
    """For each simulation in flight: of its choice, its rollout policy and its step."""
    if problem.in_flight == 1:
        return jax.vmap(lambda key: jr.split(key, 3))(jnp.broadcast_to(key, (problem.places,)))
    return jax.vmap(lambda key: jr.split(key, 3))(jr.split(key, problem.in_flight))


def state_of(s: Any) -> Any:
    """s, of an (s, theta) too: what hooks are about."""
    return s.s if isinstance(s, AugmentedState) else s


def choose(
    problem: Problem, keys: Key[Array, "places 3"], sums: Float[Array, "slots columns"], now: Simulation
) -> Places:
    """By UCB in the tree, by the rollout policy below it."""
    hooks, A, u = problem.hooks, problem.pomdp.num_actions, problem.exploration
    here = jax.vmap(lambda node: jax.lax.dynamic_slice(sums, (node * A, 0), (A, sums.shape[1])))(now.node)
    N, total = here[:, :, 0], here[:, :, 1]
    Q = total / jnp.maximum(N, 1)
    average = jnp.sum(total, axis=1) / jnp.maximum(jnp.sum(N, axis=1), 1)
    if problem.in_flight > 1:  # visits whose returns are not known yet are as good as the average
        N_known, N = N, here[:, :, 2]
        Q = (total + (N - N_known) * average[:, None]) / jnp.maximum(N, 1)
    if hooks.rollout is None:  # a tree node that was never visited chooses uniformly: so does a rollout
        N = jnp.where(now.in_tree[:, None], N, 0)
        average = jnp.where(now.in_tree, average, 0)
    seen = jax.vmap(partial(seen_from, hooks))(state_of(now.s), N, Q, average)
    if problem.in_flight == 1:
        a = at_once(keys[:, 0], seen, u)
    else:
        alone = -1 - jnp.arange(problem.places, dtype=jnp.int32)  # below the tree nobody shares a site
        a = in_turn(keys[:, 0], jnp.where(now.running & now.in_tree, now.node, alone), seen, u)
    if hooks.rollout is None:
        return a
    return jnp.where(now.in_tree, a, jax.vmap(hooks.rollout)(keys[:, 1], state_of(now.s)))


def world_of(problem: Problem, belief: Particles, draw: PyTree) -> POMDP:
    """The POMDP that a simulation with this draw runs in: the member of the family whose dynamics are its
    D."""
    pomdp = problem.pomdp
    if not problem.samples_roots:
        return pomdp
    assert isinstance(pomdp, GBAPOMDP)
    D = draw if isinstance(draw, Dynamics) else pomdp.models.dynamics(belief.states.theta, *draw)
    return pomdp.pomdp.with_dynamics(D)


def take_step(
    problem: Problem,
    belief: Particles,
    limit: Int[Array, ""],
    key: Key[Array, ""],
    now: Simulation,
    a: Action,
) -> Step:
    """A step of one simulation, which ends with its episode or at the limit of its depth."""
    world = world_of(problem, belief, now.draw)
    s_next, o = world.step(key, now.s, a)
    end = world.is_terminal(now.s, a, s_next) | (now.level + 1 >= limit)
    return Step(s_next, o, world.reward(now.s, a, s_next), end)


def has_leaf(problem: Problem) -> bool:
    """Whether new nodes have a value, so that nothing is simulated below them."""
    return problem.hooks.leaf_value is not None or problem.hooks.upper is not None


def leaf_values(problem: Problem, s: PyTree, steps_left: Places) -> Float[Array, " places"]:
    """Of new nodes: estimates, or bounds from above."""
    hooks, s = problem.hooks, state_of(s)
    if hooks.leaf_value is not None:
        return jax.vmap(hooks.leaf_value)(s)
    assert hooks.upper is not None
    bound = jax.vmap(hooks.upper)(s, steps_left)
    return bound if bound.ndim == 1 else jnp.max(bound, axis=-1)  # of several ways to go on, the best


def start_simulation(problem: Problem, roots: Roots, number: Int[Array, ""], steps: Array) -> Simulation:
    """Simulation `number`, where there is one, in a place where `steps` were simulated before."""
    n = problem.num_simulations
    s, draw = tree_at_index(roots, jnp.minimum(number, n - 1))
    zero = jnp.int32(0)
    return Simulation(s, draw, zero, jnp.array(True), number < n, zero, jnp.float32(0), steps)


def moved(now: Simulation, known: Places, step: Step, end: Flags, gamma: float) -> Simulation:
    """The simulations after a step, at the nodes that are `known` (0: below the tree)."""
    return now._replace(
        s=step.s_next,
        node=known,
        in_tree=known > 0,
        total=jnp.where(now.running, now.total + power(gamma, now.level) * step.r, now.total),
        steps=now.steps + now.running.astype(jnp.int32),
        running=now.running & ~end,
        level=now.level + 1,
    )


def add_rows(
    rows: Float[Array, "slots columns"], at: Places, new: Float[Array, "places columns"]
) -> Float[Array, "slots columns"]:
    """rows[at] += new. Places with one slot write the same, so the order of writes does not matter."""
    same = at[:, None] == at[None]
    total = jnp.sum(jnp.where(same[:, :, None], new[None], 0), axis=1)
    return rows.at[at].set(rows[at] + total, **IN_PLACE)


def power(gamma: float, level: Int[Array, "*places"]) -> Float[Array, "*places"]:
    return jnp.float32(gamma) ** level.astype(jnp.float32)


def where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)
