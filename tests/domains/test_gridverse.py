"""Gridverse against a second version in NumPy, hand-drawn beams, and the exact optimum."""

import itertools
import json
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles, uniform_weights
from baddr.domains import gridverse
from baddr.domains.gridverse import Walk, make_domain
from baddr.domains.gridverse.settings import GridverseSettings
from baddr.domains.gridverse.settings import names as names_of
from baddr.lab.experiment import preset
from baddr.posteriors import Known, Partial

FORWARD, LEFT, RIGHT = 0, 1, 2
NORTH, EAST, SOUTH, WEST = range(4)
VALUES = json.loads((Path(__file__).parent.parent / "data" / "values.json").read_text())


def poses(size):
    return np.array(list(itertools.product(range(size), range(size), range(4))), np.int32)


def open_poses(size):
    s = poses(size)
    return s[((s[:, :2] > 0) & (s[:, :2] < size - 1)).all(1)]


# A second version, from the specification: a room is drawn as text and looked up.


@cache
def drawing(size):
    room = [["#"] * size] + [["#"] + ["."] * (size - 2) + ["#"] for _ in range(size - 2)] + [["#"] * size]
    room[size - 2][size - 2] = "G"
    return np.array(room)


def numpy_step(s, a, size, forward_length):
    y, x, heading = map(int, s)
    if a == LEFT:
        return y, x, {NORTH: WEST, WEST: SOUTH, SOUTH: EAST, EAST: NORTH}[heading]
    if a == RIGHT:
        return y, x, {NORTH: EAST, EAST: SOUTH, SOUTH: WEST, WEST: NORTH}[heading]
    dy, dx = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}[heading]
    for _ in range(forward_length):
        if drawing(size)[y + dy, x + dx] == "#":
            break
        y, x = y + dy, x + dx
    return y, x, heading


def numpy_beam(s, size):
    """The drawing with the agent's heading turned upwards, cut out around the agent."""
    y, x, heading = map(int, s)
    wide = np.full((3 * size, 3 * size), " ")
    wide[size : 2 * size, size : 2 * size] = drawing(size)
    here = np.zeros((3 * size, 3 * size), bool)
    here[size + y, size + x] = True
    wide, here = np.rot90(wide, heading), np.rot90(here, heading)
    (row,), (column,) = np.nonzero(here)
    seen = wide[row - size + 1 : row + 1, column - 1 : column + 2][::-1]
    return [" .#G".index(cell) for cell in seen.ravel()]


def numpy_prior(s, size, forward_length):
    """The probabilities of the cells on which a noisy forward lands."""
    y, x, heading = map(int, s)
    dy, dx = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}[heading]
    farthest = 5 if forward_length <= 4 else forward_length + 1
    line = [(y + d * dy, x + d * dx) for d in range(-1, farthest + 1)]
    cells = [c for c in line if 0 < c[0] < size - 1 and 0 < c[1] < size - 1]
    return {(*c, heading): 1 / len(cells) for c in cells}


@eqx.filter_jit
def steps_of(D, s):
    """s' and o of every pose under every action."""
    step = jax.vmap(jax.vmap(D.step, in_axes=(None, None, 0)), in_axes=(None, 0, None))
    return step(prng.key(0), s, jnp.arange(3, dtype=jnp.int32))


@pytest.mark.parametrize("size, forward_length", [(3, 1), (4, 2), (8, 1), (8, 4), (16, 4), (32, 8)])
def test_steps_and_beams_equal_the_second_version(size, forward_length):
    s = open_poses(size)
    s_next, o = map(np.asarray, steps_of(Walk(size, forward_length, noisy=False), jnp.asarray(s)))
    for i, pose in enumerate(s):
        for a in range(3):
            expected = numpy_step(pose, a, size, forward_length)
            assert tuple(s_next[i, a]) == expected
            assert o[i, a].tolist() == numpy_beam(expected, size)


# A room of 5: 3 x 3 open cells. What the agent sees from its own row to 4 ahead: left, middle, right of it.
BEAMS = {
    (1, 1, EAST): ["#..", "#..", "#..", "###", "   "],  # the wall on its left, the goal two columns off
    (1, 1, NORTH): ["#..", "###", "   ", "   ", "   "],
    (1, 1, WEST): ["..#", "###", "   ", "   ", "   "],
    (1, 1, SOUTH): ["..#", "..#", "..#", "###", "   "],
    (3, 1, EAST): ["..#", "..#", ".G#", "###", "   "],  # looks along the last row at the goal
    (2, 2, EAST): ["...", "..G", "###", "   ", "   "],
    (2, 2, SOUTH): ["...", "G..", "###", "   ", "   "],  # facing south, the east is on the left
    (2, 2, WEST): ["...", "...", "###", "   ", "   "],
    (1, 3, SOUTH): ["#..", "#..", "#G.", "###", "   "],
    (3, 3, NORTH): [".G#", "..#", "..#", "###", "   "],  # standing on the goal
    (3, 3, WEST): ["#G.", "#..", "#..", "###", "   "],
    (3, 3, EAST): [".G#", "###", "   ", "   ", "   "],
}


@pytest.mark.parametrize("pose", BEAMS)
def test_beams_drawn_by_hand(pose):
    o = gridverse.beam(jnp.array(pose, jnp.int32), 5)
    assert "".join(" .#G"[cell] for cell in o.tolist()) == "".join(BEAMS[pose])


def test_the_observation_is_certain_given_the_next_pose():
    """log p(o | s, a, s') is 0 at the beam of s' and -inf elsewhere, whatever s and a are."""
    D = Walk(5, 1, noisy=True)
    s_next = jnp.array([2, 2, EAST], jnp.int32)
    o = gridverse.beam(s_next, 5)
    for s in ([1, 1, 0], [2, 1, 1]):
        for a in range(3):
            args = jnp.array(s, jnp.int32), jnp.int32(a), s_next
            assert D.observation_log_prob(*args, o) == 0
            assert D.observation_log_prob(*args, o.at[7].set(0)) == -jnp.inf


def shortest(size, forward_length):
    """Steps from the start to the goal, by breadth-first search over the domain's own transitions."""
    s_next = np.asarray(steps_of(Walk(size, forward_length, noisy=False), jnp.asarray(poses(size)))[0])
    rank = lambda s: (s[..., 0] * size + s[..., 1]) * 4 + s[..., 2]
    children, goal = rank(s_next), rank(np.array([size - 2, size - 2, 0])) + np.arange(4)
    seen = frontier = {int(rank(np.array([1, 1, EAST])))}
    for steps in itertools.count(1):
        frontier = {int(child) for s in frontier for child in children[s]} - seen
        seen = seen | frontier
        if frontier & set(goal.tolist()):
            return steps


@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("forward_length", [1, 4, 8])
def test_the_optimum_is_the_exact_one(size, forward_length):
    """gamma^(steps - 1) within the horizon: at 32 x 32 no policy gets there one cell at a time."""
    pomdp = make_domain(size, forward_length).pomdp
    steps = shortest(size, forward_length)
    value = pomdp.discount ** (steps - 1) if steps <= pomdp.horizon else 0.0
    oracle = VALUES[f"gridverse/walls strafe=False k={forward_length}/{size}/corner_return"]
    assert value == pytest.approx(oracle["value"], abs=1e-12)
    if (size, forward_length) == (32, 1):
        assert steps == 59 and value == 0


def test_reward_and_end_are_the_goal_alone():
    pomdp = make_domain(6).pomdp
    s = jnp.asarray(poses(6))
    at_goal = (poses(6)[:, :2] == 4).all(1)
    for a in range(3):
        for i in (0, 50, 100):
            rewards = jax.vmap(pomdp.reward, in_axes=(None, None, 0))(s[i], jnp.int32(a), s)
            ends = jax.vmap(pomdp.is_terminal, in_axes=(None, None, 0))(s[i], jnp.int32(a), s)
            np.testing.assert_array_equal(rewards, at_goal.astype(np.float32))
            np.testing.assert_array_equal(ends, at_goal)


def test_it_starts_in_the_corner_facing_east():
    pomdp = make_domain(7).pomdp
    s = pomdp.initial_state(prng.key(3))
    assert s.tolist() == [1, 1, EAST]
    assert pomdp.initial_observation(prng.key(3), s).tolist() == numpy_beam((1, 1, EAST), 7)
    assert (pomdp.state_sizes, pomdp.observation_sizes) == ((7, 7, 4), (4,) * 21)


@eqx.filter_jit
def transition_table(D, s, s_next):
    """p(s' | s, a) for all s, a and s'."""
    log_p = jax.vmap(D.transition_log_prob, in_axes=(None, None, 0))
    log_p = jax.vmap(jax.vmap(log_p, in_axes=(None, 0, None)), in_axes=(0, None, None))
    return jnp.exp(log_p(s, jnp.arange(3, dtype=jnp.int32), s_next))


@pytest.mark.parametrize("size, forward_length", [(3, 1), (5, 1), (9, 4), (11, 8)])
def test_the_priors_probabilities_equal_an_enumeration(size, forward_length):
    """All legal (s, a), all s' in the space: so forward never leaves the room, and rows sum to one."""
    s, every = open_poses(size), poses(size)
    p = np.asarray(
        transition_table(Walk(size, forward_length, noisy=True), jnp.asarray(s), jnp.asarray(every))
    )
    expected = np.zeros_like(p)
    index = {tuple(pose): i for i, pose in enumerate(every.tolist())}
    for i, pose in enumerate(s):
        for s_next, probability in numpy_prior(pose, size, forward_length).items():
            expected[i, FORWARD, index[s_next]] = probability
        for a in (LEFT, RIGHT):
            expected[i, a, index[numpy_step(pose, a, size, 1)]] = 1
    np.testing.assert_allclose(p, expected, atol=1e-7)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)


def test_the_truths_probabilities_are_zero_or_one_and_the_prior_holds_it():
    for forward_length in (1, 4, 6):
        s, every = jnp.asarray(open_poses(9)), jnp.asarray(poses(9))
        truth = Walk(9, forward_length, noisy=False)
        p = np.asarray(transition_table(truth, s, every))
        assert set(np.unique(p)) == {0.0, 1.0} and (p.sum(-1) == 1).all()
        prior = np.asarray(transition_table(Walk(9, forward_length, noisy=True), s, every))
        assert (prior[p == 1] > 0).all()
        s_next = np.asarray(steps_of(truth, s)[0])
        np.testing.assert_array_equal(np.asarray(every)[p.argmax(-1)], s_next)


@pytest.mark.parametrize("pose", [(1, 1, EAST), (1, 1, WEST), (4, 7, NORTH), (5, 7, WEST), (3, 3, SOUTH)])
def test_the_priors_draws_have_its_frequencies(pose):
    """20,000 draws; each cell within 5 standard errors of its probability, and none elsewhere."""
    n, D = 20_000, Walk(9, 4, noisy=True)
    draw = eqx.filter_jit(lambda keys, s: jax.vmap(lambda key: D.step(key, s, jnp.int32(FORWARD)))(keys))
    s_next, o = map(np.asarray, draw(jr.split(prng.key(1), n), jnp.array(pose, jnp.int32)))
    expected = numpy_prior(pose, 9, 4)
    drawn, first, count = np.unique(s_next, axis=0, return_index=True, return_counts=True)
    assert {tuple(s) for s in drawn.tolist()} == set(expected)
    for s, i, number in zip(drawn.tolist(), first, count, strict=True):
        p = expected[tuple(s)]
        assert abs(number / n - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-9
        assert o[i].tolist() == numpy_beam(s, 9)


def test_poses_in_walls_have_a_next_one_too():
    """A network may put an agent into a wall: what follows is a distribution all the same."""
    every = jnp.asarray(poses(6))
    for noisy in (True, False):
        p = np.asarray(transition_table(Walk(6, 4, noisy=noisy), every, every))
        np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)


def test_legal_poses_are_open_and_not_terminal():
    for size, expected in ((3, 4), (4, 12), (8, 4 * 35)):
        legal = np.asarray(jax.vmap(make_domain(size).is_legal)(jnp.asarray(poses(size))))
        assert legal.sum() == expected
        assert set(map(tuple, poses(size)[legal])) <= set(map(tuple, open_poses(size)))


def test_the_leaf_value_is_one_over_the_distance():
    domain = make_domain(8)
    values = {(1, 1, 1): 1 / 10, (6, 5, 0): 1, (6, 6, 2): 1, (4, 5, 3): 1 / 3}
    for s, value in values.items():
        assert float(domain.leaf_value(jnp.array(s, jnp.int32))) == pytest.approx(value)
    assert make_domain(8, leaf="rollout").leaf_value is None


def test_steps_batch_over_rooms_of_runs_and_depend_on_the_key_alone():
    D = Walk(8, 1, noisy=True)
    s, a = jnp.asarray(open_poses(8)[:20]), jnp.zeros((20,), jnp.int32)
    keys = jr.split(prng.key(2), 20)
    together = eqx.filter_jit(jax.vmap(D.step))(keys, s, a)
    again = eqx.filter_jit(jax.vmap(D.step))(keys, s, a)
    alone = [D.step(keys[i], s[i], a[i]) for i in (0, 7, 19)]
    for x, y in zip(together, again, strict=True):
        np.testing.assert_array_equal(x, y)
    for (s_next, o), i in zip(alone, (0, 7, 19), strict=True):
        np.testing.assert_array_equal(together[0][i], s_next)
        np.testing.assert_array_equal(together[1][i], o)


def believed(posterior, n=8):
    theta = jax.vmap(posterior.prior)(jr.split(prng.key(0), n))
    s = jnp.tile(jnp.array([1, 1, 1], jnp.int32), (n, 1))
    belief = Particles(AugmentedState(s, theta), uniform_weights(n))
    return {k: float(v[0]) for k, v in gridverse.describe(prng.key(1), posterior, belief).items()}


def test_the_described_advance_is_the_mean_landing():
    """Truth: k cells, no doubt. Prior in the corner: uniform over 0 ... 5, mean 2.5, deviation sqrt(35/12).

    8 x 64 draws: the mean's standard error is 1.708 / sqrt(512) = .075, the deviation's below .04."""
    domain = make_domain(8, 4)
    truth, prior = domain.pomdp.dynamics, domain.expected_simulator
    assert believed(Known(truth)) == {"advance_mean": 4.0, "advance_std": 0.0}
    about = believed(Partial(prior, truth))
    assert about["advance_mean"] == pytest.approx(2.5, abs=4 * 0.075)
    assert about["advance_std"] == pytest.approx(np.sqrt(35 / 12), abs=4 * 0.04)


def test_the_settings():
    assert GridverseSettings().forward_length == 1 and GridverseSettings().problems() == []
    assert len(GridverseSettings(size=2, forward_length=0, discount=2.0, horizon=0).problems()) == 4
    lengths = [
        preset("gridverse", preset="paper", settings=GridverseSettings(size=n)).domain for n in (8, 16, 32)
    ]
    assert [settings.forward_length for settings in lengths] == [4, 4, 8]
    assert [settings.size for settings in lengths] == [8, 16, 32]
    assert preset("gridverse").domain.forward_length == 1
    names = names_of(GridverseSettings(size=6))
    pomdp = make_domain(6).pomdp
    assert tuple(len(values) for _, values in names.state) == pomdp.state_sizes
    assert tuple(len(values) for _, values in names.observation) == pomdp.observation_sizes
    assert names.observation[3 * 2 + 1][0] == "2 ahead middle" and len(names.action) == pomdp.num_actions
