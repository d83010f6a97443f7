"""Collision avoidance (Luo et al. 2019): a plane crosses a grid and must not meet a moving obstacle.

State (x, y, b) on an N x N grid with N odd: the plane's column and row, and the obstacle's row; the obstacle
is always in column 0. Rows are counted from the bottom. Actions 0 down (row - 1), 1 stay, 2 up (row + 1). In
each step the plane flies one column to the left and moves by its action; the obstacle moves down, stays or
moves up by its policy; both stop at the edges. After N - 1 steps the plane is in column 0 and the episode
ends. A move costs 1, a collision (the same row at the end) 1000. The plane observes its own position, and the
obstacle's row with rounded normal noise, which stops at the edges too.
"""

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.core.posterior import sample
from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings, names
from baddr.domains.collision_avoidance.view import RENDERER
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.tables import KNOWN, dirichlet_counts
from baddr.posteriors import Graph, Posterior
from baddr.posteriors.factored import Computed, Node, Tie, parents
from baddr.posteriors.partial import split
from baddr.prng import categorical, dirichlet

DOWN, STAY, UP = range(3)
MOVE_COST = 1.0
COLLISION_COST = 1000.0
LARGEST_TABLE = 5  # the largest N with a flat table: 93,750 counts a particle; N = 7 would take 705,894

Policy = Float[Array, "3"]  # of the obstacle: the probabilities of down, stay and up


class CollisionAvoidance(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    noise: Float[Array, "rows rows"]  # of the true observations: what the plane sees before its first step

    def __init__(self, dynamics: "CollisionDynamics", discount: float = 0.95):
        size = dynamics.noise.shape[-1]
        self.dynamics, self.discount, self.horizon = dynamics, discount, size - 1
        self.state_sizes = self.observation_sizes = (size,) * 3
        self.num_actions, self.noise = 3, dynamics.noise

    def initial_state(self, key: Key[Array, ""]) -> State:
        size = self.state_sizes[0]
        return jnp.array([size - 1, size // 2, size // 2], jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return observe(key, self.noise, s)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        collision = (s_next[0] == 0) & (s_next[1] == s_next[2])
        return -jnp.where(a == STAY, 0.0, MOVE_COST) - jnp.where(collision, COLLISION_COST, 0.0)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return s_next[0] == 0


class CollisionDynamics(SplitDynamics):
    """D for an obstacle's policy and the noise of its observed row; the plane's own moves are known."""

    policy: Policy
    noise: Float[Array, "rows rows"]  # p(observed row | row)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        x, y, b = s
        move = categorical(key, self.policy)
        return jnp.stack([jnp.maximum(x - 1, 0), self._moved(y, a), self._moved(b, move)])

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return observe(key, self.noise, s_next)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        x, y, b = s
        flown = (s_next[0] == jnp.maximum(x - 1, 0)) & (s_next[1] == self._moved(y, a))
        lands = self._moved(b, jnp.arange(3, dtype=b.dtype)) == s_next[2]  # at an edge two moves land alike
        return jnp.where(flown, jnp.log(jnp.sum(jnp.where(lands, self.policy, 0))), -jnp.inf)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        x, y, b = s_next
        seen = (o[0] == x) & (o[1] == y)
        return jnp.where(seen, jnp.log(self.noise[b, o[2]]), -jnp.inf)

    def _moved(self, row: Int[Array, ""], move: Int[Array, "*moves"]) -> Int[Array, "*moves"]:
        return moved(row, move, self.noise.shape[0])


def moved(row: Int[Array, ""], move: Int[Array, "*moves"], size: int) -> Int[Array, "*moves"]:
    """The row after a move 0 down, 1 stay or 2 up."""
    return jnp.clip(row + move - STAY, 0, size - 1)


def observe(key: Key[Array, ""], noise: Float[Array, "rows rows"], s: State) -> Observation:
    x, y, b = s
    return jnp.stack([x, y, categorical(key, noise[b])])


def noise_table(size: int, sigma: float) -> Float[Array, "rows rows"]:
    """p(observed row | row): the row plus round(N(0, sigma^2)); what is beyond an edge falls on the edge."""
    cdf = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)))
    row, borders = np.arange(size)[:, None], np.arange(size - 1)[None] + 0.5
    below = cdf((borders - row) / sigma)
    return jnp.asarray(np.diff(below, axis=1, prepend=0.0, append=1.0), float)


def policy(down: float, up: float) -> Policy:
    return jnp.array([down, 1 - down - up, up])


def graph(
    D: CollisionDynamics, total: float, observation_total: float = KNOWN, learn_observation: bool = False
) -> Graph:
    """Of D, the prior's expectation, the obstacle's moves are learned, for each action and row of its own.

    The plane's moves are computed. The noise of the observation is known, or learned too. An agent that does
    not know the structure takes the plane's position for possible parents of the obstacle's.
    """
    size = D.noise.shape[0]
    obstacle, noise = np.asarray(D.policy), np.asarray(D.noise, np.float64)

    def row(b: int) -> Float[np.ndarray, " rows"]:
        counts = np.zeros(size)
        np.add.at(counts, np.clip(b + np.array([-1, 0, 1]), 0, size - 1), total * obstacle)
        return counts

    x = Computed(parents("s", [0]), lambda s, a, s_next: jnp.maximum(s[0] - 1, 0))
    y = Computed(parents("s", [1]), lambda s, a, s_next: moved(s[1], a, size))

    def policy_of(b: int) -> Tie:
        """One for all rows and actions; at an edge two moves land alike."""
        lands = np.clip(b + np.array([-1, 0, 1]), 0, size - 1)
        return Tie("policy", tuple((total * obstacle).tolist()), tuple(lands.tolist()))

    b = Node(parents("s", [2]), row, candidates=parents("s", [0, 1]), tie=policy_of)
    seen = [Computed(parents("s_next", [i]), lambda s, a, s_next, i=i: s_next[i]) for i in range(2)]
    noisy = Node(parents("s_next", [2]), lambda b: observation_total * noise[b], learned=learn_observation)
    return Graph((size,) * 3, (size,) * 3, 3, (x, y, b), (*seen, noisy))


def is_legal(s: State) -> Bool[Array, ""]:
    """Where an episode is not over."""
    return s[0] >= 1


@takes_fields_of(CollisionAvoidanceSettings)
def make_domain(settings: CollisionAvoidanceSettings) -> Domain:
    """Collision avoidance with the BRL literature's prior: an obstacle that mostly stays, all else known."""
    size, total = settings.size, settings.prior_total
    table = noise_table(size, settings.noise)
    expected = CollisionDynamics(policy(settings.prior_down, settings.prior_up), table)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """A policy ~ Dirichlet(c * its expectation), the same in all cells."""
        return CollisionDynamics(dirichlet(key, settings.certainty * expected.policy), table)

    truth = CollisionDynamics(policy(settings.down, settings.up), table)
    pomdp = CollisionAvoidance(truth, settings.discount)
    uncertain = graph(expected, total, settings.prior_observation_total, learn_observation=True)
    return Domain(
        name="collision-avoidance",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=dirichlet_counts(expected, pomdp, total) if size <= LARGEST_TABLE else None,
        graphs={"default": graph(expected, total), "uncertain-observation": uncertain},
        is_legal=is_legal,
        describe=partial(describe, size=size),
        shows=shows,
        names=names(settings),
        renderer=RENDERER,
    )


def believed_policy(D: SplitDynamics, size: int) -> Policy:
    """The obstacle's policy in any D, read in the first state, where the plane stays.

    The three outcomes with the plane where it must be, in proportion: a D that spreads some probability over
    other cells is asked for what it says about the obstacle alone.
    """
    middle = size // 2
    s, stay = jnp.array([size - 1, middle, middle], jnp.int32), jnp.int32(STAY)
    s_next = jnp.array([[size - 2, middle, b] for b in (middle - 1, middle, middle + 1)], jnp.int32)
    return jax.nn.softmax(jax.vmap(D.transition_log_prob, (None, None, 0))(s, stay, s_next))


def describe(key: Key[Array, ""], posterior: Posterior, belief: Particles, size: int) -> dict[str, Array]:
    """Mean and standard deviation over D ~ p(.; theta) of all particles of the obstacle's policy (down, stay,
    up).

    Counts draw their expected model: their own uncertainty is then no part of the standard deviation.
    """

    def one(key: Key[Array, ""], theta) -> Array:
        return believed_policy(split(sample(posterior, key, theta)), size)

    p = jax.vmap(one)(jr.split(key, belief.num_particles), belief.states.theta)
    w = belief.weights[:, None]
    mean = jnp.sum(w * p, axis=0)
    return {"obstacle_mean": mean, "obstacle_std": jnp.sqrt(jnp.sum(w * (p - mean[None]) ** 2, axis=0))}


def shows(s: State, a: Action, s_next: State, o: Observation) -> dict[str, Bool[Array, " moves"]]:
    """Where the obstacle seems to be is seen at every step."""
    return {"obstacle": jnp.ones((3,), bool)}
