"""Domains of simulators in plain Python, NumPy or Gymnasium (`from_simulators`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from baddr.core.checks import wrong
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State, feature_vector, flat_index
from baddr.domains.callback import ANY, BlackBox, Step
from baddr.domains.domain import Domain
from baddr.domains.entry import Names
from baddr.errors import UserError
from baddr.files.settings import refuse
from baddr.prng import categorical


class Simulated(POMDP):
    """A POMDP whose steps are a user's own; rewards, ends and the start are JAX's or tables."""

    dynamics: Dynamics
    start: Float[Array, " S"]
    reward_of: Any  # a function of JAX's, or an array R[s], R[s, a] or R[s, a, s'] by the numbers of states
    ends_of: Any  # the same of booleans; None: nothing ends an episode
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return feature_vector(categorical(key, self.start), self.state_sizes)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.zeros((len(self.observation_sizes),), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.asarray(self._value(self.reward_of, s, a, s_next), jnp.float32)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        if self.ends_of is None:
            return jnp.array(False)
        return jnp.asarray(self._value(self.ends_of, s, a, s_next), bool)

    def _value(self, of: Any, s: State, a: Action, s_next: State) -> Any:
        if not isinstance(of, jax.Array):
            return of(s, a, s_next)
        i, j = flat_index(s, self.state_sizes), flat_index(s_next, self.state_sizes)
        if of.dtype == bool and of.ndim == 1:
            return of[j]
        return of[i] if of.ndim == 1 else of[i, a] if of.ndim == 2 else of[i, a, j]


@dataclass(frozen=True)
class Spaces:
    """The sizes of a problem, and how long its episodes last. (`from_simulators` takes these by name.)"""

    state_sizes: tuple[int, ...]
    observation_sizes: tuple[int, ...]
    num_actions: int
    discount: float = 0.95
    horizon: int = 50

    def problems(self) -> list[str]:
        sizes = (*self.state_sizes, *self.observation_sizes, self.num_actions, self.horizon)
        return wrong(
            (all(int(n) >= 1 for n in sizes), "sizes, num_actions and horizon must be at least 1"),
            (bool(self.state_sizes) and bool(self.observation_sizes), "there must be features"),
            (0 <= self.discount <= 1, "discount must lie in [0, 1]"),
        )


def from_simulators(
    simulators: Step | Sequence[Any],
    reward: Any,
    start: Any,
    is_terminal: Any = None,
    *,
    world: Any = None,
    names: Names | None = None,
    **spaces: Any,
) -> Domain:
    """A domain of black boxes: agents learn their networks from samples of them.

    A simulator is a function step(rng, s, a) -> (s', o) of NumPy's, or a Gymnasium environment that exposes
    its state (see `from_environment`). Several are equally likely. `reward` and `is_terminal` are functions
    of (s, a, s') in JAX, or arrays by the numbers of states; `start` is p(s_0), or the one first state.
    `world` is the truth, another black box: without it, the agent is to act elsewhere (`baddr.gym.player`).
    By name: state_sizes, observation_sizes, num_actions, discount (.95) and horizon (50).
    """
    given = Spaces(**spaces)
    refuse(given.problems())
    steps = tuple(map(_step_of, simulators if isinstance(simulators, Sequence) else [simulators]))
    sizes = tuple(given.state_sizes), tuple(given.observation_sizes)
    expected = BlackBox(jnp.int32(ANY if len(steps) > 1 else 0), steps, *sizes)
    truth = expected if world is None else BlackBox(jnp.int32(0), (_step_of(world),), *sizes)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        return BlackBox(jr.randint(key, (), 0, len(steps), jnp.int32), steps, *sizes)

    pomdp = Simulated(
        dynamics=truth,
        start=_start(start, sizes[0]),
        reward_of=_table_or_function("reward", reward, sizes[0], jnp.float32),
        ends_of=None
        if is_terminal is None
        else _table_or_function("is_terminal", is_terminal, sizes[0], bool),
        discount=float(given.discount),
        horizon=given.horizon,
        state_sizes=sizes[0],
        observation_sizes=sizes[1],
        num_actions=given.num_actions,
    )
    return Domain("simulators", pomdp, sample_simulator, expected, names=names)


def from_environment(
    env: Any, state: Callable[[Any], Any] | None = None, set_state: Callable[[Any, Any], None] | None = None
) -> Step:
    """A Gymnasium environment as a simulator. `state(env)` gives its state and `set_state(env, s)` sets it;
    without them its attribute `s` or `state` is taken. Its randomness must come from `np_random`."""
    inner = env.unwrapped
    inner.reset(seed=0)
    attribute = next((name for name in ("s", "state") if hasattr(inner, name)), None)
    if attribute is None and (state is None or set_state is None):
        raise UserError(
            "The environment does not expose its state: call from_environment(env, state, set_state)."
        )
    get = state or (lambda inner: getattr(inner, attribute))  # type: ignore[arg-type]
    put = set_state or (lambda inner, s: setattr(inner, attribute, s))  # type: ignore[arg-type]
    plain = np.ndim(get(inner)) == 0

    def step(rng: np.random.Generator, s: np.ndarray, a: int) -> tuple[Any, Any]:
        inner.np_random = rng
        put(inner, int(s[0]) if plain else s)
        o = inner.step(a)[0]
        return get(inner), o

    return step


def _step_of(simulator: Any) -> Step:
    if hasattr(simulator, "unwrapped") and hasattr(simulator, "step"):
        return from_environment(simulator)
    if not callable(simulator):
        kind = type(simulator).__name__
        raise UserError(
            f"A simulator must be a function step(rng, s, a) or an environment, not of type {kind}."
        )
    return cast(Step, simulator)


def _start(start: Any, sizes: tuple[int, ...]) -> Float[Array, " S"]:
    """p(s_0) by the numbers of states; one state is certain."""
    n, values = int(np.prod(sizes)), np.asarray(start)
    if np.issubdtype(values.dtype, np.integer) and np.atleast_1d(values).shape == (len(sizes),) != (n,):
        where = np.ravel_multi_index(tuple(np.atleast_1d(values)), sizes)
        return jnp.zeros(n, jnp.float32).at[where].set(1)
    if values.shape != (n,) or np.any(values < 0) or abs(float(values.sum()) - 1) > 1e-5:
        raise UserError(f"start must be a state, or {n} probabilities that sum to 1.")
    return jnp.asarray(values, jnp.float32)


def _table_or_function(name: str, value: Any, sizes: tuple[int, ...], dtype: Any) -> Any:
    if callable(value):
        return value
    table, n = np.asarray(value), int(np.prod(sizes))
    if table.ndim not in (1, 2, 3) or table.shape[0] != n or (table.ndim == 3 and table.shape[2] != n):
        raise UserError(
            f"{name} must be a function of (s, a, s'), or an array with a row for each of {n} states."
        )
    return jnp.asarray(table, dtype)
