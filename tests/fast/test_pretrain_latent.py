"""`Latent` from simulators: it recovers a family, knows how well, and is kept on disk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import exact, prng
from baddr.core.pomdp import Dynamics, Table
from baddr.domains import tiger
from baddr.fast.pretrain import uniform_states
from baddr.fast.pretrain_latent import (
    LatentFit,
    _begin,
    _untrained,
    architecture_of,
    cached_prior,
    measure_fit,
    prior_settings,
    shapes,
    train,
)
from baddr.posteriors.latent import Gaussian
from baddr.posteriors.settings import LatentSettings

SIZES = (tiger.SIZES[0], 3, tiger.SIZES[1])
DOMAIN = tiger.make_domain()
SMALL = LatentSettings(dimensions=2, hidden=16, simulators=64, steps=1536, batch_size=256, learning_rate=0.01)
STATES = uniform_states(tiger.SIZES[0])


class BlackBox(Dynamics):
    """A simulator of which nothing but samples can be had."""

    inside: Table

    def step(self, key, s, a):
        return self.inside.step(key, s, a)

    def observation_log_prob(self, s, a, s_next, o):
        raise NotImplementedError

    def log_prob(self, s, a, s_next, o):
        raise NotImplementedError


def black_box(key) -> BlackBox:
    return BlackBox(DOMAIN.sample_simulator(key))


@pytest.fixture(scope="module")
def trained():
    """On 64 simulators of tiger, of two numbers each: how well either door is heard."""
    told = []
    architecture = architecture_of(SMALL, SIZES, "TO")
    given = prng.key(0), DOMAIN.sample_simulator, architecture, SMALL, STATES
    return train(*given, lambda *news: told.append(news)), told


def accuracies(posterior, z):
    """Of both doors, at each z."""
    s, listen = jnp.arange(2, dtype=jnp.int32)[:, None], jnp.int32(tiger.LISTEN)
    D = lambda z: posterior.dynamics(posterior.start, z)
    one = lambda z: jax.vmap(lambda s: jnp.exp(D(z).observation_log_prob(s, listen, s, s)))(s)
    return np.asarray(jax.jit(jax.vmap(one))(z))


def test_a_family_of_two_numbers_is_recovered(trained):
    """Every simulator's accuracies are read off its z, and the prior over z is N(0, I)."""
    (posterior, z), told = trained
    key_simulators, *_ = jr.split(prng.key(0), 5)
    M = jax.vmap(DOMAIN.sample_simulator)(jr.split(key_simulators, 64))
    truth = np.asarray(M.O[:, tiger.LISTEN, (0, 1), (0, 1)])
    learned = accuracies(posterior, z)
    assert np.mean(np.abs(learned - truth)) < 0.03
    assert min(np.corrcoef(learned[:, i], truth[:, i])[0, 1] for i in (0, 1)) > 0.97
    assert np.all(posterior.start.mean == 0) and np.all(posterior.start.factor == np.eye(2))
    assert np.all(np.abs(np.asarray(z).mean(0)) < 1e-4)
    assert told[-1][:2] == (1536, 1536) and told[-1][2] < told[0][2]


def test_the_prior_has_the_moments_of_all_q_together():
    """In units of it, the means spread by less than 1 where q_m have a width of their own."""
    few = LatentSettings(dimensions=2, hidden=4, simulators=16, steps=0)
    given = prng.key(0), DOMAIN.sample_simulator, architecture_of(few, SIZES, "TO"), few
    _, _, looks = _begin(given[0], given[1], few)
    code = _untrained(given[0], looks, 16, *given[2:]).codes
    means, log_sd = (np.asarray(x, np.float64) for x in code.of(jnp.arange(16), looks))
    z = np.asarray(train(*given, STATES).z, np.float64)
    between = np.cov(means.T, bias=True)
    A = np.linalg.cholesky(between + np.diag(np.exp(2 * log_sd).mean(0)))
    expected = np.linalg.solve(A, np.linalg.solve(A, between).T)
    np.testing.assert_allclose(np.cov(z.T, bias=True), expected, atol=1e-4)


def test_its_predictions_after_listening_are_near_bayes(trained):
    """Def. 3 on tiger, of this small prior; that of the settings' own size is in docs/latent.md."""
    (posterior, _), _ = trained
    reference = exact.DirichletTables(*(np.asarray(x, np.float64) for x in DOMAIN.counts))
    ours = exact.Tabulated(posterior, DOMAIN.pomdp, num_keys=128)
    for n in (1, 4, 16):
        histories = [(s, ((tiger.LISTEN, s, s),) * n) for s in (0, 1)]
        assert exact.update_criterion_gap(ours, reference.evidence, histories) < 0.06


def test_the_fit_of_each_simulator_and_of_the_edge(trained):
    found, _ = trained
    fit = measure_fit(prng.key(0), DOMAIN.sample_simulator, found, SMALL, STATES)
    assert len(fit.gap) == 64 and not fit.failed.any() and np.abs(fit.gap).max() < 0.05
    assert np.all(np.diff(fit.distance) >= 0)
    bad = found._replace(z=found.z + 5.0)
    assert measure_fit(prng.key(0), DOMAIN.sample_simulator, bad, SMALL, STATES).gap.max() > 0.1


def test_a_black_box_is_enough():
    """The same samples, the same networks; but no entropy to compare with."""
    few = LatentSettings(hidden=4, simulators=8, steps=16, batch_size=32)
    architecture = architecture_of(few, SIZES, "TO")
    ours = train(prng.key(0), black_box, architecture, few, STATES)
    known = train(prng.key(0), DOMAIN.sample_simulator, architecture, few, STATES)
    assert all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(known), strict=True)
    )
    fit = measure_fit(prng.key(0), black_box, ours, few, STATES)
    assert np.all(np.isfinite(fit.cross_entropy)) and np.all(np.isnan(fit.gap)) and not fit.failed.any()


def test_a_trained_prior_is_kept_with_its_test(tmp_path):
    few = LatentSettings(hidden=4, simulators=8, steps=0)
    like, times = shapes(architecture_of(few, SIZES, "TO"), few, 8), []
    settings = prior_settings("tiger", {}, few, 0)

    def make():
        times.append("train")
        return jax.tree.map(lambda x: jnp.full(x.shape, 0.5, x.dtype), like)

    def test(found):
        times.append("test")
        return LatentFit(*(np.full(8, 0.25) for _ in range(3)), np.zeros(8, bool), np.arange(8.0))

    fetch = lambda: cached_prior(settings, like, make, test, tmp_path)
    _, tested = fetch()
    assert tested().gap[0] == 0.25
    again, tested = fetch()
    assert tested().distance[3] == 3 and times == ["train", "test"]
    assert eqx.tree_equal(again, make()) and isinstance(again.posterior.start, Gaussian)
    next(tmp_path.glob("*.npz")).write_bytes(b"")
    fetch()
    assert times == ["train", "test", "train", "train"]
    online = prior_settings("tiger", {}, LatentSettings(hidden=4, simulators=8, steps=0, model="expected"), 0)
    assert online == settings
