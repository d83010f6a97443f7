"""Codes: what is read of simulators, and when each has a code of its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.pomdp import Dynamics
from baddr.domains import road_racing, tiger
from baddr.domains.callback import BlackBox
from baddr.fast.codes import (
    FEW,
    FIRST_LOG_SD,
    MANY,
    MOST_BYTES,
    MOST_NUMBERS,
    SPEED,
    Encoder,
    OwnCodes,
    codes,
    looks_of,
    num_simulators,
)
from baddr.posteriors.settings import LatentSettings

TIGER, ROAD = tiger.make_domain(), road_racing.make_domain(certainty=4.0)
DEFAULT = LatentSettings()


class Loud(Dynamics):
    """A simulator of one number, whatever it does with it; `shared` is the same in all."""

    number: jax.Array
    shared: jax.Array

    step = observation_log_prob = log_prob = lambda self, *given: None


def stacked(values, shared=3.0) -> Loud:
    values = jnp.asarray(values)
    return Loud(values, jnp.full(values.shape[:1], shared))


def number_of(which: int) -> BlackBox:
    return BlackBox(jnp.asarray(which, jnp.int32), (lambda rng, s, a: (s, s),), (2,), (2,))


def test_what_simulators_share_is_not_read():
    M = eqx.filter_vmap(ROAD.sample_simulator)(jr.split(prng.key(0), 200))
    looks = np.asarray(looks_of(M))
    assert looks.shape == (200, 6)  # three speeds and their log odds
    speeds = np.asarray(M.speeds, np.float64)
    both = np.concatenate([speeds, np.log(speeds / (1 - speeds))], axis=1)
    np.testing.assert_allclose(looks, (both - both.mean(0)) / both.std(0), rtol=1e-4, atol=1e-4)


def test_numbers_that_are_no_probabilities_have_no_log_odds():
    assert looks_of(stacked([[-1.0], [2.0], [5.0]])).shape == (3, 1)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_does_no_harm(value):
    assert np.all(np.isfinite(looks_of(stacked([[-1.0], [value], [5.0]]))))


def test_of_many_numbers_mixtures_are_read():
    """As many as are enough to tell simulators apart."""
    x = np.random.default_rng(0).normal(size=(20, 3000))
    looks = np.asarray(looks_of(stacked(x)))
    assert looks.shape == (20, MOST_NUMBERS)
    apart = np.linalg.norm(looks[:, None] - looks[None], axis=-1)
    assert apart[~np.eye(20, dtype=bool)].min() > 10 and 0.5 < looks.std() < 2


def test_a_black_box_is_not_read():
    """Its number says which it is, and nothing about it."""
    M = jax.vmap(number_of)(jnp.arange(4))
    assert looks_of(M) is None
    assert looks_of(stacked([[1.0], [1.0]])) is None  # nor are simulators that are all the same
    assert isinstance(codes(prng.key(0), 4, looks_of(M), 2), OwnCodes)


def test_how_many_simulators():
    assert num_simulators(DEFAULT, TIGER.sample_simulator) == MANY
    assert num_simulators(DEFAULT, lambda key: number_of(jr.randint(key, (), 0, 9, jnp.int32))) == FEW
    assert num_simulators(LatentSettings(simulators=64), TIGER.sample_simulator) == 64
    large = lambda key: Loud(jr.normal(key, (MOST_BYTES // 4 // 3000,)), jnp.zeros(()))
    assert num_simulators(DEFAULT, large) in (2999, 3000)


def test_codes_of_their_own_and_codes_that_are_read():
    i, looks = jnp.array([2, 0]), jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    own = OwnCodes(jnp.arange(6.0).reshape(3, 2), -jnp.ones((3, 2)))
    mean, log_sd = own.of(i, None)
    np.testing.assert_array_equal(mean, SPEED * np.array([[4.0, 5.0], [0.0, 1.0]]))
    read = codes(prng.key(0), 3, looks, 2)
    assert isinstance(read, Encoder)
    mean, log_sd = read.of(i, looks)
    W, V, A = (np.asarray(x, np.float64) for x in read)
    x = np.asarray(looks, np.float64)[np.array(i)]
    out = np.tanh(x @ W[:-1] + W[-1]) @ V[:-1] + V[-1]
    np.testing.assert_allclose(mean, out[:, :2] + x @ A, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_sd, out[:, 2:] + FIRST_LOG_SD, rtol=1e-4, atol=1e-5)
