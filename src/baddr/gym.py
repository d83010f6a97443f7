"""Gymnasium both ways: domains as environments, and agents that play any loop of Gymnasium's kind.

Importing this module registers every domain of the catalogue: `gymnasium.make("baddr/Tiger-v0")` after it,
or `gymnasium.make("baddr.gym:baddr/Tiger-v0")` on its own. Needs the extra `gymnasium`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Int64, Key, PyTree

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.belief_update import Info
from baddr.core.life import step_keys
from baddr.core.particles import Particles
from baddr.core.planner import best_action
from baddr.core.pomdp import POMDP, Action, Observation, State
from baddr.domains.catalog import DOMAINS, entry
from baddr.domains.domain import Domain
from baddr.domains.entry import Feature, Names
from baddr.domains.render import TABLE, Scene, pixels, plain_names
from baddr.errors import UserError
from baddr.fast.choose import fast_agent
from baddr.files.settings import problems, refuse
from baddr.files.toml import merge
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import asked_in, merged
from baddr.lab.experiment import preset as preset_of

try:
    import gymnasium
    from gymnasium.spaces import Discrete, MultiDiscrete
except ImportError as error:
    raise ImportError("baddr.gym needs Gymnasium: pip install 'baddr[gymnasium]'.") from error

Features = Int64[np.ndarray, " features"] | np.int64  # a number where there is one feature alone
RENDER_MODES = ("ansi", "rgb_array")


# --- domains as environments -------------------------------------------------------------------------


class Environment(gymnasium.Env[Features, np.int64]):
    """A POMDP with Gymnasium's interface. Its hidden state is in `info["state"]`: no agent should look."""

    metadata = {"render_modes": [*RENDER_MODES], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(self, pomdp: Domain | POMDP, render_mode: str | None = None, names: Names | None = None):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render_mode must be 'ansi', 'rgb_array' or None, not {render_mode!r}.")
        self.pomdp = pomdp.pomdp if isinstance(pomdp, Domain) else pomdp
        self.render_mode, self.names = render_mode, names
        self.action_space = Discrete(self.pomdp.num_actions)
        self.observation_space = observations(self.pomdp)
        self.frames = Frames(pomdp, names) if render_mode == "rgb_array" else None
        self.key: Any = None
        self.s: Any = None
        self.t, self.over, self.told = 0, True, ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, dict[str, Any]]:
        """A new episode. What follows depends on the seed alone, given here or at an earlier reset."""
        super().reset(seed=seed)
        self.key = prng.key(int(self.np_random.integers(2**32)))
        self.s, o = _first(self.key, self.pomdp)
        self.t, self.over = 0, False
        self.told = self._tell(o)
        if self.frames is not None:
            self.frames.start(self.s)
        return as_observation(o), self._info()

    def step(self, action: Any) -> tuple[Features, float, bool, bool, dict[str, Any]]:
        """One step: terminated where the POMDP ends the episode, truncated where the horizon does."""
        if self.over:
            raise gymnasium.error.ResetNeeded("The episode is over, or has not started: call reset() first.")
        if not self.action_space.contains(action):
            raise UserError(f"Action {action!r} is not one of 0 to {self.pomdp.num_actions - 1}.")
        before = self.s
        self.s, o, r, terminal = _next(self.key, self.pomdp, self.s, jnp.int32(action), jnp.int32(self.t))
        self.t += 1
        terminated = bool(terminal)
        truncated = not terminated and self.t >= self.pomdp.horizon
        self.over = terminated or truncated
        self.told = self._tell(o, int(action), float(r))
        if self.frames is not None:
            self.frames.step(before, int(action), self.s, o, float(r))
        return as_observation(o), float(r), terminated, truncated, self._info()

    def render(self) -> Any:
        """The last step: in words where the mode is "ansi", as a picture [height, width, 3] where it is
        "rgb_array"."""
        if self.frames is not None:
            return self.frames.picture()
        return self.told if self.render_mode == "ansi" else None

    def _info(self) -> dict[str, Any]:
        return {"state": np.array(self.s), "discount": self.pomdp.discount}

    def _tell(self, o: Observation, a: int | None = None, r: float = 0.0) -> str:
        if self.render_mode is None:
            return ""
        state, observation = (self.names.state, self.names.observation) if self.names else ((), ())
        sees = f"sees {_words(o, observation)}; the state is {_words(self.s, state)}"
        if a is None:
            return f"step 0: {sees}"
        action = self.names.action[a] if self.names else a
        return f"step {self.t}: action {action}, reward {r:g}, {sees}"


def observations(pomdp: POMDP) -> Any:
    """The space: one number where there is one feature, a vector of numbers where there are several."""
    sizes = pomdp.observation_sizes
    return Discrete(sizes[0]) if len(sizes) == 1 else MultiDiscrete(np.array(sizes))


def as_observation(o: Observation) -> Features:
    found = np.array(o, np.int64)
    return np.int64(found[0]) if len(found) == 1 else found


class Frames:
    """Pictures of an environment's steps, as `baddr run --render` draws them."""

    def __init__(self, domain: Domain | POMDP, names: Names | None):
        self.pomdp = domain.pomdp if isinstance(domain, Domain) else domain
        own, name = (domain.renderer, domain.name) if isinstance(domain, Domain) else (None, "")
        self.renderer, self.name = own or TABLE, name.replace("-", " ")
        known = names or (domain.names if isinstance(domain, Domain) else None)
        self.names: Names = known or plain_names(self.pomdp)
        self.scene: Scene | None = None

    def start(self, s: State) -> None:
        self._set(s, s, None, None, f"{self.name}: start".lstrip(": "))

    def step(self, s: State, a: int, s_next: State, o: Observation, r: float) -> None:
        seen = np.asarray(o).tolist()
        self._set(s, s_next, a, seen, f"{self.name}: {self.names.action[a]}, reward {r + 0.0:g}".lstrip(": "))

    def _set(self, s: State, s_next: State, a: int | None, o: Any, title: str) -> None:
        both = np.asarray(s).tolist(), np.asarray(s_next).tolist()
        self.scene = Scene(*both, a, o, None, self.pomdp.state_sizes, self.names, title)

    def picture(self) -> np.ndarray | None:
        return None if self.scene is None else pixels(self.renderer, self.scene)


@eqx.filter_jit
def _first(key: Key[Array, ""], pomdp: POMDP) -> tuple[State, Observation]:
    key_s, key_o = jr.split(jr.fold_in(key, 0))
    s = pomdp.initial_state(key_s)
    return s, pomdp.initial_observation(key_o, s)


@eqx.filter_jit
def _next(key: Key[Array, ""], pomdp: POMDP, s: State, a: Action, t: Int[Array, ""]) -> Any:
    s_next, o = pomdp.step(jr.fold_in(key, 1 + t), s, a)
    return s_next, o, pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next)


def _words(values: Any, features: tuple[Feature, ...]) -> str:
    """Feature vectors by the names of their values, where they have names."""
    values = np.asarray(values).tolist()
    if len(features) != len(values):
        return " ".join(map(str, values))
    named = [(name, names[value]) for value, (name, names) in zip(values, features, strict=True)]
    return named[0][1] if len(named) == 1 else ", ".join(f"{name} {value}" for name, value in named)


# --- registration ------------------------------------------------------------------------------------


def environment_id(name: str) -> str:
    """road-racing -> baddr/RoadRacing-v0."""
    return f"baddr/{''.join(word.capitalize() for word in name.split('-'))}-v0"


def make(name: str, render_mode: str | None = None, **settings: Any) -> Environment:
    """The environment of a domain with these settings, the others as the catalogue has them.

    NAME may be a file too, as on the command line: make("FILE.pomdp"), make("FILE.py:make_domain").
    """
    domain, names = domain_of(name, settings, named=render_mode is not None)
    return Environment(domain, render_mode, names)


def domain_of(name: str, settings: dict[str, Any], named: bool = False) -> tuple[Domain, Names | None]:
    """The domain of this name with these settings, and what its numbers mean."""
    domain_entry = entry(name)
    chosen = merge(domain_entry.settings, settings, environment_id(name))
    refuse(problems(chosen, "domain."), less="domain.")
    return domain_entry.make_domain(chosen), domain_entry.names(chosen) if named else None


for _name in (*DOMAINS, "cassandra"):
    gymnasium.register(
        environment_id(_name),
        entry_point="baddr.gym:make",
        vector_entry_point="baddr.gym_vector:make_vec",
        kwargs={"name": _name},
    )


# --- agents that play --------------------------------------------------------------------------------


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
            raise UserError("An observation answers an action: call act() first, or say which action it was.")
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
            raise UserError("The episode is over: call reset() to start the next.")


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
