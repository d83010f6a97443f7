"""Episodes of an agent that does not learn, with the time and the model steps of its plans."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from timing import clock

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.particles import Particles
from baddr.core.planner import Plan
from baddr.core.pomdp import POMDP
from baddr.life.run import StepKeys, act, step_keys


class Life(NamedTuple):
    """Of many runs."""

    returns: Float[np.ndarray, " runs"]  # discounted, the mean over a run's episodes
    steps: float  # of the model, in a plan
    seconds: float  # of a plan


def live(agent: Agent, actor: Agent, world: POMDP, runs: int, episodes: int) -> Life:
    """All runs in step. `agent` plans; `actor`, of the same belief, does the rest: agents that differ in
    their planners share what is compiled for it."""
    now, returns, plans, steps, seconds = clock(), np.zeros(runs), 0, 0, 0.0
    keys = jr.split(prng.key(0), runs)
    for episode in range(episodes):
        s, beliefs = first(actor, world, keys, jnp.int32(episode))
        active = jnp.ones((runs,), bool)
        for t in range(world.horizon):
            at = keys_at(keys, jnp.int32(episode), jnp.int32(t))
            given = agent, at.plan, beliefs, jnp.full((runs,), world.horizon - t, jnp.int32), active
            if not plans:
                jax.block_until_ready(plan(*given))  # compiles
            started = now()
            found = jax.block_until_ready(plan(*given))
            seconds += now() - started
            plans += int(active.sum())
            steps += int(jnp.where(active, found.num_steps, 0).sum())
            s, beliefs, r, active = step(actor, world, at, s, beliefs, found, active)
            returns += world.discount**t * np.asarray(r, float)
            if not bool(active.any()):
                break
    return Life(returns / episodes, steps / plans, seconds / plans)


@eqx.filter_jit
def keys_at(keys: Key[Array, " runs"], episode: Int[Array, ""], t: Int[Array, ""]) -> StepKeys:
    return jax.vmap(lambda key: step_keys(key, episode, t))(keys)


@eqx.filter_jit
def plan(
    agent: Agent,
    keys: Key[Array, " runs"],
    beliefs: Particles,
    left: Int[Array, " runs"],
    active: Bool[Array, " runs"],
) -> Plan:
    return agent.plan(keys, beliefs, left, active)


@eqx.filter_jit
def first(actor: Agent, world: POMDP, keys: Key[Array, " runs"], episode: Int[Array, ""]) -> PyTree:
    """States and beliefs at the start of an episode."""

    def one(key: Key[Array, ""]) -> PyTree:
        key_s, key_belief = jr.split(jr.fold_in(jr.fold_in(key, 0), episode))
        return world.initial_state(key_s), actor.initial_belief(key_belief)

    return jax.vmap(one)(keys)


@eqx.filter_jit
def step(actor: Agent, world: POMDP, *given: PyTree) -> PyTree:
    """States and beliefs after the best actions; rewards, and which episodes last."""
    return jax.vmap(partial(step_of_one, actor, world))(*given)


def step_of_one(
    actor: Agent,
    world: POMDP,
    keys: StepKeys,
    s: PyTree,
    belief: Particles,
    plan: Plan,
    active: Bool[Array, ""],
) -> PyTree:
    outcome = act(world, keys, s, plan)
    belief, _ = actor.update(keys.update, belief, outcome.a, outcome.o, outcome.terminal, active)
    return outcome.s_next, belief, jnp.where(active, outcome.r, 0), active & ~outcome.terminal
