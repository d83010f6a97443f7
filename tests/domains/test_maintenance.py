"""Maintenance is the example of the docs, built in."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import maintenance
from baddr.posteriors.factored import expected_dynamics

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("maintenance_example", ROOT / "examples" / "maintenance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_domain()


def test_it_is_the_example(example):
    """The second version: tables, prior, rewards and sizes."""
    domain = maintenance.make_domain()
    for ours, theirs in (
        (domain.pomdp.dynamics, example.pomdp.dynamics),
        (domain.expected_simulator, example.expected_simulator),
        (domain.counts, example.counts),
    ):
        np.testing.assert_allclose(ours.T, theirs.T, atol=1e-6)
        np.testing.assert_allclose(ours.O, theirs.O, rtol=1e-6)
    for s, a, s_next in np.ndindex(4, 3, 4):
        given = jnp.array([s], jnp.int32), jnp.int32(a), jnp.array([s_next], jnp.int32)
        assert domain.pomdp.reward(*given) == example.pomdp.reward(*given)
    assert (domain.pomdp.discount, domain.pomdp.horizon) == (example.pomdp.discount, example.pomdp.horizon)
    assert domain.learned == example.learned


def test_frequencies_of_the_wear():
    """4096 steps: within 4 standard errors of a half."""
    D, n = maintenance.make_domain().pomdp.dynamics, 4096
    s_next, o = jax.jit(jax.vmap(D.step, (0, None, None)))(
        jr.split(prng.key(0), n), jnp.array([1], jnp.int32), jnp.int32(0)
    )
    assert abs(np.mean(np.asarray(s_next) == 2) - 0.5) < 4 * 0.5 / n**0.5
    assert abs(np.mean(np.asarray(o) == 1) - 0.25) < 4 * (0.25 * 0.75 / n) ** 0.5


def test_the_graph_expects_what_the_tables_expect():
    domain = maintenance.make_domain(prior_wear=0.3)
    D, E = expected_dynamics(domain.graphs["default"]), domain.expected_simulator
    for s, a, s_next in np.ndindex(4, 3, 4):
        given = jnp.array([s], jnp.int32), jnp.int32(a), jnp.array([s_next], jnp.int32)
        one, other = (np.exp(float(x.transition_log_prob(*given))) for x in (D, E))
        assert one == pytest.approx(other, abs=1e-5)
