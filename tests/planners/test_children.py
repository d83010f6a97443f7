"""The map from (h, a) and o to a child, against a Python dictionary."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.particles import Particles, uniform_weights
from baddr.domains import tiger
from baddr.planners import children
from baddr.planners.children import DenseChildren, HashedChildren, no_children
from baddr.planners.tree_search import TreeSearch


@eqx.filter_jit
def insert_all(table, entries, observations):
    """Find, and make where new, one after the other, as `search` does: what was found, and what was made."""

    def one(carry, x):
        table, size = carry
        entry, o = x
        known, slot = table.find(entry, o)
        table, _, grown = table.put(slot[None], entry[None], o[None], (known == 0)[None], size)
        return (table, grown), (known, grown > size)

    return jax.lax.scan(one, (table, jnp.int32(1)), (entries, observations))


@pytest.mark.parametrize("sizes, kind", [((3, 2), DenseChildren), ((4,) * 24, HashedChildren)])
def test_children_are_those_of_a_dictionary(sizes, kind):
    num_nodes, num_actions, rng = 600, 3, np.random.default_rng(0)
    table = no_children(num_nodes, num_actions, sizes)
    assert isinstance(table, kind)
    few = rng.integers(0, np.asarray(sizes), (40, len(sizes)))  # so that each comes back several times
    entries = rng.integers(0, 20, 599)
    observations = few[rng.integers(0, 40, 599)]
    _, (known, made) = insert_all(
        table, jnp.asarray(entries, jnp.int32), jnp.asarray(observations, jnp.int32)
    )

    seen: dict = {}
    for i, name in enumerate(zip(entries, map(tuple, observations), strict=True)):
        assert known[i] == seen.get(name, 0) and made[i] == (name not in seen)
        seen.setdefault(name, len(seen) + 1)
    assert len(seen) > 100


def test_equal_hashes_do_not_mix_observations(monkeypatch):
    """With one hash for everything, a window's worth of children is found exactly; the rest is not made."""
    monkeypatch.setattr(children, "_hash", lambda entry, o: jnp.uint32(7))
    n = children.WINDOW + 4
    table = no_children(64, 2, (9,) * 3)
    observations = jnp.stack([jnp.arange(n) % 9, jnp.arange(n) // 9, jnp.arange(n) * 0], 1).astype(jnp.int32)
    twice = jnp.concatenate([observations, observations])
    _, (known, made) = insert_all(table, jnp.zeros((2 * n,), jnp.int32), twice)
    full = np.where(np.arange(n) < children.WINDOW, np.arange(n) + 1, 0)
    np.testing.assert_array_equal(known, np.concatenate([np.zeros(n), full]))
    np.testing.assert_array_equal(made[:n], full > 0)
    assert not np.any(made[n:])


def test_a_search_is_the_same_with_either(monkeypatch):
    """The tree of a hashed search is the dense one's, node for node."""
    pomdp = tiger.make_domain().pomdp
    states = jnp.arange(2, dtype=jnp.int32)[None, :, None].repeat(4, 0)
    belief = Particles(states, jnp.broadcast_to(uniform_weights(2), (4, 2)))

    def planned():
        how = TreeSearch(num_simulations=256, exploration=100.0, depth=30)
        plan = eqx.filter_jit(lambda keys: how.plan(keys, pomdp, belief, jnp.full((4,), 30)))
        return plan(jr.split(prng.key(0), 4))

    dense = planned()
    monkeypatch.setattr(children, "MOST_DENSE", 0)
    for x, y in zip(dense, planned(), strict=True):
        np.testing.assert_array_equal(x, y)
