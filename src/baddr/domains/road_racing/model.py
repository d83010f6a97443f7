"""Road racing (Katt et al. 2022): n lanes with a slower car in each; keep away from the car ahead.

State (lane, distance_0, ..., distance_{n-1}): the agent's lane, and how far ahead the car of every lane is,
0 to 5. Actions 0 up (lane - 1), 1 stay, 2 down (lane + 1). In a step

1. the car of lane i comes closer by one with probability p_i, its speed; only the car right ahead of the
   agent, at distance 1 in its own lane, never does;
2. the agent moves, unless it is at the edge of the road or the car of the lane it wants is at distance 0;
3. a car that was overtaken (-1) is replaced by one at distance 5.

The observation is the distance in the agent's lane, and so is the reward, less 1 where a move failed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles, tree_at_index
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.road_racing.settings import RoadRacingSettings, names
from baddr.domains.road_racing.view import RENDERER
from baddr.domains.tables import dirichlet_counts
from baddr.fast.choose import models_of
from baddr.fast.loops import bytes_of, over_particles
from baddr.posteriors import Graph, Posterior
from baddr.posteriors.factored import Computed, Feature, Node, Tie, parents
from baddr.posteriors.partial import split
from baddr.prng import beta

UP, STAY, DOWN = range(3)
NUM_DISTANCES = 6
FARTHEST = NUM_DISTANCES - 1
PRIOR_SPEED = 0.5  # the prior's expectation, in every lane
# A flat table has n 6^n states: 72 for two lanes; 648 for three, with 1,259,712 counts of T a particle.
MOST_LANES_OF_A_TABLE = 2

Distances = Int[Array, " lanes"]


class RoadRacing(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, lanes: int, dynamics: Dynamics, discount: float = 0.95, horizon: int = 20):
        self.dynamics, self.discount, self.horizon = dynamics, discount, horizon
        self.state_sizes = (lanes, *[NUM_DISTANCES] * lanes)
        self.observation_sizes, self.num_actions = (NUM_DISTANCES,), 3

    def initial_state(self, key: Key[Array, ""]) -> State:
        lanes = self.state_sizes[0]
        return jnp.array([lanes // 2, *[FARTHEST] * lanes], jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return distance_ahead(s)[None]

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        failed = (a != STAY) & (s_next[0] != s[0] + a - STAY)
        return (distance_ahead(s_next) - failed.astype(jnp.int32)).astype(float)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return jnp.array(False)


class RoadDynamics(SplitDynamics):
    """D for the lanes' speeds; all else about the road is known."""

    speeds: Float[Array, " lanes"]

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        advance = jr.uniform(key, self.speeds.shape, self.speeds.dtype) < self._advance_probabilities(s)
        distances = jnp.where(advance, one_closer(s[1:]), s[1:])
        return jnp.concatenate([next_lane(s[0], a, distances)[None], distances])

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return distance_ahead(s_next)[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        before, after, p = s[1:], s_next[1:], self._advance_probabilities(s)
        of_each_car = jnp.where(after == one_closer(before), p, jnp.where(after == before, 1 - p, 0))
        moved = s_next[0] == next_lane(s[0], a, after)
        return jnp.where(moved, jnp.sum(jnp.log(of_each_car)), -jnp.inf)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.where(o[0] == distance_ahead(s_next), 0.0, -jnp.inf)

    def _advance_probabilities(self, s: State) -> Float[Array, " lanes"]:
        """The speeds, but 0 for the car right ahead of the agent."""
        own_lane = jnp.arange(self.speeds.shape[0], dtype=s.dtype) == s[0]
        return jnp.where(own_lane & (s[1:] == 1), 0, self.speeds)


def one_closer(distances: Distances) -> Distances:
    """The distances if all cars advance; a car that is overtaken makes place for one at the far end."""
    return jnp.where(distances == 0, FARTHEST, distances - 1)


def next_lane(lane: Int[Array, ""], a: Action, distances: Distances) -> Int[Array, ""]:
    """The agent's lane, given the distances of s'.

    Whether a car blocks the way is known from s': a car at 0 there was at 0 before the overtaken ones were
    replaced, as these are at the far end.
    """
    wanted = jnp.clip(lane + a - STAY, 0, distances.shape[0] - 1)
    return jnp.where(distances[wanted] == 0, lane, wanted)


def distance_ahead(s: State) -> Int[Array, ""]:
    """How far the car in the agent's lane is."""
    return s[1 + s[0]]


def true_speeds(lanes: int) -> Float[Array, " lanes"]:
    """p_i = (i + 1) / (n + 1)."""
    return jnp.array([(i + 1) / (lanes + 1) for i in range(lanes)])


def graph(lanes: int, total: float) -> Graph:
    """Only the cars are learned: a car depends on its distance and, at distance 1, on whose lane it is in.

    The agent's lane is computed from where the cars are in s', and the observation from s'.
    """
    cars = parents("s_next", range(1, 1 + lanes))

    def car(i: int) -> Node:
        def row(lane: int, distance: int) -> Float[np.ndarray, " distances"]:
            right_ahead = lane == i and distance == 1
            return np.eye(NUM_DISTANCES)[distance] if right_ahead else car_row(distance, total)

        def speed(lane: int, distance: int) -> Tie | None:
            """One for the lane, whatever the distance and the action."""
            closer = FARTHEST if distance == 0 else distance - 1
            advance, wait = PRIOR_SPEED * total, (1 - PRIOR_SPEED) * total
            right_ahead = lane == i and distance == 1
            return None if right_ahead else Tie(("speed", i), (advance, wait), (closer, distance))

        return Node(parents("s", [0, 1 + i]), row, tie=speed)

    lane = Computed((("s", 0), *cars), lambda s, a, s_next: next_lane(s[0], a, s_next[1:]))
    seen = Computed((("s_next", 0), *cars), lambda s, a, s_next: distance_ahead(s_next))
    return _graph((lane, *map(car, range(lanes))), seen)


def figure_graph(lanes: int, total: float) -> Graph:
    """The graph of the paper's figure, all of it stored: lane' <- lane and all cars, car' <- car,
    o <- lane' and all cars'.

    Two edges are missing there: no car can wait for the agent, and whether a car blocks the way is not known
    from the cars of s but has a probability, by the prior 1/2. So lane' must be learned too.
    """

    def lane(a: int) -> Node:
        def row(lane: int, *distances: int) -> Float[np.ndarray, " lanes"]:
            wanted = min(max(lane + a - STAY, 0), lanes - 1)
            stays, moves = np.eye(lanes)[lane], np.eye(lanes)[wanted]
            may_be_blocked = wanted != lane and distances[wanted] <= 1
            return total / 2 * (stays + moves) if may_be_blocked else moves

        return Node(parents("s", range(1 + lanes)), row)

    cars = tuple(Node(parents("s", [1 + i]), lambda distance: car_row(distance, total)) for i in range(lanes))
    seen = Node(
        parents("s_next", range(1 + lanes)), lambda lane, *distances: np.eye(NUM_DISTANCES)[distances[lane]]
    )
    return _graph((tuple(map(lane, (UP, STAY, DOWN))), *cars), seen)


def _graph(T: tuple[Feature, ...], seen: Feature) -> Graph:
    lanes = len(T) - 1
    return Graph((lanes, *[NUM_DISTANCES] * lanes), (NUM_DISTANCES,), 3, T, (seen,))


def car_row(distance: int, total: float) -> Float[np.ndarray, " distances"]:
    """Dirichlet counts of a car's next distance: one closer, or the same."""
    certain = np.eye(NUM_DISTANCES)
    closer = FARTHEST if distance == 0 else distance - 1
    return total * (PRIOR_SPEED * certain[closer] + (1 - PRIOR_SPEED) * certain[distance])


@takes_fields_of(RoadRacingSettings)
def make_domain(settings: RoadRacingSettings) -> Domain:
    """Road racing with the paper's prior: all is known but the speeds, each of them 1/2 in expectation."""
    lanes, certainty, total = settings.lanes, settings.certainty, settings.prior_total

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """A speed ~ Beta(c/2, c/2) for each lane."""
        counts = (jnp.full((lanes,), p * certainty) for p in (PRIOR_SPEED, 1 - PRIOR_SPEED))
        return RoadDynamics(beta(key, *counts))

    pomdp = RoadRacing(lanes, RoadDynamics(true_speeds(lanes)), settings.discount, settings.horizon)
    expected = RoadDynamics(jnp.full((lanes,), PRIOR_SPEED))
    fits = lanes <= MOST_LANES_OF_A_TABLE
    return Domain(
        name="road-racing",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=dirichlet_counts(expected, pomdp, total) if fits else None,
        graphs={"default": graph(lanes, total), "figure": figure_graph(lanes, total)},
        describe=describe,
        shows=shows,
        names=names(settings),
        renderer=RENDERER,
    )


def believed_speeds(D: SplitDynamics, lanes: int) -> Float[Array, " lanes"]:
    """The speeds of any D, read where all cars are at distance 3 and the agent stays in its first lane.

    p_i / (1 - p_i) is p(only car i advances) / p(no car does). This takes n + 1 probabilities, where a sum
    over all that the other cars may do would take 2^n.
    """
    s = jnp.array([lanes // 2, *[3] * lanes], jnp.int32)
    stay = jnp.int32(STAY)

    def only(advances: Bool[Array, " lanes"]) -> Scalar:
        s_next = jnp.concatenate([s[:1], jnp.where(advances, one_closer(s[1:]), s[1:])])
        return D.transition_log_prob(s, stay, s_next)

    return jax.nn.sigmoid(jax.vmap(only)(jnp.eye(lanes, dtype=bool)) - D.transition_log_prob(s, stay, s))


def describe(key: Key[Array, ""], posterior: Posterior, belief: Particles) -> dict[str, Array]:
    """Mean and standard deviation of each lane's speed over D ~ p(.; theta) of all particles.

    Counts draw their expected model: their own uncertainty is then no part of the standard deviation.
    """
    lanes, n, thetas = belief.states.s.shape[-1] - 1, belief.num_particles, belief.states.theta

    models = models_of(posterior)

    def speeds(key: Key[Array, ""], i: Int[Array, ""]) -> Array:
        epsilon = posterior.draw(key, tree_at_index(thetas, i))
        return believed_speeds(split(models.dynamics(thetas, i, epsilon)), lanes)

    # Nine lanes have .65 GB of weights: they are not copied for this.
    p = over_particles(speeds, bytes_of(thetas))(jr.split(key, n), jnp.arange(n, dtype=jnp.int32))
    w = belief.weights[:, None]
    mean = jnp.sum(w * p, axis=0)
    variance = jnp.sum(w * (p - mean[None]) ** 2, axis=0)
    return {"speed_mean": mean, "speed_std": jnp.sqrt(variance)}


def shows(s: State, a: Action, s_next: State, o: Observation) -> dict[str, Bool[Array, " lanes"]]:
    """The car ahead is seen; and a car is met, or not, in the lane that the agent tries to enter."""
    lane = jnp.arange(s.shape[-1] - 1)
    return {"speed": (lane == s_next[0]) | (lane == s[0] + a - STAY)}
