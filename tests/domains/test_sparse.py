"""Sparse tables and counts against dense ones: the same model, the same posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains.cassandra import make_domain, model
from baddr.posteriors import Dirichlet
from baddr.posteriors.sparse_dirichlet import SparseDirichlet

FILE = """discount: 0.9 values: reward states: 3 actions: 2 observations: 2 start: .5 .2 .3
E: 2
T: 0 .1 .2 .7  0 1 0  .25 .25 .5
T: 1 identity
O: 0 .9 .1  .4 .6  0 1
O: 1 uniform
R: 0 : 0 : 2 : * 4
R: 1 : * : * : * -2
R: 1 : 1 : 0 : * 3
"""
S, A, Z = 3, 2, 2
STEPS = [(0, 0, 1, 1), (1, 0, 1, 0), (1, 1, 1, 0), (0, 0, 2, 1), (0, 0, 1, 0), (0, 0, 1, 1)]  # (s, a, s', o)


@pytest.fixture(params=["TO", "T"])
def both(request, tmp_path, monkeypatch):
    """The same file as a domain of dense tables and as one of sparse ones."""
    path = tmp_path / "small.pomdp"
    path.write_text(FILE)
    dense = make_domain(str(path), prior_total=3.0, learned=request.param)
    monkeypatch.setattr(model, "LARGEST_COUNTS", 0)
    return dense, make_domain(str(path), prior_total=3.0, learned=request.param)


def every(function):
    """Of all (s, a, s'), and of all o where it takes one."""
    s, a = jnp.arange(S, dtype=jnp.int32), jnp.arange(A, dtype=jnp.int32)
    over = jax.vmap(jax.vmap(jax.vmap(function, (None, None, 0)), (None, 0, None)), (0, None, None))
    return np.asarray(over(s[:, None], a, s[:, None]))


def tables(D):
    T = every(D.transition_log_prob)
    O = [
        every(lambda s, a, n, o=o: D.observation_log_prob(s, a, n, jnp.array([o], jnp.int32)))
        for o in range(Z)
    ]
    return np.exp(T), np.exp(np.stack(O, -1))


def test_the_truth_and_the_prior_are_those_of_the_dense_domain(both):
    dense, sparse = both
    for of in (lambda d: d.pomdp.dynamics, lambda d: d.expected_simulator):
        for ours, theirs in zip(tables(of(sparse)), tables(of(dense)), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
    for name in ("reward", "is_terminal"):
        assert np.array_equal(every(getattr(sparse.pomdp, name)), every(getattr(dense.pomdp, name)))
    assert np.array_equal(sparse.pomdp.start, dense.pomdp.start)


def counted(kind, domain):
    posterior = kind(domain.counts, (S,), (Z,))
    theta = posterior.prior(prng.key(0))
    for s, a, s_next, o in STEPS:
        step = (
            jnp.array([s], jnp.int32),
            jnp.int32(a),
            jnp.array([s_next], jnp.int32),
            jnp.array([o], jnp.int32),
        )
        theta = posterior.update(prng.key(0), theta, *step)
    return posterior.dynamics(theta, posterior.draw(prng.key(0), theta))


def test_counts_of_steps_are_the_tables_counts(both):
    """p(s' | s, a) and p(o | a, s') after six steps, some of them the same."""
    dense, sparse = both
    for ours, theirs in zip(
        tables(counted(SparseDirichlet, sparse)), tables(counted(Dirichlet, dense)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("learned", [False, True])
def test_draws_come_as_often_as_their_probabilities_say(both, learned):
    """5,000 steps from each (s, a), 5 standard errors."""
    _, sparse = both
    n, D = 5_000, counted(SparseDirichlet, sparse) if learned else sparse.expected_simulator
    T, O = tables(D)
    draw = jax.jit(jax.vmap(D.step, (0, None, None)))
    for s, a in ((0, 0), (1, 1), (2, 0)):
        s_next, o = draw(jr.split(prng.key(s), n), jnp.array([s], jnp.int32), jnp.int32(a))
        joint = np.bincount(np.asarray(s_next[:, 0] * Z + o[:, 0]), minlength=S * Z).reshape(S, Z) / n
        p = T[s, a][:, None] * O[s, a]
        assert np.all(np.abs(joint - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-9)


def test_the_oldest_steps_are_forgotten_when_memory_is_full(both):
    _, sparse = both
    posterior = SparseDirichlet(sparse.counts, (S,), (Z,), memory=2)
    theta = posterior.prior(prng.key(0))
    update = eqx.filter_jit(posterior.update)
    for s in (0, 1, 2):
        where = jnp.array([s], jnp.int32)
        theta = update(prng.key(0), theta, where, jnp.int32(0), where, jnp.array([0], jnp.int32))
    assert sorted(theta.s.tolist()) == [1, 2] and int(theta.number) == 3
