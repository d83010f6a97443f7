"""What a run leaves for readers: nothing of this is needed to act, to learn or to plan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from baddr.core.agent import Agent
from baddr.core.belief_update import Info, num_distinct
from baddr.core.particles import Particles, mass_of
from baddr.core.planner import Plan
from baddr.core.pomdp import POMDP, Scalar
from baddr.core.rejuvenation import Moves


class Tally(NamedTuple):
    """What an episode adds up to: its returns, and how its beliefs and plans fared."""

    return_: Float[Array, "*runs"]
    discounted_return: Float[Array, "*runs"]
    simulated_steps: Int[Array, "*runs"]
    min_effective_sample_size: Float[Array, "*runs"]
    min_distinct_ancestors: Int[Array, "*runs"]
    resamplings: Int[Array, "*runs"]
    filled_particles: Int[Array, "*runs"]
    impossible_observations: Int[Array, "*runs"]
    rejuvenations: Int[Array, "*runs"] | None = None  # of an agent that has them
    moved_particles: Int[Array, "*runs"] | None = None
    relabelled_particles: Int[Array, "*runs"] | None = None


class Step(NamedTuple):
    """What one real step of each run leaves for readers; `tally` is whole where `ended`."""

    active: Bool[Array, "*runs"]
    episode: Int[Array, "*runs"]
    t: Int[Array, "*runs"]
    a: Int[Array, "*runs"]
    o: Int[Array, "*runs observation_features"]
    r: Float[Array, "*runs"]
    plan: Plan
    ended: Bool[Array, "*runs"]
    failed: Bool[Array, "*runs"]
    tally: Tally
    model: dict[str, Array]  # of the belief after the step; zeros where the episode goes on
    effective_sample_size: Float[Array, "*runs"]
    state: list[Float[Array, "*runs _"]]  # with `trace`: the marginals of the state's features
    world: tuple[PyTree, ...]  # with `trace`: the world's s and s'
    distinct_ancestors: Int[Array, "*runs"] | None = None  # that the belief after the step descends from
    sights: dict[str, Int[Array, "*runs _"]] = {}  # noqa: RUF012  # of the run so far


# The tally of an episode.


def empty_tally(agent: Agent) -> Tally:
    zero, n = jnp.int32(0), agent.filter.num_particles
    moves = () if agent.rejuvenation is None else (zero, zero, zero)
    return Tally(jnp.float32(0), jnp.float32(0), zero, jnp.float32(n), jnp.int32(n), zero, zero, zero, *moves)


def tallied(
    tally: Tally, discount: float, t: Int[Array, ""], r: Scalar, plan: Plan, info: Info, moves: Moves | None
) -> Tally:
    """The tally after one more step."""
    after = tally._replace(
        return_=tally.return_ + r,
        discounted_return=tally.discounted_return + jnp.float32(discount) ** t.astype(jnp.float32) * r,
        simulated_steps=tally.simulated_steps + plan.num_steps,
        min_effective_sample_size=jnp.minimum(tally.min_effective_sample_size, info.effective_sample_size),
        min_distinct_ancestors=jnp.minimum(tally.min_distinct_ancestors, info.distinct_ancestors),
        resamplings=tally.resamplings + info.resampled.astype(jnp.int32),
        filled_particles=tally.filled_particles + info.num_filled,
        impossible_observations=tally.impossible_observations + info.impossible.astype(jnp.int32),
    )
    if moves is None:
        return after
    return after._replace(  # at the end of the episode, if at all
        rejuvenations=moves.times,
        moved_particles=moves.moved,
        relabelled_particles=moves.relabelled,
    )


# Whom particles descend from.


def own_roots(agent: Agent) -> Int[Array, " n"] | tuple[()]:
    """Each particle is its own, where the filter tells whose children they become."""
    tells = getattr(agent.filter, "tells_ancestors", False)
    return jnp.arange(agent.filter.num_particles, dtype=jnp.int32) if tells else ()


def since_move(roots: Int[Array, " n"], moves: Moves) -> Int[Array, " n"]:
    """A move draws particles anew: from there on each descends from itself."""
    return jnp.where(moves.times > 0, jnp.arange(roots.shape[0], dtype=roots.dtype), roots)


def num_living(roots: Int[Array, " n"], belief: Particles) -> Int[Array, ""]:
    """How many different ones the particles that have a weight descend from."""
    n = roots.shape[0]
    return num_distinct(jnp.where(jnp.isneginf(belief.log_weights), n, roots), n)


# What the run has seen, and what it believes of the state.


def no_sights(agent: Agent, world: POMDP) -> dict[str, Int[Array, " _"]]:
    """Before the first step nothing was seen."""
    if agent.shows is None:
        return {}
    s, o = (jnp.zeros((len(sizes),), jnp.int32) for sizes in (world.state_sizes, world.observation_sizes))
    like = jax.eval_shape(agent.shows, s, jnp.int32(0), s, o)
    return {name: jnp.zeros(x.shape, jnp.int32) for name, x in like.items()}


def with_sights(
    agent: Agent, sights: dict[str, Int[Array, " _"]], step: tuple[Any, Any, Any, Any]
) -> dict[str, Int[Array, " _"]]:
    """What the run has seen after one more step (s, a, s', o)."""
    if agent.shows is None:
        return {}
    return {name: sights[name] + x.astype(jnp.int32) for name, x in agent.shows(*step).items()}


def state_marginals(belief: Particles, sizes: tuple[int, ...]) -> list[Float[Array, " values"]]:
    """p(s_i = .) for each feature i of the state."""
    s = belief.states.s
    return [mass_of(s[:, i], belief.weights, size) for i, size in enumerate(sizes)]
