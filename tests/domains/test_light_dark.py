"""Light-Dark against a second version, frequencies, and walks that are walked."""

import itertools
from statistics import NormalDist

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import light_dark
from baddr.domains.light_dark.model import noise_table, walks
from baddr.domains.tables import observation_table, transition_table

MOVES = {"pomcpow": (-10, -1, 0, 1, 10), "1d": (-1, 0, 1)}
REWARDS = {"pomcpow": (100.0, -100.0, -1.0), "1d": (10.0, -10.0, 0.0)}


def second_noise(reach, x, light, slope):
    """p(seen | x), by sums over errors."""
    sigma = max(slope * abs(x - light), 0.1)
    p = dict.fromkeys(range(-reach, reach + 1), 0.0)
    for error in range(-200, 201):
        mass = NormalDist(0, sigma).cdf(error + 0.5) - NormalDist(0, sigma).cdf(error - 0.5)
        p[min(max(x + error, -reach), reach)] += mass
    return [*p.values()]


@pytest.mark.parametrize("rules", ["pomcpow", "1d"])
def test_every_step_against_the_second_version(rules):
    reach, light = 4, 3
    pomdp = light_dark.make_domain(reach=reach, light=light, rules=rules, slope=0.7).pomdp
    T, O = transition_table(pomdp.dynamics, pomdp), observation_table(pomdp.dynamics, pomdp)
    right, wrong, cost = REWARDS[rules]
    for x, (a, move) in itertools.product(range(-reach, reach + 1), enumerate(MOVES[rules])):
        to = min(max(x + move, -reach), reach)
        assert T[x + reach, a, to + reach] == 1
        given = jnp.array([x + reach], jnp.int32), jnp.int32(a), jnp.array([to + reach], jnp.int32)
        expected = cost if move else right if x == 0 else wrong
        assert float(pomdp.reward(*given)) == expected and bool(pomdp.is_terminal(*given)) == (move == 0)
    for x in range(-reach, reach + 1):
        np.testing.assert_allclose(O[0, x + reach], second_noise(reach, x, light, 0.7), atol=1e-5)


def test_frequencies_and_the_start():
    """4096 draws: within 4 standard errors."""
    pomdp, n = light_dark.make_domain(reach=5, light=4).pomdp, 4096
    s = np.asarray(jax.vmap(pomdp.initial_state)(jr.split(prng.key(0), n)))[:, 0]
    _, o = jax.jit(jax.vmap(pomdp.dynamics.step, (0, None, None)))(
        jr.split(prng.key(1), n), jnp.array([3], jnp.int32), jnp.int32(3)
    )
    seen = np.array(second_noise(5, -1, 4, 1.0))
    for found, p in ((s, pomdp.start), (np.asarray(o)[:, 0], seen)):
        count = np.bincount(found, minlength=11) / n
        assert np.all(np.abs(count - p) <= 4 * np.sqrt(p * (1 - p) / n) + 1e-6)


def test_walks_earn_what_they_say():
    """Each is walked in the second version, from each cell."""
    pomdp = light_dark.make_domain(reach=6, light=3).pomdp
    steps, values = walks(pomdp)
    for x, (i, way) in itertools.product(range(-6, 7), enumerate(range(-12, 13))):
        at, left, total, t = x, way, 0.0, 0
        while left:
            move = (10 if abs(left) >= 10 else 1) * (1 if left > 0 else -1)
            at, left, total, t = min(max(at + move, -6), 6), left - move, total - 0.95**t, t + 1
        total += 0.95**t * (100 if at == 0 else -100)
        assert steps[i] == t and values[x + 6, i] == pytest.approx(total)


def test_the_prior_is_wide_and_expects_its_mean():
    domain = light_dark.make_domain(reach=4, light=2)
    draws = jax.vmap(lambda key: domain.sample_simulator(key).noise)(jr.split(prng.key(0), 2000))
    error = 4 * np.asarray(draws).std(0) / 2000**0.5 + 0.01
    assert np.all(np.abs(np.asarray(draws).mean(0) - np.asarray(domain.expected_simulator.noise)) < error)
    np.testing.assert_allclose(noise_table(4, 2.0, 1.5).sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(domain.counts.O.sum(-1), 4, atol=1e-4)
