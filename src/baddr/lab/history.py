"""A given history of actions and observations, and the belief and plan after it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr.core.agent import Agent
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, mass_of
from baddr.core.planner import Plan, best_action
from baddr.core.pomdp import POMDP, Action, feature_vector
from baddr.core.posterior import sample
from baddr.domains.domain import Domain
from baddr.errors import UserError, shown
from baddr.life.record import state_marginals

SURE = 1 - 1e-6  # the probability of what is taken for certain
LARGEST_ENUMERATION = 1024  # observations listed one by one for an exact predictive
SMALLEST_SAMPLE = 65_536  # draws behind a predictive, over all particles


@dataclass(frozen=True)
class Episode:
    actions: list[int]
    observations: list[list[int]]


def read(path: Path, pomdp: POMDP) -> list[Episode]:
    """The episodes of a history file, checked against the domain's numbering."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no history file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.") from error
    except RecursionError:
        raise UserError(f"{path} is not a history: it is nested too deeply.") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from error
    episodes = content.get("episodes") if isinstance(content, dict) else None
    if not isinstance(episodes, list) or not all(isinstance(e, dict) for e in episodes):
        raise UserError(f'{path} must hold {{"episodes": [{{"actions": [...], "observations": [[...]]}}]}}.')
    return [_episode(i, episode, pomdp) for i, episode in enumerate(episodes, start=1)]


def _episode(number: int, content: dict[str, Any], pomdp: POMDP) -> Episode:
    actions, observations = content.get("actions"), content.get("observations")
    if not isinstance(actions, list) or not isinstance(observations, list):
        raise UserError(f'Episode {number} must have the lists "actions" and "observations".')
    if len(actions) != len(observations):
        raise UserError(
            f"Episode {number} has {len(actions)} actions but {len(observations)} observations; "
            "each action leads to one observation."
        )
    if len(actions) > pomdp.horizon:
        raise UserError(f"Episode {number} has {len(actions)} steps, more than the horizon {pomdp.horizon}.")
    sizes = pomdp.observation_sizes
    for step, (a, o) in enumerate(zip(actions, observations, strict=True), start=1):
        where = f"Episode {number}, step {step}"
        if type(a) is not int or not 0 <= a < pomdp.num_actions:
            raise UserError(f"{where}: action {shown(a)} is not one of 0 to {pomdp.num_actions - 1}.")
        if not isinstance(o, list) or len(o) != len(sizes):
            raise UserError(f"{where}: observation {shown(o)} must be a list of {len(sizes)} feature(s).")
        for i, (value, size) in enumerate(zip(o, sizes, strict=True)):
            if type(value) is not int or not 0 <= value < size:
                raise UserError(
                    f"{where}: observation feature {i} is {shown(value)}, not one of 0 to {size - 1}."
                )
    return Episode(actions, observations)


@dataclass(frozen=True)
class After:
    """The belief after a history, and where in its last episode it stands."""

    belief: Particles
    t: int
    over: bool  # the last episode has ended


def replay(key: Key[Array, ""], agent: Agent, world: POMDP, episodes: list[Episode]) -> After:
    """The belief after every step of the history."""
    start, update = eqx.filter_jit(agent.initial_belief), eqx.filter_jit(agent.update)
    restart = eqx.filter_jit(agent.next_episode)
    terminal = eqx.filter_jit(terminal_probability)
    key_start, key_steps = jr.split(key)
    belief, over, t = start(key_start), False, 0
    for number, episode in enumerate(episodes, start=1):
        key_episode = jr.fold_in(key_steps, number)
        if number > 1:
            belief = restart(jr.fold_in(key_episode, 0), belief)
        t = len(episode.actions)
        for step, (a, o) in enumerate(zip(episode.actions, episode.observations, strict=True), start=1):
            where = f"Episode {number}, step {step}"
            given, key_step = (jnp.int32(a), jnp.array(o, jnp.int32)), jr.fold_in(key_episode, step)
            p_over = float(terminal(jr.fold_in(key_step, 1), agent.gba, world, belief, given))
            goes_on = step < len(episode.actions)
            if goes_on and p_over > SURE:
                raise UserError(
                    f"Episode {number}, step {step + 1}: the episode ended one step earlier; put this step "
                    "into the next episode."
                )
            over = p_over > 0.5
            # That there is another step is evidence. Of the last one nobody says whether it ended the
            # episode, unless it is certain.
            sure = goes_on or not 1 - SURE < p_over < SURE
            belief, info = update(key_step, belief, *given, jnp.array(p_over > SURE) if sure else None)
            if info.impossible:
                raise UserError(f"{where}: no particle can explain observation {o} after action {a}.")
    return After(belief, t, over or t >= world.horizon)


def terminal_probability(
    key: Key[Array, ""], gba: GBAPOMDP, world: POMDP, belief: Particles, given: tuple[Array, Array]
) -> Float[Array, ""]:
    """p(the step ended the episode | h, a, o): each particle steps, and is weighed as in the filter."""
    n, thetas, s = belief.num_particles, belief.states.theta, belief.states.s
    keys_D, keys_step = jr.split(key, (2, n))
    i = jnp.arange(n, dtype=jnp.int32)
    epsilons = gba.models.draw(keys_D, thetas, i)
    s_next, _, log_likelihood = gba.models.propose(keys_step, thetas, i, epsilons, s, given)
    mass = jax.nn.softmax(jnp.maximum(belief.log_weights + log_likelihood, -1e30))
    ends = jax.vmap(world.is_terminal, in_axes=(0, None, 0))(s, given[0], s_next)
    return jnp.sum(jnp.where(ends, mass, 0))


def belief_json(key: Key[Array, ""], agent: Agent, domain: Domain, belief: Particles) -> dict[str, Any]:
    """The belief as the command line prints it."""
    pomdp = domain.pomdp
    keys = jr.split(key, pomdp.num_actions + 1)
    describe = agent.describe or domain.describe

    def now(key: Key[Array, ""], agent: Agent, belief: Particles) -> tuple[Array, list[Array], list[Any]]:
        model = {} if describe is None else describe(key, agent.gba.posterior, belief)
        # As a list: in a dict JAX would sort the names.
        return belief.effective_sample_size(), state_marginals(belief, pomdp.state_sizes), list(model.items())

    size, marginals, model = eqx.filter_jit(now)(keys[-1], agent, belief)
    predict = eqx.filter_jit(predictive)
    return {
        "num_particles": belief.num_particles,
        "effective_sample_size": float(size),
        "state": {"features": _lists(marginals)},
        "next_observation": {
            str(a): {"features": _lists(predict(keys[a], agent, belief, jnp.int32(a)))}
            for a in range(pomdp.num_actions)
        },
        "model": {name: np.asarray(value).tolist() for name, value in model},
    }


def predictive(
    key: Key[Array, ""], agent: Agent, belief: Particles, a: Array
) -> list[Float[Array, " values"]]:
    """p(o_i = . | h, a) for each observation feature i.

    Each particle draws D and s' a few times; where the observations can be listed, their probabilities
    given (s, a, s', D) are summed exactly, otherwise one is drawn.
    """
    gba = agent.gba
    draws = -(-SMALLEST_SAMPLE // belief.num_particles)
    listed = gba.num_observations <= LARGEST_ENUMERATION
    every = jax.vmap(lambda z: feature_vector(z, gba.observation_sizes))(
        jnp.arange(gba.num_observations if listed else 1, dtype=jnp.int32)
    )

    def one(key: Key[Array, ""], s_bar: Any) -> tuple[Array, Array]:
        key_D, key_step = jr.split(key)
        D = sample(gba.posterior, key_D, s_bar.theta)
        s_next, o = D.step(key_step, s_bar.s, a)
        if not listed:
            return o[None], jnp.ones((1,))
        log_p = jax.vmap(D.observation_log_prob, in_axes=(None, None, None, 0))(s_bar.s, a, s_next, every)
        return every, jnp.exp(log_p)

    def add_draw(total: list[Array], key: Key[Array, ""]) -> tuple[list[Array], None]:
        o, p = jax.vmap(one)(jr.split(key, belief.num_particles), belief.states)
        marginals = _marginals(o, p * belief.weights[:, None], gba.observation_sizes)
        return [x + y for x, y in zip(total, marginals, strict=True)], None

    nothing = [jnp.zeros((size,)) for size in gba.observation_sizes]
    return jax.lax.scan(add_draw, nothing, jr.split(key, draws))[0]


def _marginals(
    values: Array, weights: Float[Array, "n k"], sizes: tuple[int, ...]
) -> list[Float[Array, " values"]]:
    """The weighted histogram of each feature."""
    return [mass_of(values[..., i], weights, size) for i, size in enumerate(sizes)]


def _lists(marginals: list[Array]) -> list[list[float]]:
    exact = [np.asarray(p, np.float64) for p in marginals]
    return [(p / p.sum()).tolist() for p in exact]


def plan_json(key: Key[Array, ""], agent: Agent, world: POMDP, after: After) -> dict[str, Any]:
    """The root of the search as the command line prints it."""
    if after.over:
        raise UserError(
            "The last episode has ended; add an empty episode to plan the first step of the next one."
        )
    steps_left = jnp.int32(world.horizon - after.t)
    plan, action = eqx.filter_jit(planned)(key, agent, after.belief, steps_left)
    bounds = {}
    if plan.upper is not None and plan.gap is not None:
        bounds = {"Q_upper": np.asarray(plan.upper, np.float64).tolist(), "gap": float(plan.gap)}
    return {
        "Q": np.asarray(plan.Q, np.float64).tolist(),
        "visits": np.asarray(plan.N, np.int64).tolist(),
        "action": int(action),
        "num_simulations": int(np.sum(plan.N)),
        "num_nodes": int(plan.num_nodes),
        "simulated_steps": int(plan.num_steps),
    } | bounds


def planned(
    key: Key[Array, ""], agent: Agent, belief: Particles, steps_left: Int[Array, ""]
) -> tuple[Plan, Action]:
    """A plan of one run, and the action that it comes to."""
    key_plan, key_action = jr.split(key)
    plans = agent.plan(key_plan[None], jax.tree.map(lambda x: x[None], belief), steps_left[None])
    plan = jax.tree.map(lambda x: x[0], plans)
    return plan, best_action(key_action, plan)
