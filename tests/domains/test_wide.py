"""Wide priors: simulators as different as what is to be learned. Against closed forms and the truth."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.pomdp import all_vectors
from baddr.domains import collision_avoidance, gridverse, road_racing, sysadmin
from baddr.domains.catalog import DOMAINS
from baddr.domains.gridverse import model as room

NUM = 2000
KEYS = jr.split(prng.key(0), NUM)


@pytest.mark.parametrize("name", ["road-racing", "collision-avoidance", "gridverse", "sysadmin"])
def test_agents_that_learn_as_bayes_would_have_a_wide_prior(name):
    entry = DOMAINS[name]
    presets = entry.presets(entry.settings)
    for preset, variant in itertools.product(("quick", "paper"), ("latent", "bank", "mixture")):
        assert "certainty" not in presets[preset].domain
        wide = presets[f"{preset}/{variant}"]
        assert 0 < wide.domain["certainty"] <= 10 < (entry.settings.certainty or math.inf)
        assert dict(wide.domain) == {**presets[preset].domain, "certainty": wide.domain["certainty"]}


def check_moments(values, mean, variance):
    """Within 4 standard errors, of the mean and of the variance (for which those of a fourth moment)."""
    error = np.sqrt(variance / NUM)
    assert np.all(np.abs(values.mean(0) - mean) < 4 * error)
    spread = (values - mean) ** 2
    assert np.all(np.abs(spread.mean(0) - variance) < 4 * spread.std(0) / np.sqrt(NUM))


def test_simulators_have_the_variance_of_their_certainty():
    c = 4.0
    speeds = jax.vmap(road_racing.make_domain(certainty=c).sample_simulator)(KEYS).speeds
    check_moments(np.asarray(speeds, np.float64), 0.5, 0.25 / (c + 1))
    obstacle = jax.vmap(collision_avoidance.make_domain(certainty=c).sample_simulator)(KEYS).policy
    p = np.array([0.05, 0.9, 0.05])
    check_moments(np.asarray(obstacle, np.float64), p, p * (1 - p) / (c + 1))


def test_sysadmins_rows_have_the_variance_of_its_certainty():
    domain = sysadmin.make_domain(computers=2, certainty=10.0)
    s, a, failed = jnp.array([1, 1]), jnp.int32(0), jnp.array([0, 1])
    one = lambda key: jnp.exp(domain.sample_simulator(key).transition_log_prob(s, a, failed))
    p, c = 0.025, 10.0
    both = p * (1 - p)  # of independent rows: E[x^2] E[y^2] - E[x y]^2
    second = lambda p: p**2 + p * (1 - p) / (c + 1)
    variance = second(p) * second(1 - p) - both**2
    check_moments(np.asarray(jax.vmap(one)(KEYS), np.float64), both, variance)


def test_gridverse_walks_as_far_as_its_lengths_say():
    c, domain = 2.0, gridverse.make_domain(certainty=2.0)
    lengths = np.asarray(jax.vmap(domain.sample_simulator)(KEYS).lengths, np.float64)
    n = lengths.shape[1]
    assert n == 7 and np.allclose(lengths.sum(1), 1, atol=1e-5)
    check_moments(lengths, 1 / n, (1 / n) * (1 - 1 / n) / (c + 1))
    assert np.allclose(domain.expected_simulator.lengths, 1 / n)


@pytest.mark.parametrize("forward_length", [1, 4, 6])
def test_the_truth_of_gridverse_is_among_the_wide_simulators(forward_length):
    """All its mass on one length: the deterministic walk in every pose, at walls too."""
    truth = room.Walk(6, forward_length, noisy=False)
    lengths = (np.arange(-1, truth.reach + 1) == forward_length).astype(np.float32)
    simulator = room.Walk(6, forward_length, True, jnp.asarray(lengths))
    s = all_vectors((6, 6, 4))
    inside = s[np.all((s[:, :2] > 0) & (s[:, :2] < 5), axis=1)]
    log_prob = lambda D: jax.vmap(
        lambda s, t: jax.vmap(lambda a: D.transition_log_prob(s, a, t))(jnp.arange(3))
    )
    pairs = np.repeat(inside, len(s), axis=0), np.tile(s, (len(inside), 1))
    found, wanted = (np.exp(np.asarray(log_prob(D)(*map(jnp.asarray, pairs)))) for D in (simulator, truth))
    assert np.allclose(found, wanted, atol=1e-6)
    assert np.allclose(wanted.reshape(len(inside), len(s), 3).sum(1), 1, atol=1e-5)


def test_one_step_behind_stops_at_the_wall():
    """From the start, which has a wall behind it, stepping back stays; one cell on it does not."""
    back = room.Walk(6, 1, True, jnp.array([1.0, 0, 0, 0, 0, 0, 0]))
    here, on = jnp.array([1, 1, 1]), jnp.array([1, 2, 1])
    forward = jnp.int32(room.FORWARD)
    assert back.transition_log_prob(here, forward, here) == 0
    assert back.transition_log_prob(on, forward, here) == 0


def test_the_papers_gridverse_has_one_simulator():
    domain = gridverse.make_domain()
    drawn = domain.sample_simulator(prng.key(1))
    assert drawn is domain.expected_simulator and drawn.lengths is None
    assert DOMAINS["gridverse"].settings.certainty == 0
