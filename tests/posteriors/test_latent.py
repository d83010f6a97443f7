"""`Latent`: U against finite differences, a closed form and an exact grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import untrained_latent

from baddr import prng
from baddr.core.pomdp import Transition
from baddr.domains import tiger
from baddr.posteriors.dropout import log_prob_of
from baddr.posteriors.latent import (
    Gaussian,
    Latent,
    LatentNet,
    OfZ,
    Prediction,
    about,
    conditioned,
    moderated,
    scale_of,
    score,
)
from baddr.posteriors.settings import LatentSettings

SIZES = (3, 2)  # of features of unequal size
TIGER = (tiger.SIZES[0], 3, tiger.SIZES[1])


def random_theta(d: int, seed: int = 0, scale: float = 1.0) -> Gaussian:
    rng = np.random.default_rng(seed)
    factor = np.eye(d) + 0.3 * rng.normal(size=(d, d))
    return Gaussian(jnp.asarray(rng.normal(size=d), float), jnp.asarray(scale * factor, float))


def random_net(d: int, seed: int = 1) -> LatentNet:
    rng = np.random.default_rng(seed)
    array = lambda *shape: jnp.asarray(rng.normal(size=shape), float)
    layers = ((array(4, 5), array(5)), (array(5, 6), array(6)), (array(6, sum(SIZES)), array(sum(SIZES))))
    return LatentNet(layers, OfZ(array(d, 6), array(d, sum(SIZES))))


def test_the_jacobian_is_that_of_finite_differences():
    net, x, z, step = random_net(3), jnp.array([1.0, 0, -1, 2]), jnp.array([0.3, -0.2, 0.1]), 1e-3
    J = net.jacobian(net.hidden(x, z))
    for i in range(3):
        e = step * jnp.eye(3)[i]
        slope = (net.logits(x, z + e) - net.logits(x, z - e)) / (2 * step)
        np.testing.assert_allclose(J[i], slope, atol=5e-3)


def test_gradient_and_precision_where_theta_is_narrow():
    """There E[p] is p at the mean: the gradient is autodiff's, and F is J^T (diag p - p p^T) J, by loops."""
    net, theta = random_net(3), random_theta(3, scale=1e-3)
    x, y = jnp.array([1.0, 0, -1, 2]), jnp.array([2, 0], jnp.int32)
    g, F = score(Prediction(net, x, SIZES, y), theta)
    A = np.asarray(theta.factor, np.float64)
    gradient = jax.grad(lambda z: log_prob_of(net.logits(x, z), SIZES, y))(theta.mean)
    np.testing.assert_allclose(g, A.T @ np.asarray(gradient), rtol=1e-3, atol=1e-8)
    J, logits = np.asarray(net.jacobian(net.hidden(x, theta.mean))), np.asarray(net.logits(x, theta.mean))
    expected = np.zeros((3, 3))
    for values in (slice(0, 3), slice(3, 5)):
        p = np.exp(logits[values]) / np.exp(logits[values]).sum()
        expected += J[:, values] @ (np.diag(p) - np.outer(p, p)) @ J[:, values].T
    np.testing.assert_allclose(F, A.T @ expected @ A, rtol=1e-3, atol=1e-10)


def test_conditioning_adds_precisions():
    """Lambda' = Lambda + A^-T F A^-1 and mean' = mean + Lambda'^-1 A^-T g, by NumPy's inverses."""
    theta, rng = random_theta(4), np.random.default_rng(2)
    root, g = rng.normal(size=(4, 6)), rng.normal(size=4)
    after = conditioned(theta, jnp.asarray(g, float), jnp.asarray(root @ root.T, float))
    A = np.asarray(theta.factor, np.float64)
    precision = np.linalg.inv(A @ A.T) + np.linalg.inv(A).T @ root @ root.T @ np.linalg.inv(A)
    mean = theta.mean + np.linalg.solve(precision, np.linalg.inv(A).T @ g)
    np.testing.assert_allclose(after.factor @ after.factor.T, np.linalg.inv(precision), atol=1e-4)
    np.testing.assert_allclose(after.mean, mean, atol=1e-4)


def test_moderated_probabilities_are_expectations():
    """Of a logit ~ N(m, v): E[sigmoid], by 100,000 draws, and its slope."""
    rng = np.random.default_rng(3)
    for m, v in ((0.5, 0.6), (-1.0, 2.0), (2.0, 1.0)):
        draws = 1 / (1 + np.exp(-(m + np.sqrt(v) * rng.normal(size=100_000))))
        p, k, _ = moderated(jnp.array([[m, 0.0]]), jnp.array([[[np.sqrt(v), 0.0]]], float))
        assert abs(float(p[0, 0]) - draws.mean()) < 0.01
        slope = float(k[0, 0] * p[0, 0] * p[0, 1])
        assert abs(slope - np.mean(draws * (1 - draws))) < 0.02
    assert float(scale_of(jnp.zeros(()), jnp.zeros(()))) == 1


def test_a_certain_feature_leaves_theta_as_it_is():
    net = random_net(2)
    W, b = net.layers[-1]
    sure = eqx.tree_at(lambda n: n.layers[-1], net, (0 * W, b.at[1].set(200.0).at[4].set(200.0)))
    g, F = score(Prediction(sure, jnp.ones((4,)), SIZES, jnp.array([1, 1], jnp.int32)), random_theta(2))
    assert np.all(np.isfinite(g)) and np.abs(np.concatenate([np.ravel(g), np.ravel(F)])).max() < 1e-5


def hearing(slope: float = 0.8, rare: float = 0.0) -> LatentNet:
    """Listening in tiger, where the left door is heard with logit .5 - rare + slope z."""
    W = jnp.zeros((7, 2)).at[5, 0].set(4.0).at[6, 1].set(4.0)  # which door is in s'
    out = jnp.zeros((2, 3)).at[0, 0].set(0.25).at[0, 1].set(-0.25).at[1, 0].set(-0.25).at[1, 1].set(0.25)
    layers = ((W, jnp.zeros((2,))), (100 * jnp.eye(2), jnp.zeros((2,))), (out, jnp.array([-rare, 0, -30])))
    return LatentNet(layers, OfZ(jnp.zeros((1, 2)), jnp.zeros((1, 3)).at[0, 0].set(slope)))


def test_against_an_exact_grid_in_one_dimension():
    """tiger's left door heard n times: mean and deviation of z, and the predicted probability, against
    Bayes' rule on a grid of 4001 z."""
    posterior = untrained_latent(LatentSettings(dimensions=1, hidden=2), TIGER)
    start = Gaussian(jnp.zeros((1,)), jnp.eye(1))
    posterior = Latent(None, hearing(), start, posterior.architecture)
    s, listen = jnp.array([0], jnp.int32), jnp.int32(tiger.LISTEN)
    z = np.linspace(-6, 6, 4001)
    p = 1 / (1 + np.exp(-(0.5 + 0.8 * z)))
    heard = jax.vmap(lambda z: posterior.dynamics(start, z).observation_log_prob(s, listen, s, s))
    np.testing.assert_allclose(np.exp(heard(jnp.asarray(z[::500, None], float))), p[::500], atol=1e-4)
    weights, theta = np.exp(-(z**2) / 2), start
    update = jax.jit(lambda theta, o: posterior.update(prng.key(0), theta, s, listen, s, o))
    for o in (0, 0, 1, 0, 0, 0, 1, 0, 0, 0):
        theta = update(theta, jnp.array([o], jnp.int32))
        weights = weights * (p if o == 0 else 1 - p)
        weights = weights / weights.sum()
        mean = np.sum(weights * z)
        sd = np.sqrt(np.sum(weights * (z - mean) ** 2))
        assert abs(float(theta.mean[0]) - mean) < 0.05 and abs(abs(float(theta.factor[0, 0])) / sd - 1) < 0.06
        normal = np.exp(-((z - float(theta.mean[0])) ** 2) / (2 * float(theta.factor[0, 0]) ** 2))
        assert abs(np.sum(normal * p) / normal.sum() - np.sum(weights * p)) < 0.015


def test_gaussians_about_simulators_have_the_moments_of_the_prior():
    z = np.random.default_rng(0).exponential(size=(300, 3)) @ np.array(
        [[1, 0.5, 0], [0, 2, 0.3], [0, 0, 0.7]]
    )
    mean, factor = (np.asarray(x, np.float64) for x in about(jnp.asarray(z, float), 0.4))
    np.testing.assert_allclose(mean.mean(0), 0, atol=1e-5)
    within = np.einsum("mij,mkj->ik", factor, factor) / len(z)
    np.testing.assert_allclose(np.cov(mean.T, ddof=0) + within, np.eye(3), atol=1e-4)


def test_each_particle_starts_about_a_simulator():
    posterior = untrained_latent(LatentSettings(dimensions=2, hidden=4), TIGER)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), float)
    posterior = eqx.tree_at(lambda latent: latent.start, posterior, about(z, 0.4))
    drawn = jax.vmap(posterior.prior)(jr.split(prng.key(0), 400))
    found, times = np.unique(np.asarray(drawn.mean), axis=0, return_counts=True)
    np.testing.assert_array_equal(found, np.unique(np.asarray(about(z, 0.4).mean), axis=0))
    assert np.all(np.abs(times - 80) < 4 * np.sqrt(400 * 0.2 * 0.8))  # 4 standard errors


def test_narrow_gaussians_learn_what_is_rare():
    """Most simulators hardly ever sound left, some do. After a sound from the left, the chance of the next:
    by Bayes' rule over all simulators, by Gaussians about them that are weighed, and by one Gaussian."""
    exact = -1 - np.log((np.arange(512) + 0.5) / 512)  # of an exponential distribution: mean 0, variance 1
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    posterior = untrained_latent(LatentSettings(dimensions=1, hidden=2), TIGER)
    start = Gaussian(jnp.zeros((1,)), jnp.eye(1))
    posterior = Latent(None, hearing(slope=2.0, rare=4.0), start, posterior.architecture)
    s, listen = jnp.array([0], jnp.int32), jnp.int32(tiger.LISTEN)
    update = jax.jit(jax.vmap(lambda theta: posterior.update(prng.key(0), theta, s, listen, s, s)))

    def chance(theta: Gaussian) -> np.ndarray:
        """Of a sound from the left, under each Gaussian."""
        z = np.asarray(theta.mean) + np.abs(np.asarray(theta.factor)[:, 0]) * nodes[None]
        return sigmoid(0.5 - 4 + 2 * z) @ weights / weights.sum()

    p = sigmoid(0.5 - 4 + 2 * exact)
    np.testing.assert_allclose(exact.mean(), 0, atol=0.01)
    truth = np.sum(p * p) / np.sum(p)
    errors = []
    for width in (0.3, 1.0):
        start = about(jnp.asarray(exact[:, None], float), width)
        before = chance(start)
        after = np.sum(before * chance(update(start))) / np.sum(before)
        errors.append(abs(after - truth))
    assert errors[0] < 0.03 < 0.1 < errors[1], (truth, errors)


@pytest.mark.parametrize("networks", ["T", "O"])
def test_a_network_that_is_left_out_is_asked_for_in_a_sentence(networks):
    posterior = untrained_latent(LatentSettings(hidden=4), TIGER, networks)
    D = posterior.dynamics(posterior.start, posterior.start.mean)
    s, a = jnp.array([0], jnp.int32), jnp.int32(0)
    with pytest.raises(ValueError, match="give that half of D through Partial"):
        D.logits_O(s, a, s) if networks == "T" else D.logits_T(s, a)


def test_a_network_of_no_z_teaches_nothing():
    """Observations that are the same for all z are no part of U."""
    posterior = untrained_latent(LatentSettings(hidden=4, learn_observation=False), TIGER)
    assert posterior.O is not None and posterior.O.of_z is None
    s = jnp.array([0], jnp.int32)
    [prediction] = posterior.predictions(Transition(s, jnp.int32(2), s, s))
    assert prediction.net is posterior.T


def test_draws_have_the_moments_of_theta():
    posterior, theta = untrained_latent(LatentSettings(dimensions=2, hidden=4), TIGER), random_theta(2)
    z = np.asarray(jax.vmap(lambda key: posterior.draw(key, theta))(jr.split(prng.key(0), 4000)))
    covariance = np.asarray(theta.factor @ theta.factor.T)
    se = np.sqrt(np.diag(covariance) / 4000)
    assert np.all(np.abs(z.mean(0) - np.asarray(theta.mean)) < 4 * se)
    np.testing.assert_allclose(np.cov(z.T), covariance, atol=4 * 1.5 * covariance.max() / np.sqrt(4000))


def test_settings_are_checked():
    assert LatentSettings().problems() == []
    wrong = LatentSettings(dimensions=0, hidden=0, layers=1, simulators=1, beta=0.0)
    assert len(wrong.problems()) == 5
    assert len(LatentSettings(learn_transition=False, learn_observation=False).problems()) == 1


def test_the_spread_of_z_is_that_of_the_mixture():
    """By the law of total variance, in numpy."""
    from baddr.posteriors.moments import latent_moments

    rng = np.random.default_rng(0)
    mean, factor, w = rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 3)), rng.dirichlet(np.ones(5))
    found = latent_moments(Gaussian(jnp.asarray(mean), jnp.asarray(factor)), jnp.asarray(w))
    covariance = np.einsum("n,nij,nkj->ik", w, factor, factor) + np.cov(mean.T, aweights=w, ddof=0)
    np.testing.assert_allclose(found[0], w @ mean, rtol=1e-5)
    np.testing.assert_allclose(found[1], np.sqrt(np.diag(covariance)), rtol=1e-5)
