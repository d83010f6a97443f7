"""The parts of the life of many runs."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.fast.runs import if_any, pack


def test_packed_arrays_come_back():
    small = jnp.array([-128, 127], jnp.int8)
    numbers = jnp.array([1.5, -jnp.inf, jnp.nan]), small, jnp.array(0.1, jnp.bfloat16)
    tree = {"a": numbers, "b": (jnp.array(True), jnp.array([[-7], [2**31 - 1]]))}
    packed = pack(tree)
    assert packed.words.shape == (9,) and packed.words.dtype == jnp.int32
    after = packed.unpack()
    assert jax.tree.structure(after) == jax.tree.structure(tree)
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(tree), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_what_only_some_runs_need_is_computed_if_any_does():
    """A summary, under `vmap` as on a GPU: a branch, no select; zeros where a run does not need it."""
    function = lambda key, x: {"sum": jnp.sum(x) + jr.uniform(key), "twice": 2 * x}
    of_each = jax.vmap(lambda needed, key, x: if_any(function, needed, key, x))
    needed, keys = jnp.array([True, False, True]), jr.split(prng.key(0), 3)
    x = jnp.arange(6.0).reshape(3, 2)
    found, every = of_each(needed, keys, x), jax.vmap(function)(keys, x)
    for name, value in found.items():
        expected = np.where(np.asarray(needed).reshape(3, *[1] * (value.ndim - 1)), every[name], 0)
        np.testing.assert_allclose(value, expected)
    nobody = of_each(jnp.zeros(3, bool), keys, x)
    assert not any(np.any(value) for value in nobody.values())
    jaxpr = jax.make_jaxpr(of_each)(needed, keys, x)
    assert [e.primitive.name for e in jaxpr.eqns if e.primitive.name == "cond"] == ["cond"]
