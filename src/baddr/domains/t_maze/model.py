"""T-maze(n) (Bakker 2001): remember a cue along a corridor, and turn to the side that it named.

State (position, treat): 0 the door, 1 to n the corridor, n + 1 the junction; and the side of the treat, 0
north or 1 south. Actions 0 north, 1 east, 2 south, 3 west. From the door every action leads to cell 1. There
the cue is seen, on arrival and whenever one stays: it names the treat's side with the cue's reliability.
North or south at the junction ends the episode: 4 on the treat's side, -.1 on the other, and one sees which.
Walking into a wall costs .1 and does nothing. Observations 0 cue north, 1 cue south, 2 corridor, 3 junction,
4 treat, 5 nothing.

Only the cue's reliability is unknown. As published it is 1; .9 is our choice.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.t_maze.settings import TMazeSettings, names
from baddr.domains.t_maze.view import RENDERER
from baddr.domains.tables import KNOWN, observation_table, transition_table
from baddr.posteriors import Counts, Graph
from baddr.posteriors.factored import Computed, Node, parents
from baddr.prng import beta

NORTH, EAST, SOUTH, WEST = range(4)
DOOR, CUE = 0, 1  # positions
SEEN_CORRIDOR, SEEN_JUNCTION, SEEN_TREAT, SEEN_NOTHING = 2, 3, 4, 5
NUM_SEEN = 6
TREAT, MISTAKE = 4.0, -0.1
MOST_CELLS_OF_A_TABLE = 20


class TMaze(POMDP):
    dynamics: Dynamics
    begin: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, settings: TMazeSettings, dynamics: Dynamics):
        self.dynamics, self.discount, self.horizon = dynamics, settings.discount, settings.horizon
        self.begin = DOOR if settings.variant == "passive" else CUE + 1
        self.state_sizes, self.observation_sizes = (settings.length + 2, 2), (NUM_SEEN,)
        self.num_actions = 4

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): the treat is on either side."""
        p = np.zeros(self.state_sizes)
        p[self.begin] = 0.5
        return p.reshape(-1)

    def initial_state(self, key: Key[Array, ""]) -> State:
        side = jr.bernoulli(key, shape=(1,)).astype(jnp.int32)
        return jnp.concatenate([jnp.array([self.begin], jnp.int32), side])

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([SEEN_CORRIDOR], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        bumped = jnp.where(s[0] == s_next[0], MISTAKE, 0.0)
        won = (a == NORTH) == (s[1] == 0)
        return jnp.where(self.is_terminal(s, a, s_next), jnp.where(won, TREAT, MISTAKE), bumped)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return (s[0] == self.state_sizes[0] - 1) & (a % 2 == NORTH)


class TMazeDynamics(SplitDynamics):
    """D for a cue's reliability; all else is known."""

    reliability: Float[Array, ""]
    junction: int = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return self.next_state(s, a)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        right = jr.uniform(key) < self.reliability
        cue = jnp.where(right, s_next[1], 1 - s_next[1])
        return jnp.where(s_next[0] == CUE, cue, self.seen(a, s_next))[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(jnp.all(s_next == self.next_state(s, a)), 0.0, -jnp.inf)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        p = jnp.where(o[0] == s_next[1], self.reliability, 1 - self.reliability)
        certain = (o[0] == self.seen(a, s_next)).astype(p.dtype)
        return jnp.log(jnp.where(s_next[0] == CUE, jnp.where(o[0] < SEEN_CORRIDOR, p, 0), certain))

    def next_state(self, s: State, a: Action) -> State:
        position = jnp.clip(s[0] + jnp.where(a % 2 == EAST, 2 - a, 0), CUE, self.junction)
        return jnp.stack([jnp.where(s[0] == DOOR, CUE, position), s[1]])

    def seen(self, a: Action, s_next: State) -> Int[Array, ""]:
        """What is seen where there is no cue. At the junction, north and south have shown what was there."""
        turned = jnp.where((a == NORTH) == (s_next[1] == 0), SEEN_TREAT, SEEN_NOTHING)
        at_junction = jnp.where(a % 2 == NORTH, turned, SEEN_JUNCTION)
        return jnp.where(s_next[0] == self.junction, at_junction, SEEN_CORRIDOR)


def graph(D: TMazeDynamics, reliability: float, total: float) -> Graph:
    """Only what is seen at the cue is learned. Other rows have so many counts that they stay as they are."""

    def row(a: int):
        def counts(position: int, side: int) -> Float[np.ndarray, " seen"]:
            if position == CUE:
                cue = [reliability, 1 - reliability]
                return total * np.array([*(cue if side == 0 else cue[::-1]), *[0] * 4])
            s_next = jnp.array([position, side], jnp.int32)
            return KNOWN * np.eye(NUM_SEEN)[int(D.seen(jnp.int32(a), s_next))]

        return counts

    of = parents("s", [0, 1])
    T = tuple(Computed(of, lambda s, a, s_next, i=i: D.next_state(s, a)[i]) for i in range(2))
    seen = tuple(Node(parents("s_next", [0, 1]), row(a)) for a in range(4))
    return Graph((D.junction + 1, 2), (NUM_SEEN,), 4, T, (seen,))


def counts(pomdp: TMaze, expected: TMazeDynamics, total: float) -> Counts:
    """The same for tables."""
    T, O = transition_table(expected, pomdp), observation_table(expected, pomdp)
    at_cue = jnp.arange(pomdp.num_states)[None, :, None] // 2 == CUE
    return Counts(T * KNOWN, O * jnp.where(at_cue, total, KNOWN))


def bounds(junction: int, discount: float):
    """Bounds of (s, steps left) that hold for every cue: walk on and turn to one of the sides, or to the
    right one."""

    def turned(s: State, steps_left: Int[Array, ""]) -> Float[Array, "sides"]:
        """What turning to each side is worth, at the end of the way there; nothing where that is too far."""
        way = jnp.where(s[0] == DOOR, junction, junction - s[0])
        treat = jnp.where(jnp.arange(2) == s[1], TREAT, MISTAKE)
        return jnp.where(way < steps_left, discount ** way.astype(float) * treat, 0.0)

    def upper(s: State, steps_left: Int[Array, ""]) -> Float[Array, "ways"]:
        """Whoever does not look at the cue again turns to one side; whoever does has the treat at most."""
        way = jnp.where(s[0] == DOOR, junction, junction - s[0])
        back = jnp.where(s[0] == DOOR, 0, jnp.where(s[0] == CUE, 1, 2 * (s[0] - CUE)))
        treat = jnp.where(way + back < steps_left, TREAT * discount ** (way + back).astype(float), 0.0)
        return jnp.append(turned(s, steps_left), treat)

    return turned, upper


@takes_fields_of(TMazeSettings)
def make_domain(settings: TMazeSettings) -> Domain:
    """T-maze with a prior about its cue: Beta(total * expected, total * (1 - expected))."""
    junction, mean, total = settings.length + 1, settings.prior_reliability, settings.prior_total
    cue = lambda reliability: TMazeDynamics(jnp.asarray(reliability, float), junction)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        return cue(beta(key, mean * total, (1 - mean) * total))

    pomdp, expected = TMaze(settings, cue(settings.reliability)), cue(mean)
    lower, upper = bounds(junction, settings.discount)
    return Domain(
        name="t-maze",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=counts(pomdp, expected, total) if settings.length <= MOST_CELLS_OF_A_TABLE else None,
        graphs={"default": graph(expected, mean, total)},
        learned="O",
        lower=lower,
        upper=upper,
        names=names(settings),
        renderer=RENDERER,
    )
