"""Particles: the numbers that are read off them, and how functions go over those of many runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baddr import prng
from baddr.core.particles import Particles, even_draws, mass_of, systematic_indices
from baddr.fast.loops import over_all


@pytest.mark.parametrize(
    ("weights", "size"), [([0.25] * 4, 4.0), ([1.0, 0.0, 0.0], 1.0), ([0.5, 0.25, 0.25], 8 / 3)]
)
def test_the_effective_sample_size_is_one_by_the_sum_of_squares(weights, size):
    belief = Particles(jnp.zeros((len(weights), 1)), jnp.log(jnp.array(weights)))
    assert float(belief.effective_sample_size()) == pytest.approx(size)


def test_the_mass_of_values_is_their_weighted_count():
    found = mass_of(jnp.array([2, 0, 2, 1]), jnp.array([0.1, 0.2, 0.3, 0.4]), 4)
    np.testing.assert_allclose(found, [0.2, 0.4, 0.4, 0.0], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 8, 100])
def test_equal_weights_are_resampled_once_each(n):
    """The comb has n teeth over all of the weights, wherever it starts."""
    for seed in range(5):
        found = systematic_indices(prng.key(seed), jnp.full((n,), 1 / n), n)
        np.testing.assert_array_equal(found, np.arange(n))


def test_even_draws_are_each_distributed_as_p():
    p, weights, keys = jnp.array([0.5, 0.0, 0.3, 0.2]), jnp.array([0.1, 0.5, 0.05, 0.35]), 4000
    draw = jax.jit(jax.vmap(lambda key: even_draws(key, p, weights)))
    found = np.asarray(draw(jax.random.split(prng.key(0), keys)))
    shares = np.stack([(found == value).mean(axis=0) for value in range(4)])
    error = np.sqrt(np.asarray(p * (1 - p)) / keys)[:, None]
    assert np.all(np.abs(shares - np.asarray(p)[:, None]) <= 4.5 * error)


@pytest.mark.parametrize("seed", range(3))
def test_even_draws_spread_the_weights_as_p_says(seed):
    """Of two values that are as likely, each pair has both. One by one they would be off by some .03."""
    weights = np.random.default_rng(seed).exponential(size=1024) ** 3
    weights /= weights.sum()
    drawn = np.asarray(even_draws(prng.key(seed), jnp.full(2, 0.5), jnp.asarray(weights, jnp.float32)))
    assert abs(weights @ drawn - 0.5) <= weights.max() / 2 + 1e-6


@pytest.mark.parametrize("empty", [(), (0,), (3, 0)])
def test_a_function_over_all_runs_is_a_vmap_over_them(empty):
    """Draws name particles of their own run, and some leaf may have no entries."""
    runs, particles, draws = 3, 4, 5
    thetas = {"w": jnp.arange(12.0).reshape(runs, particles), "none": jnp.zeros((runs, particles, *empty))}
    i = jnp.array([[0, 1, 2, 3, 0], [3, 3, 0, 1, 2], [2, 2, 2, 0, 1]], jnp.int32)
    x = jnp.arange(1.0 * runs * draws).reshape(runs, draws)

    def function(thetas, i, x):
        return thetas["w"][i] + 100 * x, thetas["none"][i]

    found, wanted = over_all(function)(thetas, i, x), jax.vmap(function)(thetas, i, x)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
