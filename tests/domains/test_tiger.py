"""Every domain: ranges, probabilities, frequencies, determinism; and tiger as FACTS settles it."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.pomdp import feature_vector, flat_index
from baddr.domains import tiger

DOMAINS = {"tiger": tiger.make_domain()}


@pytest.fixture(params=DOMAINS)
def pomdp(request):
    return DOMAINS[request.param].pomdp


def pairs(pomdp):
    every = itertools.product(*map(range, pomdp.state_sizes))
    return [(jnp.array(s, jnp.int32), jnp.int32(a)) for s in every for a in range(pomdp.num_actions)]


def outcomes(pomdp):
    states = list(itertools.product(*map(range, pomdp.state_sizes)))
    observations = list(itertools.product(*map(range, pomdp.observation_sizes)))
    both = list(itertools.product(states, observations))
    return jnp.array([s for s, _ in both], jnp.int32), jnp.array([o for _, o in both], jnp.int32)


def test_probabilities_sum_to_one_and_match_frequencies(pomdp):
    """10,000 steps from each (s, a); each cell within 5 standard errors of its probability."""
    s_next, o = outcomes(pomdp)
    for s, a in pairs(pomdp):
        log_p = jax.vmap(pomdp.dynamics.log_prob, in_axes=(None, None, 0, 0))(s, a, s_next, o)
        p = np.exp(np.asarray(log_p, np.float64))
        assert p.sum() == pytest.approx(1, abs=1e-6)
        drawn_s, drawn_o = jax.vmap(pomdp.step, in_axes=(0, None, None))(jr.split(prng.key(0), 10_000), s, a)
        assert drawn_s.dtype == jnp.int32 and drawn_o.dtype == jnp.int32
        index = jax.vmap(lambda s: flat_index(s, pomdp.state_sizes))(drawn_s) * pomdp.num_observations
        index += jax.vmap(lambda o: flat_index(o, pomdp.observation_sizes))(drawn_o)
        frequency = np.bincount(np.asarray(index), minlength=len(p)) / 10_000
        assert np.all(np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / 10_000) + 1e-7)


def test_initial_values_are_in_range_and_determined_by_the_key(pomdp):
    key = prng.key(5)
    s, same = pomdp.initial_state(key), jax.jit(lambda k: pomdp.initial_state(k))(key)
    o = pomdp.initial_observation(key, s)
    assert jnp.array_equal(s, same)
    assert np.all((np.asarray(s) >= 0) & (np.asarray(s) < pomdp.state_sizes))
    assert np.all((np.asarray(o) >= 0) & (np.asarray(o) < pomdp.observation_sizes))


def test_flat_index_and_feature_vector_are_inverse():
    sizes = (3, 4, 2)
    for rank, features in enumerate(itertools.product(range(3), range(4), range(2))):
        assert flat_index(jnp.array(features, jnp.int32), sizes) == rank
        assert tuple(feature_vector(jnp.int32(rank), sizes).tolist()) == features


def test_tiger_rewards_name_the_good_door():
    pomdp = DOMAINS["tiger"].pomdp
    for s in (0, 1):
        state = jnp.array([s], jnp.int32)
        rewards = [float(pomdp.reward(state, jnp.int32(a), state)) for a in range(3)]
        assert rewards == [10.0 if s == 0 else -100.0, 10.0 if s == 1 else -100.0, -1.0]
        assert [bool(pomdp.is_terminal(state, jnp.int32(a), state)) for a in range(3)] == [True, True, False]


def test_tiger_against_a_second_version():
    """T and O written out by hand."""
    D = DOMAINS["tiger"].pomdp.dynamics
    open_T = [[0.5, 0.5], [0.5, 0.5]]
    np.testing.assert_allclose(D.T[:, 0], open_T)
    np.testing.assert_allclose(D.T[:, 1], open_T)
    np.testing.assert_allclose(D.T[:, 2], np.eye(2))
    np.testing.assert_allclose(D.O[0], [[0, 0, 1]] * 2)
    np.testing.assert_allclose(D.O[1], [[0, 0, 1]] * 2)
    np.testing.assert_allclose(D.O[2], [[0.85, 0.15, 0], [0.15, 0.85, 0]], rtol=1e-6)


def test_tiger_simulators_hear_as_the_prior_says():
    """Each door's accuracy x ~ Beta(5, 3), apart from the other's: E x, E x^2 and E x y within 4 standard
    errors of 20,000 draws (known exactly: E x^k is the product of (5 + i) / (8 + i) over i < k)."""
    n, simulators = 20_000, DOMAINS["tiger"].sample_simulator
    M = jax.vmap(simulators)(jr.split(prng.key(4), n))
    x, y = np.asarray(M.O, np.float64)[:, tiger.LISTEN, [0, 1], [0, 1]].T
    moment = lambda k: np.prod([(5 + i) / (8 + i) for i in range(k)])
    of_both = x * y, moment(1) ** 2, moment(2) ** 2
    for values, mean, square in ((x, moment(1), moment(2)), (y**2, moment(2), moment(4)), of_both):
        assert abs(values.mean() - mean) < 4 * np.sqrt((square - mean**2) / n)
    np.testing.assert_allclose(M.O.sum(axis=-1), 1, atol=1e-6)
    known = tiger.dynamics(0.85)
    np.testing.assert_array_equal(M.T[0], known.T)
    np.testing.assert_array_equal(M.O[0, : tiger.LISTEN], known.O[: tiger.LISTEN])


def test_tiger_prior_counts():
    counts = DOMAINS["tiger"].counts
    np.testing.assert_allclose(counts.O[2], [[5, 3, 0], [3, 5, 0]])
    np.testing.assert_allclose(counts.T.sum(-1), 10_000)
    np.testing.assert_allclose(counts.O[:2].sum(-1), 10_000)


def test_a_family_is_a_vmap_of_its_member():
    """Def. 1: members of a family of POMDPs, batched over their dynamics."""
    pomdp = DOMAINS["tiger"].pomdp
    accuracies = [0.6, 0.7, 0.99]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *[tiger.dynamics(p) for p in accuracies])
    s, listen = jnp.zeros((1,), jnp.int32), jnp.int32(2)

    def hears(D):
        return pomdp.with_dynamics(D).dynamics.observation_log_prob(s, listen, s, s)

    np.testing.assert_allclose(jnp.exp(jax.vmap(hears)(stacked)), accuracies, rtol=1e-6)
