"""Tag (Pineau et al. 2003): find an opponent that runs away, and tag it.

State (robot, opponent): their cells, of 29 in the published map. Actions 0 north, 1 east, 2 south, 3 west, 4
tag. The observation is the robot's cell, or `with the opponent` where both are in the same one. A step costs
1. Tagging gives 10 and ends the episode where the opponent is in the robot's cell, and costs 10 elsewhere.
Both start anywhere.

The opponent sees the robot before it moves. It looks along x or along y, with 1/2 each, and there runs away
from the robot with probability `flee` (.8), comes nearer with `approach` (0), or stays. Where the robot is
level with it, away and nearer are either way. Where a wall stops it, it stays (as in the published files), or
takes one of its other moves in proportion (`walls=spread`, as in Silver and Veness's program).

Only the opponent's policy is unknown.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.tables import KNOWN, observation_table, transition_table
from baddr.domains.tag.patrol import STEP_COST, TAG_REWARD, patrol_values
from baddr.domains.tag.settings import Cell, TagSettings, cells, names
from baddr.domains.tag.view import RENDERER
from baddr.posteriors import Counts, Graph
from baddr.posteriors.factored import Computed, Node, parents
from baddr.prng import categorical, dirichlet

NORTH, EAST, SOUTH, WEST, TAG = range(5)
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))
STAY = 4  # the opponent's fifth move
MISSED = -10.0
MOST_CELLS_OF_A_TABLE = 8
RUNS_AWAY = 1.0, 0.0, 0.0

Policy = Float[Array, "3"]  # flee, approach, stay


class Tag(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, num_cells: int, dynamics: Dynamics, discount: float = 0.95, horizon: int = 100):
        self.dynamics, self.discount, self.horizon = dynamics, discount, horizon
        self.state_sizes, self.observation_sizes, self.num_actions = (num_cells,) * 2, (num_cells + 1,), 5

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): both are anywhere."""
        return np.full(self.num_states, 1 / self.num_states)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jr.randint(key, (2,), 0, self.state_sizes[0], jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return seen(s, self.state_sizes[0])[None]

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(a == TAG, jnp.where(s[0] == s[1], TAG_REWARD, MISSED), STEP_COST)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return (a == TAG) & (s[0] == s[1])


def seen(s: State, num_cells: int) -> Int[Array, ""]:
    """The robot's cell, or that the opponent is there."""
    return jnp.where(s[0] == s[1], num_cells, s[0])


class TagDynamics(SplitDynamics):
    """D for an opponent's policy; all else is known."""

    policy: Policy
    moves: Int[Array, "cells 5"]  # the cell that each move leads to, the last one staying
    away: Float[Array, "robot opponent moves 3"]  # each move's probability is linear in the policy

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        move = categorical(key, self._moves(s))
        return jnp.stack([self._robot(s, a), jnp.where(caught(s, a), s[1], self.moves[s[1], move])])

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return seen(s_next, self.moves.shape[0])[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        p = jnp.sum(jnp.where(self.moves[s[1]] == s_next[1], self._moves(s), 0))
        p = jnp.where(caught(s, a), (s_next[1] == s[1]).astype(p.dtype), p)
        return jnp.log(jnp.where(s_next[0] == self._robot(s, a), p, 0))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.where(o[0] == seen(s_next, self.moves.shape[0]), 0.0, -jnp.inf)

    def _moves(self, s: State) -> Float[Array, " moves"]:
        p = self.away[s[0], s[1]] @ self.policy
        total = jnp.sum(p)  # nothing, where all moves of an opponent that always runs lead into walls
        return jnp.where(total > 0, p / jnp.maximum(total, 1e-30), (jnp.arange(5) == STAY).astype(p.dtype))

    def _robot(self, s: State, a: Action) -> Int[Array, ""]:
        return self.moves[s[0], jnp.where(a == TAG, STAY, a)]


def caught(s: State, a: Action) -> Bool[Array, ""]:
    return (a == TAG) & (s[0] == s[1])


def move_table(found: list[Cell]) -> Int[np.ndarray, "cells 5"]:
    """Where each move leads from each cell; walls stop it."""
    number = {at: i for i, at in enumerate(found)}
    to = lambda at, step: number.get((at[0] + step[0], at[1] + step[1]), number[at])
    return np.array([[*(to(at, step) for step in STEPS), number[at]] for at in found], np.int32)


def policy_table(found: list[Cell], spread: bool) -> Float[np.ndarray, "robot opponent moves 3"]:
    """p(move) = sum over (flee, approach, stay) of these numbers times the policy; 1/2 for each axis."""
    moves, n = move_table(found), len(found)
    table = np.zeros((n, n, 5, 3))
    for (r, robot), (o, opponent) in ((x, y) for x in enumerate(found) for y in enumerate(found)):
        for axis, (down, up) in enumerate(((WEST, EAST), (SOUTH, NORTH))):
            away = np.sign(opponent[axis] - robot[axis])
            ahead = {up: (1 + away) / 2, down: (1 - away) / 2}  # the share of running away in each
            for move, share in ahead.items():
                table[r, o, move, :2] += 0.5 * np.array([share, 1 - share])
            table[r, o, STAY, 2] += 0.5
        for move in range(4):
            if moves[o, move] == o:  # a wall
                table[r, o, STAY] += 0 if spread else table[r, o, move]
                table[r, o, move] = 0
    return table


def opponent_table(
    away: Float[np.ndarray, "robot opponent moves 3"],
    moves: Int[np.ndarray, "cells 5"],
    policy: tuple[float, ...],
) -> Float[np.ndarray, "robot opponent next"]:
    """p(the opponent's next cell | both cells)."""
    p, n = away @ np.array(policy), len(moves)
    stuck = p.sum(-1) == 0  # an opponent that always runs away from where it cannot
    p[..., STAY] += stuck
    p /= p.sum(-1, keepdims=True)
    table = np.zeros((n, n, n))
    for o in range(n):
        for move in range(5):
            table[:, o, moves[o, move]] += p[:, o, move]
    return table


def graph(D: TagDynamics, rows: Float[np.ndarray, "robot opponent next"], total: float) -> Graph:
    """Only the opponent's next cell is learned, by both cells and for each action."""
    n = len(rows)
    moves = D.moves
    robot = Computed((("s", 0),), lambda s, a, s_next: moves[s[0], jnp.where(a == TAG, STAY, a)])
    runs = Node(parents("s", [0, 1]), lambda robot, opponent: total * rows[robot, opponent])
    found = Computed(parents("s_next", [0, 1]), lambda s, a, s_next: seen(s_next, n))
    return Graph((n, n), (n + 1,), 5, (robot, runs), (found,))


def counts(pomdp: Tag, expected: TagDynamics, total: float) -> Counts:
    """The same for tables."""
    T, O = transition_table(expected, pomdp), observation_table(expected, pomdp)
    several = jnp.sum(T > 0, axis=-1, keepdims=True) > 1
    return Counts(T * jnp.where(several, total, KNOWN), O * KNOWN)


def patrols(settings: TagSettings, away: np.ndarray, moves: np.ndarray):
    """`lower` of (s, steps left): patrols to each cell first, and walking on for ever."""
    gamma = settings.discount
    V = patrol_values(moves[:, :4], opponent_table(away, moves, RUNS_AWAY), gamma)
    V = jnp.asarray(np.moveaxis(V, 0, -1), jnp.float32)

    def lower(s: State, steps_left: Int[Array, ""]) -> Float[Array, " policies"]:
        """An episode that ends too soon misses at most the reward for tagging."""
        late = gamma ** steps_left.astype(float)
        walk = STEP_COST * (1 - late) / (1 - gamma)
        return jnp.append(V[s[0], s[1]] - TAG_REWARD * late, walk)

    return lower


@takes_fields_of(TagSettings)
def make_domain(settings: TagSettings) -> Domain:
    """Tag with a prior about the opponent: it runs away, comes nearer or stays, all equally likely."""
    found = cells(settings.width)
    moves, away = move_table(found), policy_table(found, settings.walls == "spread")
    opponent = lambda policy: TagDynamics(
        jnp.asarray(policy), jnp.asarray(moves), jnp.asarray(away, jnp.float32)
    )
    total, truth = settings.prior_total, (settings.flee, settings.approach)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        return opponent(dirichlet(key, jnp.full((3,), total / 3)))

    expected = opponent((1 / 3,) * 3)
    pomdp = Tag(len(found), opponent((*truth, 1 - sum(truth))), settings.discount, settings.horizon)
    small = len(found) <= MOST_CELLS_OF_A_TABLE
    rows = opponent_table(away, moves, (1 / 3,) * 3)
    return Domain(
        name="tag",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=counts(pomdp, expected, total) if small else None,
        graphs={"default": graph(expected, rows, total)} if small else {},
        learned="T",
        lower=patrols(settings, away, moves),
        preferred=lambda s: preferred(s, expected),
        names=names(settings),
        renderer=RENDERER,
    )


def preferred(s: State, D: TagDynamics) -> Bool[Array, " A"]:
    """Tagging where the opponent is here; elsewhere moves that no wall stops (Silver and Veness 2010)."""
    here = s[0] == s[1]
    moves = (D.moves[s[0], :4] != s[0]) & ~here
    return jnp.append(moves, here)
