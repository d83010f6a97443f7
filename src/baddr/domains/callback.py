"""Dynamics that are a user's own Python: they give samples, and no probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from baddr.core.pomdp import Action, Dynamics, Observation, Scalar, State

ANY = -1  # in place of a simulator's number: another one for each step

Step = Callable[[np.random.Generator, np.ndarray, int], tuple[Any, Any]]  # (rng, s, a) -> (s', o)


@dataclass(frozen=True)
class Call:
    """What JAX calls: a value that is equal for equal simulators, so that nothing is compiled twice."""

    steps: tuple[Step, ...]
    state_sizes: tuple[int, ...]
    observation_sizes: tuple[int, ...]

    def __call__(self, seed: Any, number: Any, s: Any, a: Any) -> tuple[np.ndarray, np.ndarray]:
        """A batch of steps, since a call from JAX costs far more than a step: all have its leading axes."""
        batch, rows = np.shape(a), lambda x: np.reshape(np.asarray(x), (-1, np.shape(x)[-1]))
        seeds, numbers, actions = rows(seed).tolist(), np.ravel(number).tolist(), np.ravel(a).tolist()
        states = rows(s).astype(np.int64)
        found = [self.one(*each) for each in zip(seeds, numbers, states, actions, strict=True)]
        s_next, o = (np.array(vectors, np.int32).reshape(*batch, -1) for vectors in zip(*found, strict=True))
        return s_next, o

    def one(self, seed: list[int], number: int, s: np.ndarray, a: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        i = number if number != ANY else int(rng.integers(len(self.steps)))
        s_next, o = self.steps[i](rng, s.copy(), a)
        return _vector("state", s_next, self.state_sizes), _vector("observation", o, self.observation_sizes)


class BlackBox(Dynamics):
    """One of some simulators in plain Python. JAX calls it back for every step: it is neither traced nor
    compiled, and what it draws from the generator that it is given depends on the key alone."""

    number: Int[Array, ""]  # of the simulator, or ANY
    steps: tuple[Step, ...] = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        shapes = tuple(
            jax.ShapeDtypeStruct((len(sizes),), jnp.int32)
            for sizes in (self.state_sizes, self.observation_sizes)
        )
        given = jr.key_data(key), self.number, s, a
        call = Call(self.steps, self.state_sizes, self.observation_sizes)
        return jax.pure_callback(call, shapes, *given, vmap_method="broadcast_all")

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.float32(jnp.nan)

    def log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.float32(jnp.nan)


def _vector(what: str, value: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Integers in their ranges, one for each feature."""
    vector = np.atleast_1d(np.asarray(value))
    right = vector.shape == (len(sizes),) and np.issubdtype(vector.dtype, np.integer)
    if not right or np.any((vector < 0) | (vector >= sizes)):
        raise ValueError(
            f"a simulator gave the {what} {value!r}; it must hold integers from 0 to below {sizes}"
        )
    return vector.astype(np.int32)
