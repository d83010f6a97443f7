"""Gridverse, the empty room (the `empty` rooms of gym-gridverse): walk to the goal seeing only what is ahead.

The room is N x N cells, the walls included. The agent starts at (1, 1) facing east; the goal is the cell
(N-2, N-2). A step that ends on the goal gives 1 and ends the episode; nothing else is rewarded. Actions
0 forward, 1 turn left, 2 turn right; forward walks `forward_length` cells or until the wall. (Whether it
would stop on a goal that it walks over need not be settled: a goal in the corner has walls behind it.)

State: the pose (y, x, heading), y downwards, headings 0 north, 1 east, 2 south, 3 west. Observation: a beam
of width 3, from the agent's own row to N - 1 cells ahead. Feature 3 d + c is the cell d ahead in column
c: 0 left, 1 middle, 2 right, as the agent sees it; its values are 0 beyond the room, 1 floor, 2 wall, 3 goal.
Nothing stands in the room, so nothing in it is hidden.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles, mass_of
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.core.posterior import sample
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.gridverse.settings import GridverseSettings, names
from baddr.domains.gridverse.view import RENDERER
from baddr.posteriors import Posterior
from baddr.prng import categorical, dirichlet

FORWARD, LEFT, RIGHT = range(3)
BEYOND, FLOOR, WALL, GOAL = range(4)
HEADINGS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)  # (dy, dx) of north, east, south, west
START = np.array([1, 1, 1], np.int32)
PRIOR_REACH = 5  # cells ahead that the prior holds possible, or one more than the truth
NUM_MODELS, NUM_DRAWS = 8, 8  # of D per particle and of s' per D, for `describe`

Cells = Int[Array, "*cells 2"]


def heading(s: State) -> Int[Array, " 2"]:
    return jnp.asarray(HEADINGS)[s[2]]


def is_open(cells: Cells, size: int) -> Bool[Array, "*cells"]:
    """Inside the walls."""
    return jnp.all((cells > 0) & (cells < size - 1), axis=-1)


def is_goal(cells: Cells, size: int) -> Bool[Array, "*cells"]:
    return jnp.all(cells == size - 2, axis=-1)


def beam(s: State, size: int) -> Observation:
    """What the agent sees."""
    forward, right = heading(s), heading(s.at[2].set((s[2] + 1) % 4))
    ahead, aside = np.arange(size, dtype=np.int32)[:, None, None], np.array([[[-1], [0], [1]]], np.int32)
    cells = s[None, None, :2] + ahead * forward[None, None] + aside * right[None, None]
    inside = jnp.all((cells >= 0) & (cells < size), axis=-1)
    kind = jnp.where(is_open(cells, size), jnp.where(is_goal(cells, size), GOAL, FLOOR), WALL)
    return jnp.where(inside, kind, BEYOND).astype(jnp.int32).reshape(3 * size)


class Walk(SplitDynamics):
    """D of the room: deterministic, or with the prior's `noisy` forward, which lands on any cell near.

    A noisy forward lands uniformly on the open cells from 1 behind over staying to `reach` ahead. With
    `lengths` it walks so many cells, -1, 0, ..., `reach`, with these probabilities, or until the wall.
    """

    size: int = eqx.field(static=True)
    forward_length: int = eqx.field(static=True)
    noisy: bool = eqx.field(static=True)
    lengths: Float[Array, " line"] | None = None

    @property
    def reach(self) -> int:
        return max(PRIOR_REACH, self.forward_length + 1)

    def line(self, s: State) -> Cells:
        """The cells on which forward may land: 1 behind, here, 1 ahead, ..., `reach` ahead."""
        advance = np.arange(-1, self.reach + 1, dtype=np.int32)[:, None]
        return s[None, :2] + advance * heading(s)[None]

    def landing(self, s: State) -> Float[Array, " line"]:
        """p(cell of the line | s, forward)."""
        free = is_open(self.line(s), self.size)
        if self.lengths is not None:
            ahead = jnp.sum(jnp.cumprod(free[2:].astype(jnp.int32)), dtype=jnp.int32)
            length = np.arange(-1, self.reach + 1, dtype=np.int32)
            return mass_of(1 + jnp.clip(length, -free[0].astype(jnp.int32), ahead), self.lengths, len(length))
        advance = jnp.sum(jnp.cumprod(free[2 : 2 + self.forward_length].astype(jnp.int32)), dtype=jnp.int32)
        land = jnp.arange(len(free), dtype=jnp.int32) == 1 + advance
        if self.noisy:  # one who stands in a wall's corner, which no real pose does, stays
            land = jnp.where(jnp.any(free), free, land)
        return land.astype(float) / jnp.sum(land, dtype=float)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        cell = self.line(s)[categorical(key, self.landing(s))]
        moved = jnp.concatenate([cell, s[2:]])
        return jnp.where(a == FORWARD, moved, turn(s, a))

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        here = jnp.all(self.line(s) == s_next[None, :2], axis=-1) & (s_next[2] == s[2])
        walked = jnp.sum(jnp.where(here, self.landing(s), 0))
        turned = jnp.all(s_next == turn(s, a)).astype(float)
        return jnp.log(jnp.where(a == FORWARD, walked, turned))

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return beam(s_next, self.size)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.where(jnp.all(beam(s_next, self.size) == o), 0.0, -jnp.inf)


def turn(s: State, a: Action) -> State:
    return s.at[2].set((s[2] + jnp.where(a == LEFT, 3, 1)) % 4)


class Gridverse(POMDP):
    dynamics: Dynamics
    size: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, dynamics: Dynamics, size: int = 8, discount: float = 0.95, horizon: int = 30):
        self.dynamics, self.size, self.discount, self.horizon = dynamics, size, discount, horizon
        self.state_sizes, self.observation_sizes = (size, size, 4), (4,) * (3 * size)
        self.num_actions = 3

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jnp.asarray(START)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return beam(s, self.size)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return is_goal(s_next[:2], self.size).astype(float)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return is_goal(s_next[:2], self.size)


@takes_fields_of(GridverseSettings)
def make_domain(settings: GridverseSettings) -> Domain:
    """The room with the paper's prior: turns and the beam known, forward's length not.

    The paper's prior is one simulator: sampled ones and the expected one are the same. With a
    `certainty` each simulator has a distribution of its own over how far forward walks. There is no tabular
    prior: O alone would have 4^(3N) outcomes a row.
    """
    size, forward_length, certainty = settings.size, settings.forward_length, settings.certainty
    prior = Walk(size, forward_length, noisy=True)
    if certainty:
        prior = Walk(size, forward_length, True, jnp.full((prior.reach + 2,), 1 / (prior.reach + 2)))

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """Lengths ~ Dirichlet(c * uniform)."""
        if prior.lengths is None:
            return prior
        return Walk(size, forward_length, True, dirichlet(key, certainty * prior.lengths))

    def is_legal(s: State) -> Bool[Array, ""]:
        """A pose from which the agent can act: not in a wall, nor on the goal, where episodes end."""
        return is_open(s[:2], size) & (~is_goal(s[:2], size) | (size == 3))  # a room of 3 has no other cell

    def leaf_value(s: State) -> Scalar:
        """1 / (steps of one cell to the goal)."""
        distance = jnp.sum(jnp.abs(s[:2] - (size - 2)), dtype=jnp.int32)
        return 1 / jnp.maximum(distance, 1).astype(float)

    return Domain(
        name="gridverse",
        pomdp=Gridverse(Walk(size, forward_length, noisy=False), size, settings.discount, settings.horizon),
        sample_simulator=sample_simulator,
        expected_simulator=prior,
        is_legal=is_legal,
        learned="T",
        leaf_value=leaf_value if settings.leaf == "distance" else None,
        describe=describe,
        shows=shows,
        names=names(settings),
        renderer=RENDERER,
    )


def describe(key: Key[Array, ""], posterior: Posterior, belief: Particles) -> dict[str, Array]:
    """Mean and standard deviation of how many cells the next forward from the start would advance.

    Over the whole mixture, models and their noise together: a belief that knows the length has deviation 0.
    """
    start, forward = jnp.asarray(START), jnp.int32(FORWARD)

    def advance(D: Dynamics, key: Key[Array, ""]) -> Array:
        s_next, _ = D.step(key, start, forward)
        return jnp.sum((s_next - start)[:2] * heading(start), dtype=jnp.float32)

    def moments(keys: Key[Array, " _"], theta) -> tuple[Array, Array]:
        D = sample(posterior, keys[0], theta)
        x = jax.vmap(lambda key: advance(D, key))(keys[1:])
        return jnp.mean(x), jnp.mean(x**2)

    # One wide split: keys from keys from keys take minutes to compile.
    keys = jr.split(key, (belief.num_particles, NUM_MODELS, 1 + NUM_DRAWS))
    over_models = jax.vmap(moments, in_axes=(0, None))
    mean, second = jax.vmap(over_models)(keys, belief.states.theta)
    average = lambda x: jnp.sum(belief.weights * jnp.mean(x, axis=1))[None]
    variance = average(second) - average(mean) ** 2
    return {"advance_mean": average(mean), "advance_std": jnp.sqrt(jnp.maximum(variance, 0))}


def shows(s: State, a: Action, s_next: State, o: Observation) -> dict[str, Bool[Array, " 1"]]:
    """Who walks sees how far."""
    return {"advance": (a == FORWARD)[None]}
