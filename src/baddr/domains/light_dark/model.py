"""Light-Dark, discrete: go where one sees well, then to the goal, and stop there.

State: the agent's cell, of -reach to reach, numbered from 0. An action moves it by so many cells (it stays on
the line), or stops: that ends the episode, with a reward at cell 0 and a loss elsewhere. The observation is
the cell plus normal noise, rounded, within the line; the noise's standard deviation is `slope` times the
distance to the light, and at least .1. Two sets of rules are in use: of Sunberg and Kochenderfer (2018),
`pomcpow`, and of POMDPModels.jl's LightDark1D, `1d`. (The problem itself is Platt et al.'s, 2010, and
continuous.)

Only the noise is unknown: where the light is, and how fast sight fades.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from scipy.special import ndtr

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.light_dark.settings import RULES, LightDarkSettings, Rules, names
from baddr.domains.light_dark.view import RENDERER
from baddr.domains.tables import KNOWN, transition_table
from baddr.posteriors import Counts, Graph
from baddr.posteriors.factored import Computed, Node, parents
from baddr.prng import categorical

LEAST_NOISE = 0.1
QUANTILES = 8  # of the slope's prior, that the expected noise is the mean over


class LightDark(POMDP):
    dynamics: Dynamics
    first: tuple[float, ...] = eqx.field(static=True)  # p(s_0)
    rules: Rules = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, settings: LightDarkSettings, dynamics: Dynamics):
        n = 2 * settings.reach + 1
        self.dynamics, self.discount, self.horizon = dynamics, settings.discount, settings.horizon
        self.rules = RULES[settings.rules]
        self.first = tuple(first_cells(settings).tolist())
        self.state_sizes, self.observation_sizes, self.num_actions = (n,), (n,), len(self.rules.moves)

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): a normal, cut off at the ends of the line."""
        return np.array(self.first)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return categorical(key, jnp.asarray(self.first))[None]

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([self.state_sizes[0] // 2], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        at_goal = s[0] == self.state_sizes[0] // 2
        stopped = jnp.where(at_goal, self.rules.right, self.rules.wrong)
        return jnp.where(self.is_terminal(s, a, s_next), stopped, -self.rules.cost)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return a == self.rules.moves.index(0)


def first_cells(settings: LightDarkSettings) -> Float[np.ndarray, " cells"]:
    """The normal's density at each cell, in proportion."""
    x = np.arange(-settings.reach, settings.reach + 1)
    p = np.exp(-0.5 * ((x - settings.start_mean) / settings.start_deviation) ** 2)
    return p / p.sum()


class LightDarkDynamics(SplitDynamics):
    """D for a noise p(seen | cell); all else is known."""

    noise: Float[Array, "cells seen"]
    moves: tuple[int, ...] = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return self.next_state(s, a)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return categorical(key, self.noise[s_next[0]])[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(s_next[0] == self.next_state(s, a)[0], 0.0, -jnp.inf)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        row = self.noise[s_next[0]]
        return jnp.log(row[o[0]]) - jnp.log(jnp.sum(row))

    def next_state(self, s: State, a: Action) -> State:
        return jnp.clip(s + jnp.asarray(self.moves, jnp.int32)[a], 0, self.noise.shape[0] - 1)


def noise_table(reach: int, light, slope, cdf=jax.scipy.special.ndtr, xp=jnp):
    """p(seen | cell): a normal around the cell, rounded, with its tails at the ends of the line."""
    x = xp.arange(-reach, reach + 1, dtype=float)
    sigma = xp.maximum(slope * xp.abs(x - light), LEAST_NOISE)
    edges = xp.arange(-reach, reach, dtype=float) + 0.5
    below = cdf((edges[None] - x[:, None]) / sigma[:, None])
    ends = xp.zeros((2 * reach + 1, 1)), xp.ones((2 * reach + 1, 1))
    return xp.diff(xp.concatenate([ends[0], below, ends[1]], axis=1), axis=1)


def expected_noise(settings: LightDarkSettings) -> Float[np.ndarray, "cells seen"]:
    """The mean over the prior: the light in any cell, slopes by quantiles."""
    reach, most = settings.reach, np.log(settings.prior_slope)
    slopes = np.exp(most * (2 * (np.arange(QUANTILES) + 0.5) / QUANTILES - 1))
    lights = range(-reach, reach + 1)
    found = [noise_table(reach, light, slope, ndtr, np) for light in lights for slope in slopes]
    return np.mean(found, axis=0)


def graph(D: LightDarkDynamics, noise: Float[np.ndarray, "cells seen"], total: float) -> Graph:
    """Only what is seen is learned, by the cell and for each action."""
    n = len(noise)
    moved = Computed((("s", 0),), lambda s, a, s_next: D.next_state(s, a)[0])
    seen = Node(parents("s_next", [0]), lambda cell: total * noise[cell])
    return Graph((n,), (n,), len(D.moves), (moved,), (seen,))


def walks(pomdp: LightDark) -> tuple[Int[np.ndarray, " walks"], Float[np.ndarray, "cells walks"]]:
    """Go so many cells, long moves first, and stop: how many steps that takes, and what it earns from each
    cell."""
    n, rules, gamma = pomdp.state_sizes[0], pomdp.rules, pomdp.discount
    steps, values = [], []
    for way in range(1 - n, n):
        cells, left, t = np.arange(n), way, 0
        while left:
            move = max((m for m in rules.moves if m * left > 0), key=lambda m: (abs(m) <= abs(left), abs(m)))
            cells, left, t = np.clip(cells + move, 0, n - 1), left - move, t + 1
        stopped = np.where(cells == n // 2, rules.right, rules.wrong)
        values.append(gamma**t * stopped - rules.cost * sum(gamma**i for i in range(t)))
        steps.append(t)
    return np.array(steps, np.int32), np.stack(values, axis=1)


def bound(pomdp: LightDark):
    """`lower` of (s, steps left): walks that never look, and stopping nowhere where there is no time."""
    steps, values = (jnp.asarray(x, d) for x, d in zip(walks(pomdp), (jnp.int32, jnp.float32), strict=True))
    nothing = pomdp.rules.wrong - pomdp.rules.cost * pomdp.horizon

    def lower(s: State, steps_left: Int[Array, ""]) -> Float[Array, " walks"]:
        return jnp.where(steps < steps_left, values[s[0]], nothing)

    return lower


@takes_fields_of(LightDarkSettings)
def make_domain(settings: LightDarkSettings) -> Domain:
    """Light-Dark with a prior about its noise: the light is anywhere, and sight fades fast or slowly."""
    reach, moves, most = settings.reach, RULES[settings.rules].moves, float(np.log(settings.prior_slope))
    world = lambda noise: LightDarkDynamics(jnp.asarray(noise, jnp.float32), moves)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        key_light, key_slope = jr.split(key)
        light: Int[Array, ""] = jr.randint(key_light, (), -reach, reach + 1)
        slope = jnp.exp(jr.uniform(key_slope, minval=-most, maxval=most))
        return world(noise_table(reach, light.astype(float), slope))

    mean, total = expected_noise(settings), settings.prior_total
    expected = world(mean)
    truth = world(noise_table(reach, settings.light, settings.slope, ndtr, np))
    pomdp = LightDark(settings, truth)
    O = jnp.broadcast_to(jnp.asarray(mean * total, jnp.float32), (len(moves), *mean.shape))
    return Domain(
        name="light-dark",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=Counts(transition_table(expected, pomdp) * KNOWN, O),
        graphs={"default": graph(expected, mean, total)},
        learned="O",
        lower=bound(pomdp),
        names=names(settings),
        renderer=RENDERER,
    )
