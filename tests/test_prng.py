import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng


@pytest.mark.parametrize(
    ("rounds", "key", "counter", "expected"),
    [  # known answers of the cipher's authors
        (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        (13, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
        (13, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xBA3E4725, 0xF27D669E)),
        (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        (20, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        (20, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(rounds, key, counter, expected):
    words = lambda pair: tuple(jnp.uint32(x) for x in pair)
    assert tuple(int(x) for x in prng.threefry(words(key), *words(counter), rounds)) == expected


def test_uniform_numbers_are_uniform():
    """Chi-square over 100 bins: mean 99, standard deviation 14.07; within 4 of them."""
    u = jr.uniform(prng.key(0), (100_000,))
    counts = np.histogram(np.asarray(u), bins=100, range=(0, 1))[0]
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert abs(chi_square - 99) < 4 * 14.07


@pytest.mark.parametrize("made", [prng.key, jax.random.key], ids=["ours", "JAX's"])
def test_pairs_of_uniform_numbers_are_uniform_and_independent(made):
    n, cells = 40_000, 8
    u = np.asarray(prng.uniform_pairs(made(3), n))
    assert u.shape == (2, n) and u.min() >= 0 and u.max() < 1
    seen = np.histogram2d(*u, bins=cells, range=[[0, 1], [0, 1]])[0]
    chi2 = np.sum((seen - n / cells**2) ** 2) / (n / cells**2)  # 63 degrees of freedom
    assert abs(chi2 - 63) < 4 * np.sqrt(2 * 63)


def test_splits_folds_and_bits_do_not_collide():
    key = prng.key(3)
    split = jr.key_data(jr.split(key, 1000))
    folded = jr.key_data(jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(1000)))
    assert len({tuple(row.tolist()) for row in np.concatenate([split, folded])}) == 2000


@pytest.mark.parametrize("n", [4, 100])  # counted, and searched
def test_categorical_draws_in_proportion(n):
    weights = jnp.where(jnp.arange(n) % 3 == 1, 0.0, 1.0 + jnp.arange(n, dtype=float))
    draws = jax.vmap(lambda k: prng.categorical(k, weights))(jr.split(prng.key(1), 50_000))
    p = np.asarray(weights / weights.sum())
    frequency = np.bincount(np.asarray(draws), minlength=n) / 50_000
    standard_error = np.sqrt(p * (1 - p) / 50_000)
    assert np.all(np.abs(frequency - p) <= 5 * standard_error)
    assert np.all(frequency[p == 0] == 0)


@pytest.mark.parametrize("n", [3, 100])
def test_categorical_never_draws_a_trailing_zero_weight(n):
    weights = jnp.zeros((n,)).at[0].set(1e-30)
    draws = jax.vmap(lambda k: prng.categorical(k, weights))(jr.split(prng.key(2), 2000))
    assert np.all(np.asarray(draws) == 0)


@pytest.mark.parametrize("values", [1, 3, 8, 9])
def test_running_sums_are_numpys(values):
    p = np.random.default_rng(values).random((5, values), np.float32)
    np.testing.assert_allclose(prng.running_sum(jnp.asarray(p)), np.cumsum(p, axis=1), rtol=1e-6)


def test_running_sums_of_many_values():
    """In a row, and in rows side by side: rounding adds up over a thousand of them."""
    p = np.random.default_rng(0).random((5, 1024), np.float32)
    expected = np.cumsum(p, axis=1, dtype=np.float64)
    np.testing.assert_allclose(prng.running_sum(jnp.asarray(p[0])), expected[0], rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(prng.running_sum)(jnp.asarray(p)), expected, rtol=1e-5)


def test_the_cipher_is_threefry_however_it_is_batched():
    """As one operation: alone, compiled, over keys, over counters, over both, along any axis."""
    words = np.random.default_rng(0).integers(0, 2**32, (4, 3, 5), np.uint32)
    k0, k1, x0, x1 = map(jnp.asarray, words)
    expected = np.stack(prng.threefry((k0, k1), x0, x1))
    cipher = lambda *words: jnp.stack(prng.cipher(words[:2], *words[2:]))
    assert np.array_equal(cipher(k0, k1, x0, x1), expected)
    assert np.array_equal(jax.jit(cipher)(k0, k1, x0, x1), expected)
    rows = jax.vmap(jax.vmap(cipher, out_axes=1), out_axes=1)
    assert np.array_equal(jax.jit(rows)(k0, k1, x0, x1), expected)
    columns = jax.vmap(cipher, in_axes=(1, 1, 1, 0), out_axes=2)
    assert np.array_equal(jax.jit(columns)(k0, k1, x0, x1.T), expected)
    one_key = jax.vmap(cipher, in_axes=(None, None, 0, None), out_axes=1)
    expected = np.stack(prng.threefry((k0[0, 0], k1[0, 0]), x0, jnp.broadcast_to(x1[0], x0.shape)))
    assert np.array_equal(jax.jit(one_key)(k0[0, 0], k1[0, 0], x0, x1[0]), expected)


@pytest.mark.parametrize("made", [prng.key, jr.key], ids=["ours", "JAX's"])
def test_gamma_variables_take_our_keys_and_others(made):
    """On a CPU they are those of `jax.random`, 0 where alpha is; and a program for a GPU can be made."""
    alpha = jnp.array([0.5, 0.0, 3.0])
    expected = jr.gamma(made(1), jnp.array([0.5, 1.0, 3.0]))
    np.testing.assert_array_equal(prng.gamma(made(1), alpha), expected.at[1].set(0))
    np.testing.assert_array_equal(prng.dirichlet(made(1), alpha + 1), jr.dirichlet(made(1), alpha + 1))
    draw = jax.jit(lambda alpha: prng.gamma(made(1), alpha))
    assert "func" in draw.trace(alpha).lower(lowering_platforms=("cuda",)).as_text()


def test_even_draws_are_each_distributed_as_p():
    p, weights, keys = jnp.array([0.5, 0.0, 0.3, 0.2]), jnp.array([0.1, 0.5, 0.05, 0.35]), 4000
    draw = jax.jit(jax.vmap(lambda key: prng.even_draws(key, p, weights)))
    found = np.asarray(draw(jax.random.split(prng.key(0), keys)))
    shares = np.stack([(found == value).mean(axis=0) for value in range(4)])
    error = np.sqrt(np.asarray(p * (1 - p)) / keys)[:, None]
    assert np.all(np.abs(shares - np.asarray(p)[:, None]) <= 4.5 * error)


@pytest.mark.parametrize("seed", range(3))
def test_even_draws_spread_the_weights_as_p_says(seed):
    """Of two values that are as likely, each pair has both. One by one they would be off by some .03."""
    weights = np.random.default_rng(seed).exponential(size=1024) ** 3
    weights /= weights.sum()
    drawn = np.asarray(prng.even_draws(prng.key(seed), jnp.full(2, 0.5), jnp.asarray(weights, jnp.float32)))
    assert abs(weights @ drawn - 0.5) <= weights.max() / 2 + 1e-6
