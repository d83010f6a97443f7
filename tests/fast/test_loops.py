"""The loops of a CPU compute what `vmap` does."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.fast.compiler import known_to_xla, options
from baddr.fast.loops import bytes_of, one_by_one, one_by_one_in_place, over_all, over_particles
from baddr.fast.tuning import CACHE
from baddr.planners.belief_tree.bounds import ManyRows, value_iteration


@pytest.mark.parametrize("n", [1, 7, 12, 64])
def test_over_particles_is_vmap(n):
    """Whatever the number of particles and the size of a block, arrays without entries included."""
    x, keys = jnp.arange(3.0 * n).reshape(n, 3), jr.split(prng.key(0), n)

    def function(key, x):
        return {"sum": jnp.sum(x) + jr.uniform(key), "nothing": jnp.zeros((0,)), "row": x}

    wanted = jax.vmap(function)(keys, x)
    for bytes_each in (1, CACHE // 6, 10 * CACHE):
        found = over_particles(function, bytes_each)(keys, x)
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert bytes_of(wanted) == 4 + 0 + 12


def test_runs_in_place_are_the_runs_one_by_one():
    """By NumPy: rows of the first argument turn into their squares plus b; the other results are sums."""
    first, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1, 2, 3], np.float32)
    square = one_by_one_in_place(lambda x, b: (x**2 + b, jnp.sum(x)))
    new, sums = jax.jit(square)(jnp.asarray(first), jnp.asarray(b))
    np.testing.assert_allclose(new, first**2 + b[:, None])
    np.testing.assert_allclose(sums, first.sum(axis=1))


def test_runs_one_by_one_are_vmap():
    x, keys = jnp.arange(12.0).reshape(3, 4), jr.split(prng.key(0), 3)
    function = lambda key, x: (jr.permutation(key, x), jnp.sum(x))
    found = jax.jit(one_by_one(function))(keys, x)
    jax.tree.map(np.testing.assert_array_equal, found, jax.vmap(function)(keys, x))


def test_draws_of_all_runs_are_taken_from_their_own_particles():
    """Over runs with 4 particles each: draw j of run r is of particle i[r, j] of run r. A leaf without
    entries, and parameters without leaves, are fine."""
    thetas = jnp.arange(24.0).reshape(2, 4, 3), jnp.zeros((2, 4, 0))
    i, other = jnp.array([[3, 0, 3], [1, 2, 0]], jnp.int32), jnp.array([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]])

    def function(thetas, i, other):
        return other[:, None] * thetas[0][i]

    found = over_all(function)(thetas, i, other)
    expected = np.stack([np.asarray(other)[r][:, None] * np.asarray(thetas[0])[r][i[r]] for r in range(2)])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(over_all(lambda thetas, i, other: other)((), i, other), other)


def test_sums_are_no_business_of_a_library():
    """Value iteration in 512 models is one function: a library's sum in its loop made it 30 times as slow.
    Products stay the library's, where there is one."""
    T, R = jnp.full((3, 2, 2, 512), 0.5), jnp.ones((3, 2, 512))

    def compiled(function, *arguments):
        jitted = jax.jit(function, compiler_options=options(1, True))
        return jitted.lower(*arguments).compile().as_text()

    by_sums = compiled(lambda T, R: value_iteration(ManyRows(T, R), 0.95, 30), T, R)
    assert "ynn_fusion" not in by_sums and "small_call" in by_sums
    if known_to_xla():
        assert "ynn_fusion" in compiled(jnp.dot, jnp.ones((256, 256)), jnp.ones((256, 256)))
