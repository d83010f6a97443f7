"""RockSample(n, k) (Smith and Simmons 2004): sample good rocks, told from bad ones by a sensor, and leave.

State (x, y, rock_0, ..., rock_{k-1}): the rover's cell, x to the east and y to the north, and whether each
rock is good (1) or bad (0). Actions 0 north, 1 east, 2 south, 3 west, 4 sample, 5 + i check rock i.
Observations 0 none, 1 bad, 2 good.

Moving east from the last column leaves the map: 10, and the episode ends. Sampling a good rock gives 10 and
makes it a bad one, sampling a bad rock costs 10. Checking a rock at (Euclidean) distance d shows what it is
with probability (1 + 2^(-d / d_0)) / 2, where d_0 is the sensor's half-distance. Everything else does nothing
by the standard rules; by POMCP's (Silver and Veness 2010), moving off the map elsewhere or sampling bare
ground costs 100 and ends the episode. Each rock is good with probability 1/2 at first.

Only the sensor is unknown.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.rock_sample.bounds import BAD, EXIT, GOOD, best_values, tours
from baddr.domains.rock_sample.settings import Cell, RockSampleSettings, layout, names
from baddr.domains.rock_sample.view import RENDERER
from baddr.domains.tables import KNOWN, observation_table, transition_table
from baddr.posteriors import Counts, Graph
from baddr.posteriors.factored import Computed, Node, parents

NORTH, EAST, SOUTH, WEST, SAMPLE, CHECK = range(6)  # CHECK + i checks rock i
NONE = 0  # observations; 1 + the rock's value otherwise
STEPS = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)], np.int32)
ILLEGAL = -100.0
QUANTILES = 64  # of the prior, that its expected sensor is the mean of
LARGEST_TABLE = 2**14  # counts of T

Rocks = tuple[Cell, ...]


class RockSample(POMDP):
    dynamics: Dynamics
    rocks: Rocks = eqx.field(static=True)
    begin: Cell = eqx.field(static=True)
    pomcp_rules: bool = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, settings: RockSampleSettings, dynamics: Dynamics):
        n, k = settings.size, settings.rocks
        self.dynamics, self.discount, self.horizon = dynamics, settings.discount, settings.horizon
        self.begin, self.rocks = layout(n, k)
        self.pomcp_rules = settings.rules == "pomcp"
        self.state_sizes, self.observation_sizes, self.num_actions = (n, n, *[2] * k), (3,), CHECK + k

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): the rover's cell is known, each rock is good or bad."""
        n, k = self.state_sizes[0], len(self.rocks)
        cells = np.zeros((n * n, 2**k))
        cells[self.begin[0] * n + self.begin[1]] = 0.5**k
        return cells.reshape(-1)

    def initial_state(self, key: Key[Array, ""]) -> State:
        rocks = jr.bernoulli(key, shape=(len(self.rocks),)).astype(jnp.int32)
        return jnp.concatenate([jnp.array(self.begin, jnp.int32), rocks])

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([NONE], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        good = jnp.any(self._here(s) & (s[2:] == 1))
        rock = jnp.where(good, GOOD, jnp.where(jnp.any(self._here(s)), BAD, 0.0))
        r = jnp.where(self._leaves(s, a), EXIT, jnp.where(a == SAMPLE, rock, 0.0))
        return jnp.where(legal(s, self.state_sizes[0], self.rocks)[a], r, ILLEGAL) if self.pomcp_rules else r

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        leaves = self._leaves(s, a)
        return leaves | ~legal(s, self.state_sizes[0], self.rocks)[a] if self.pomcp_rules else leaves

    def _here(self, s: State) -> Bool[Array, " rocks"]:
        return rock_here(s, self.rocks)

    def _leaves(self, s: State, a: Action) -> Bool[Array, ""]:
        return (a == EAST) & (s[0] == self.state_sizes[0] - 1)


def rock_here(s: State, rocks: Rocks) -> Bool[Array, " rocks"]:
    """Which rock lies in the rover's cell."""
    return jnp.all(s[None, :2] == np.array(rocks, np.int32), axis=1)


def legal(s: State, size: int, rocks: Rocks) -> Bool[Array, " A"]:
    """Moves that stay on the map or leave it in the east; sampling where there is a rock; every check."""
    x, y = s[0], s[1]
    moves = jnp.stack([y < size - 1, jnp.array(True), y > 0, x > 0, jnp.any(rock_here(s, rocks))])
    return jnp.concatenate([moves, jnp.ones((len(rocks),), bool)])


class RockDynamics(SplitDynamics):
    """D for a sensor: how often it is right about each rock, from each cell. All else is known."""

    accuracy: Float[Array, "n n rocks"]
    rocks: Rocks = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return self.next_state(s, a)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        checked = jnp.maximum(a - CHECK, 0)
        right = jr.uniform(key) < self.accuracy[s_next[0], s_next[1], checked]
        seen = jnp.where(right, s_next[2 + checked], 1 - s_next[2 + checked])
        return jnp.where(a >= CHECK, 1 + seen, NONE)[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(jnp.all(s_next == self.next_state(s, a)), 0.0, -jnp.inf)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        checked = jnp.maximum(a - CHECK, 0)
        p = self.accuracy[s_next[0], s_next[1], checked]
        p = jnp.where(o[0] == 1 + s_next[2 + checked], p, jnp.where(o[0] == NONE, 0, 1 - p))
        return jnp.log(jnp.where(a >= CHECK, p, (o[0] == NONE).astype(p.dtype)))

    def next_state(self, s: State, a: Action) -> State:
        """The rover moves, unless off the map; a rock that is sampled is bad from then on."""
        n = self.accuracy.shape[0]
        move = jnp.where(a < SAMPLE, jnp.asarray(STEPS)[jnp.minimum(a, WEST)], 0)
        sampled = (a == SAMPLE) & rock_here(s, self.rocks)
        return jnp.concatenate([jnp.clip(s[:2] + move, 0, n - 1), jnp.where(sampled, 0, s[2:])])


def distances(size: int, rocks: Rocks) -> Float[np.ndarray, "n n rocks"]:
    """From each cell to each rock, as the crow flies."""
    x, y = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    return np.stack([np.hypot(x - i, y - j) for i, j in rocks], axis=-1)


def accuracy(d: Any, half_distance: Any) -> Any:
    """How often the sensor is right at these distances, of NumPy or JAX."""
    return 0.5 * (1 + 2.0 ** (-d / half_distance))


def graph(pomdp: RockSample, sensor: Float[np.ndarray, "n n rocks"], total: float) -> Graph:
    """Nothing but the sensor is learned: by rock and cell, and whether the rock is good."""
    D, k = RockDynamics(jnp.asarray(sensor), pomdp.rocks), len(pomdp.rocks)

    def computed(i: int) -> Computed:
        return Computed(parents("s", sorted({0, 1, i})), lambda s, a, s_next: D.next_state(s, a)[i])

    def checked(rock: int) -> Node:
        def row(x: int, y: int, good: int) -> tuple[float, ...]:
            right = total * float(sensor[x, y, rock])
            return (0.0, total - right, right) if good else (0.0, right, total - right)

        return Node(parents("s_next", [0, 1, 2 + rock]), row)

    nothing = Node((), lambda: (1.0, 0.0, 0.0), learned=False)
    seen = (*[nothing] * CHECK, *map(checked, range(k)))
    T = tuple(computed(i) for i in range(2 + k))
    return Graph(pomdp.state_sizes, (3,), pomdp.num_actions, T, (seen,))


def counts(pomdp: RockSample, expected: RockDynamics, total: float) -> Counts | None:
    """The same for tables, where they are small: `total` in the rows of checks, KNOWN in all others."""
    if pomdp.num_states**2 * pomdp.num_actions > LARGEST_TABLE:
        return None
    checks = jnp.arange(pomdp.num_actions)[:, None, None] >= CHECK
    T, O = transition_table(expected, pomdp), observation_table(expected, pomdp)
    return Counts(T * KNOWN, O * jnp.where(checks, total, KNOWN))


def bounds(settings: RockSampleSettings):
    """`lower` and `upper` of (s, steps left); see `bounds.py`."""
    n, gamma, rocks = settings.size, settings.discount, layout(settings.size, settings.rocks)[1]
    V = jnp.asarray(best_values(n, rocks, gamma), jnp.float32)
    found = tours(n, rocks, gamma)
    left, value = jnp.asarray(found.left), jnp.asarray(found.value, jnp.float32)
    bits = np.array([2**i for i in reversed(range(len(rocks)))], np.int32)
    good = lambda s: jnp.sum(s[2:] * bits, dtype=jnp.int32)

    def upper(s: State, steps_left: Int[Array, ""]) -> Scalar:
        return V[s[0] * n + s[1], good(s)]

    def lower(s: State, steps_left: Int[Array, ""]) -> Float[Array, " tours"]:
        cell = s[0] * n + s[1]
        return jnp.where(left[cell] < steps_left, value[cell, good(s)], found.least)

    return lower, upper


@takes_fields_of(RockSampleSettings)
def make_domain(settings: RockSampleSettings) -> Domain:
    """RockSample with a prior about its sensor: the logarithm of its half-distance is uniform."""
    n, rocks = settings.size, layout(settings.size, settings.rocks)[1]
    low, high = math.log(settings.prior_low), math.log(settings.prior_high)
    d = distances(n, rocks)
    sensor = lambda half_distance: RockDynamics(accuracy(jnp.asarray(d), half_distance), rocks)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        return sensor(jnp.exp(jr.uniform(key, minval=low, maxval=high)))

    halves = np.exp(low + (high - low) * (np.arange(QUANTILES) + 0.5) / QUANTILES)
    mean = np.mean([accuracy(d, half) for half in halves], axis=0)
    expected = RockDynamics(jnp.asarray(mean, jnp.float32), rocks)
    pomdp = RockSample(settings, sensor(settings.half_distance))
    lower, upper = bounds(settings)
    return Domain(
        name="rock-sample",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=counts(pomdp, expected, settings.prior_total),
        graphs={"default": graph(pomdp, mean, settings.prior_total)},
        learned="O",
        legal=lambda s: legal(s, n, rocks),
        preferred=lambda s: preferred(s, n, rocks),
        lower=lower,
        upper=upper,
        names=names(settings),
        renderer=RENDERER,
    )


def preferred(s: State, size: int, rocks: Rocks) -> Bool[Array, " A"]:
    """Sampling a good rock where one lies; else moves towards good rocks, or to the exit where there is none.

    As in Silver and Veness (2010), but for a simulation that knows its rocks.
    """
    here, good = rock_here(s, rocks), s[2:] == 1
    at = np.array(rocks, np.int32)
    towards = lambda mask: jnp.any(good & mask)
    x, y = s[0], s[1]
    moves = [towards(at[:, 1] > y), towards(at[:, 0] > x), towards(at[:, 1] < y), towards(at[:, 0] < x)]
    moves[EAST] = moves[EAST] | ~jnp.any(good)
    sample = jnp.any(here & good)
    moves = jnp.stack(moves) & ~sample
    return jnp.concatenate([moves, sample[None], jnp.zeros((len(rocks),), bool)])
