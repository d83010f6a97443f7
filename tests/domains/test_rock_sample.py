"""RockSample against a second version, frequencies, and bounds against value iteration."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import rock_sample
from baddr.domains.rock_sample.bounds import best_values, tours
from baddr.domains.rock_sample.settings import MAPS, layout
from baddr.domains.tables import observation_table, transition_table

SMALL = rock_sample.make_domain(size=3, rocks=2, horizon=12)
ROCKS = layout(3, 2)[1]


def states(n, k):
    return list(itertools.product(range(n), range(n), *[range(2)] * k))


def second_version(n, rocks, s, a, pomcp=False):
    """(s', reward, whether it ends)."""
    x, y, *good = s
    ill = (s, -100.0, True) if pomcp else (s, 0.0, False)
    if a == 4:
        if (x, y) not in rocks:
            return ill
        i = rocks.index((x, y))
        return (x, y, *good[:i], 0, *good[i + 1 :]), 10.0 if good[i] else -10.0, False
    if a > 4:
        return s, 0.0, False
    if a == 1 and x == n - 1:
        return s, 10.0, True
    dx, dy = [(0, 1), (1, 0), (0, -1), (-1, 0)][a]
    there = x + dx, y + dy
    return ((*there, *good), 0.0, False) if min(there) >= 0 and max(there) < n else ill


def second_sensor(rocks, s, a, half=20.0):
    """p(none), p(bad), p(good) after a check."""
    if a < 5:
        return [1.0, 0.0, 0.0]
    (x, y, *good), (u, v) = s, rocks[a - 5]
    right = (1 + 2 ** (-math.dist((x, y), (u, v)) / half)) / 2
    return [0.0, 1 - right, right] if good[a - 5] else [0.0, right, 1 - right]


@pytest.mark.parametrize("rules", ["standard", "pomcp"])
def test_every_step_against_the_second_version(rules):
    pomdp = rock_sample.make_domain(size=3, rocks=2, rules=rules).pomdp
    T, O = transition_table(pomdp.dynamics, pomdp), observation_table(pomdp.dynamics, pomdp)
    every = states(3, 2)
    index = {s: i for i, s in enumerate(every)}
    pairs = list(itertools.product(every, range(7)))
    s, a = jnp.array([s for s, _ in pairs], jnp.int32), jnp.array([a for _, a in pairs], jnp.int32)
    follow = [second_version(3, ROCKS, *pair, rules == "pomcp") for pair in pairs]
    s_next = jnp.array([x for x, _, _ in follow], jnp.int32)
    r, ends = jax.jit(jax.vmap(lambda *x: (pomdp.reward(*x), pomdp.is_terminal(*x))))(s, a, s_next)
    np.testing.assert_allclose(r, [x for _, x, _ in follow])
    np.testing.assert_array_equal(ends, [x for _, _, x in follow])
    for (here, act), (there, _, over) in zip(pairs, follow, strict=True):
        if not over:
            assert T[index[here], act, index[there]] == 1
        np.testing.assert_allclose(O[act, index[here]], second_sensor(ROCKS, here, act), atol=1e-6)


def test_frequencies_of_the_sensor():
    """4096 checks from afar: within 4 standard errors of the formula."""
    D = rock_sample.make_domain(size=4, rocks=4, half_distance=2.0).pomdp.dynamics
    s, n = jnp.array([0, 2, 1, 0, 1, 0], jnp.int32), 4096
    step = jax.jit(jax.vmap(D.step, (0, None, None)))
    for a in (5, 8):
        _, o = step(jr.split(prng.key(a), n), s, jnp.int32(a))
        p = np.array(second_sensor(MAPS[4, 4][1], s.tolist(), a, 2.0))
        found = np.bincount(np.asarray(o)[:, 0], minlength=3) / n
        assert np.all(np.abs(found - p) <= 4 * np.sqrt(p * (1 - p) / n) + 1e-9)


def test_the_prior_is_wide_and_expects_its_mean():
    draws = jax.vmap(lambda key: SMALL.sample_simulator(key).accuracy[0, 0, 0])(jr.split(prng.key(1), 2000))
    assert draws.min() < 0.6 and draws.max() > 0.95
    error = 4 * float(draws.std()) / 2000**0.5
    assert abs(float(draws.mean()) - float(SMALL.expected_simulator.accuracy[0, 0, 0])) < error


def known_rocks(n, rocks, gamma, sweeps=200):
    """V of one who sees the rocks, by value iteration over the second version."""
    V = dict.fromkeys(states(n, len(rocks)), 0.0)
    for _ in range(sweeps):
        after = lambda s, a: second_version(n, rocks, s, a)
        V = {s: max(r + gamma * V[t] * (not e) for t, r, e in (after(s, a) for a in range(5))) for s in V}
    return np.array([V[s] for s in states(n, len(rocks))]).reshape(n * n, -1)


def test_the_upper_bound_is_the_value_of_known_rocks():
    np.testing.assert_allclose(best_values(3, ROCKS, 0.95), known_rocks(3, ROCKS, 0.95), atol=1e-6)


def test_the_lower_bounds_are_what_tours_earn():
    """Each is the return of a plan that is walked in the second version; none beats known rocks."""
    n, gamma = 3, 0.95
    left, value, least = tours(n, ROCKS, gamma)
    V = known_rocks(n, ROCKS, gamma)
    assert np.all(value.max(-1) <= V + 1e-9) and np.all(value >= least)
    np.testing.assert_allclose(
        value.max(-1), V, atol=1e-6
    )  # all tours are among them, so the best is optimal
    np.testing.assert_allclose(value[:, :, 0], np.broadcast_to(10 * gamma ** left[:, :1], V.shape))
    both = value[1 * n + 1, 3].max()  # from the middle, both good: the best order, by hand
    i, j = ROCKS
    way = lambda a, b: abs(a[0] - b[0]) + abs(a[1] - b[1])

    def earned(first, second):
        t = way((1, 1), first)
        u = t + 1 + way(first, second)
        return 10 * (gamma**t + gamma**u + gamma ** (u + 1 + n - 1 - second[0]))

    assert both == pytest.approx(max(earned(i, j), earned(j, i)))


def test_an_episode_that_is_too_short_for_a_tour_does_not_count_on_it():
    s = jnp.array([0, 1, 1, 1], jnp.int32)
    assert float(SMALL.lower(s, jnp.int32(1)).max()) <= 0
    assert float(SMALL.lower(s, jnp.int32(50)).max()) > 5


def test_a_rock_sample_that_cannot_be_is_refused():
    from baddr.errors import UserError

    with pytest.raises(UserError, match="rocks must lie between"):
        rock_sample.make_domain(size=3, rocks=40)
