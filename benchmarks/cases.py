"""An agent at some settings, with beliefs and an observation to work on: what the benchmarks time."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array
from timing import time_and_result

from baddr import prng
from baddr.agents.life import STEP_LEVEL
from baddr.core.agent import Agent
from baddr.core.filters import Rejection
from baddr.core.particles import Particles
from baddr.core.pomdp import Transition
from baddr.fast.compiler import jit
from baddr.fast.loops import one_by_one
from baddr.fast.search import FastSearch
from baddr.lab.build import build_agent, build_domain
from baddr.lab.engine import Local
from baddr.lab.experiment import AnyExperiment
from baddr.lab.runner import sized


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """As the real steps of a run are."""
    return jit(function, STEP_LEVEL, True)


class Case(NamedTuple):
    """Beliefs of several runs; an action, and the observation that the true world gave for it."""

    experiment: AnyExperiment
    agent: Agent
    keys: Array
    beliefs: Particles
    a: Array
    o: Array

    @property
    def runs(self) -> int:
        return self.keys.shape[0]


def case(experiment: AnyExperiment, runs: int, batches: int = 0, in_flight: int = 0) -> Case:
    """The networks are trained on `batches` batches: how good they are hardly changes what anything costs."""
    groups = experiment.settings.groups()
    if "pretrain" in groups:
        experiment = experiment.changed(pretrain=replace(groups["pretrain"], batches=batches, max_gap=1e9))
    if "latent" in groups:
        experiment = experiment.changed(latent=replace(groups["latent"], steps=batches, max_gap=1e9))
    if in_flight:
        experiment = experiment.changed(planner=replace(groups["planner"], in_flight=in_flight))
    experiment = replace(experiment, runs=runs, chunk_size=runs)
    domain = build_domain(experiment)
    experiment, _ = sized(experiment, domain, Local().place())
    agent = build_agent(experiment, domain)
    world, keys = domain.pomdp, jr.split(prng.key(0), runs)
    # Tiger listens; elsewhere any action will do.
    a = jnp.full((runs,), world.num_actions - 1, jnp.int32)

    def observe(key: Array, a: Array) -> Array:
        key_s, key_step = jr.split(key)
        return world.step(key_step, world.initial_state(key_s), a)[1]

    beliefs = jax.jit(jax.vmap(agent.initial_belief))(keys)
    return Case(experiment, agent, keys, beliefs, a, jax.vmap(observe)(keys, a))


def fresh_cache() -> tempfile.TemporaryDirectory:
    """A place for priors that nobody else wants."""
    return tempfile.TemporaryDirectory(prefix="baddr-benchmark-")


def time_plan(case: Case, **options: Any) -> tuple[float, int]:
    """Seconds of a plan of all runs, and its simulated steps."""
    left = jnp.full((case.runs,), case.agent.gba.horizon, jnp.int32)
    plan = compiled(lambda agent, keys, beliefs: agent.plan(keys, beliefs, left))
    seconds, found = time_and_result(plan, case.agent, case.keys, case.beliefs, **options)
    return seconds, int(found.num_steps.sum())


def time_roots(case: Case, **options: Any) -> float:
    """Seconds to draw where the simulations start; their tables included, where there are some."""

    def draw(agent: Agent, keys: Array, beliefs: Particles) -> Any:
        planner = agent.planner
        assert isinstance(planner, FastSearch)
        _, (s, draws) = one_by_one(lambda key, b: planner.how.roots(agent.gba, key, b))(keys, beliefs)
        return s, planner.prepare(agent.gba, beliefs, draws)

    return time_and_result(compiled(draw), case.agent, case.keys, case.beliefs, **options)[0]


def time_update(case: Case, **options: Any) -> tuple[float, float]:
    """Seconds of a belief update of all runs, and the mean number of rounds of proposals."""
    update = compiled(
        lambda agent, keys, beliefs, a, o: one_by_one(agent.update)(
            keys, beliefs, a, o, jnp.zeros(a.shape, bool)
        )
    )
    arguments = (case.agent, case.keys, case.beliefs, case.a, case.o)
    seconds, (_, info) = time_and_result(update, *arguments, **options)
    filter = case.agent.filter
    if not isinstance(filter, Rejection):
        return seconds, float(getattr(filter, "tries", 1))
    # It stops after the round in which it has all particles, and is stopped where some had to be filled.
    rounds = jnp.where(info.num_filled > 0, filter.max_tries, 1 / info.acceptance_rate)
    return seconds, float(jnp.mean(jnp.ceil(rounds - 1e-3)))


def time_learning(case: Case, **options: Any) -> float:
    """Seconds of U alone: of every particle once."""

    def learn(agent: Agent, key: Array, belief: Particles, a: Array, o: Array) -> Any:
        n, s = belief.num_particles, belief.states.s
        i, keys = jnp.arange(n, dtype=jnp.int32), jr.split(key, n)
        steps = Transition(s, a, s, o)
        return agent.gba.models.update(keys, belief.states.theta, i, steps, jnp.array(True))

    learned = compiled(lambda agent, *rest: one_by_one(lambda *one: learn(agent, *one))(*rest))
    return time_and_result(learned, case.agent, case.keys, case.beliefs, case.a, case.o, **options)[0]
