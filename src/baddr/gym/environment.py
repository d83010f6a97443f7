"""A POMDP as an environment of Gymnasium's."""

from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from jaxtyping import Array, Int, Int64, Key

from baddr import prng
from baddr.core.pomdp import POMDP, Action, Observation, State
from baddr.domains.domain import Domain
from baddr.domains.entry import Feature, Names
from baddr.domains.render import TABLE, Scene, pixels, plain_names
from baddr.errors import UserError

Features = Int64[np.ndarray, " features"] | np.int64  # a number where there is one feature alone
RENDER_MODES = ("ansi", "rgb_array")


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
            raise gymnasium.error.ResetNeeded("The episode has ended or has not started: call reset() first.")
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


def first_of(key: Key[Array, ""], pomdp: POMDP) -> tuple[State, Observation]:
    """How an episode starts."""
    key_s, key_o = jr.split(jr.fold_in(key, 0))
    s = pomdp.initial_state(key_s)
    return s, pomdp.initial_observation(key_o, s)


_first = eqx.filter_jit(first_of)


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
