"""An agent that plays any loop of Gymnasium's kind."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.belief_update import Info
from baddr.core.particles import Particles
from baddr.core.planner import best_action
from baddr.core.pomdp import Action, Observation
from baddr.errors import UserError
from baddr.fast.choose import fast_agent
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import asked_in, merged
from baddr.lab.experiment import preset as preset_of
from baddr.life.run import step_keys


class Player:
    """An agent in a loop of Gymnasium's kind, with its belief inside.

        player.reset()                    # an episode begins; what was learned before stays
        action = player.act()             # plan
        player.observe(observation, terminated, truncated)   # learn

    With equal seeds and observations it lives the life of run 0 of `baddr run --planner.in-flight 1`, whose
    random numbers it shares. (Without that flag, a run among few may have more simulations in flight.)
    """

    def __init__(self, agent: Agent, seed: int = 0):
        self.agent = fast_agent(agent)
        self.key = jr.fold_in(prng.key(seed), 0)  # run 0 of this seed
        self.belief: Particles
        self.belief, self.prepared = _initial_belief(self.agent, self.key)
        self.episode = self.t = 0
        self.action: int | None = None  # that the next observation answers
        self.over = False
        self.info: Info | None = None  # about the last belief update

    def reset(self) -> None:
        """The next episode begins: states are redrawn from p_s0, the belief about the model stays."""
        if self.t > 0:
            given = self.agent, self.key, self.belief, *self._clock(self.t - 1)
            self.belief, self.prepared = _next_episode(*given)
            self.episode, self.t = self.episode + 1, 0
        self.action, self.over = None, False

    def act(self) -> int:
        """The action that the planner prefers; asked again before the next observation, the same one."""
        self._check_running()
        if self.action is None:
            clock = self._clock(self.t)
            self.action = int(_act(self.agent, self.key, self.belief, self.prepared, *clock))
        return self.action

    def observe(
        self, observation: Any, terminated: Any = False, truncated: Any = False, action: int | None = None
    ) -> None:
        """What came of the last `act`, or of `action` if another one was taken: the belief moves on."""
        self._check_running()
        o = _checked_observation(observation, self.agent.gba.observation_sizes)
        taken = self.action if action is None else action
        if taken is None:
            raise UserError("An observation follows an action: call act() first, or pass the action.")
        if not 0 <= taken < self.agent.gba.num_actions:
            raise UserError(f"Action {taken!r} is not one of 0 to {self.agent.gba.num_actions - 1}.")
        outcome = jnp.int32(taken), o, jnp.array(bool(terminated))
        self.belief, self.info = _update(self.agent, self.key, self.belief, *self._clock(self.t), *outcome)
        self.t, self.action, self.over = self.t + 1, None, bool(terminated) or bool(truncated)

    def _clock(self, t: int) -> tuple[Array, Array]:
        """Arrays, so that nothing is compiled twice."""
        return jnp.int32(self.episode), jnp.int32(t)

    def _check_running(self) -> None:
        if self.over:
            raise UserError("The episode has ended: call reset() to start the next one.")


def player(
    name: str, agent: str = "baddr", *, seed: int = 0, preset: str = "quick", **settings: Any
) -> Player:
    """The agent that `baddr run NAME --agent AGENT` runs; settings as in a config file, in groups:

    player("tiger", "ba-pomcp", planner={"num_simulations": 1024}, domain={"horizon": 10})
    """
    start = preset_of(name, agent, preset, kinds=asked_in(settings))
    experiment = merged(start, {"seed": seed, **settings}, "player")
    experiment.check()
    return Player(build_agent(experiment, build_domain(experiment)), seed)


@eqx.filter_jit
def _initial_belief(agent: Agent, key: Key[Array, ""]) -> tuple[Particles, PyTree]:
    """And what the planner prepares for the first episode."""
    key_belief, _ = jr.split(jr.fold_in(key, 0))
    belief = agent.initial_belief(key_belief)
    return belief, agent.prepare(jr.fold_in(key_belief, 1), belief)


@eqx.filter_jit
def _act(
    agent: Agent,
    key: Key[Array, ""],
    belief: Particles,
    prepared: PyTree,
    episode: Int[Array, ""],
    t: Int[Array, ""],
) -> Action:
    keys = step_keys(key, episode, t)
    steps_left = jnp.maximum(agent.gba.horizon - t, 1)  # an environment may go on for longer
    alone = jax.tree.map(lambda x: x[None], (keys.plan, belief, steps_left, jnp.array(True), prepared))
    root = agent.plan(*alone)
    return best_action(keys.action, jax.tree.map(lambda x: x[0], root))


@eqx.filter_jit
def _update(
    agent: Agent,
    key: Key[Array, ""],
    belief: Particles,
    episode: Int[Array, ""],
    t: Int[Array, ""],
    a: Action,
    o: Observation,
    terminal: Bool[Array, ""],
) -> tuple[Particles, Info]:
    return agent.update(step_keys(key, episode, t).update, belief, a, o, terminal)


@eqx.filter_jit
def _next_episode(
    agent: Agent, key: Key[Array, ""], belief: Particles, episode: Int[Array, ""], t: Int[Array, ""]
) -> tuple[Particles, PyTree]:
    """With the keys of the last episode's last step, t. And what the planner prepares for the next one."""
    keys = step_keys(key, episode, t)
    belief = agent.next_episode(keys.next_episode, belief)
    return belief, agent.prepare(jr.fold_in(keys.plan, 1), belief)


def _checked_observation(observation: Any, sizes: tuple[int, ...]) -> Int[Array, " features"]:
    """A vector of integers, each in its range; a plain integer where there is one feature only."""
    o = np.atleast_1d(np.asarray(observation))
    if o.shape != (len(sizes),) or not np.issubdtype(o.dtype, np.integer):
        raise UserError(f"Observation {observation!r} must be {len(sizes)} integer(s), one for each feature.")
    for i, (value, size) in enumerate(zip(o.tolist(), sizes, strict=True)):
        if not 0 <= value < size:
            raise UserError(f"Observation feature {i} is {value}, not one of 0 to {size - 1}.")
    return jnp.asarray(o, jnp.int32)
