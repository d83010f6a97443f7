"""DPFRL and A2C: each formula against an independent NumPy version, learning against known optima."""

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from baddr import load_results, prng
from baddr.agents.learners import A2C, advance, evaluate, start
from baddr.agents.learners.a2c import _gradient
from baddr.agents.learners.actor_critic import GRU, ActorCritic, Seen
from baddr.agents.learners.dpfrl import (
    PFGRU,
    Latent,
    ParticleFilter,
    SlotNorm,
    sample_ancestors,
    soft_resample,
)
from baddr.agents.learners.encoders import GridEncoder, OneHotEncoder, make_encoder
from baddr.agents.learners.loss import a2c_loss, descend, n_step_targets, optimizer
from baddr.agents.learners.settings import DPFRL
from baddr.cli import main
from baddr.core.pomdp import POMDP
from baddr.domains import catalog, tiger
from baddr.errors import UserError
from baddr.lab.build import build_domain
from baddr.lab.experiment import preset

B, K, H, X, F = 3, 4, 5, 6, 7  # all different: a wrong axis cannot pass
TINY = DPFRL(
    num_particles=3,
    actors=4,
    sample_length=2,
    back_segments=3,
    hidden=6,
    observation_width=5,
    action_width=4,
    features=7,
)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Slot by slot: the statistics of particle k are over environments and numbers."""
    out = np.empty_like(x)
    for k in range(x.shape[1]):
        values = x[:, k]
        out[:, k] = (values - values.mean()) / np.sqrt(values.var() + 1e-5) * scale[k] + shift[k]
    return out


class Remember(POMDP):
    """A bit is shown, then hidden; an action (0, 1) that names it at the second step earns 1.

    With a horizon above 2 there is nothing more to do."""

    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(2, 3))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(3,))
    num_actions: int = eqx.field(static=True, default=2)
    discount: float = eqx.field(static=True, default=0.5)
    horizon: int = eqx.field(static=True, default=2)

    def initial_state(self, key):
        return jnp.stack([jr.bernoulli(key).astype(jnp.int32), jnp.int32(0)])

    def initial_observation(self, key, s):
        return s[:1]

    def step(self, key, s, a):
        return s.at[1].set(jnp.minimum(s[1] + 1, 2)), jnp.array([2], jnp.int32)

    def reward(self, s, a, s_next):
        return jnp.where((s[1] == 1) & (a == s[0]), 1.0, 0.0)

    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


# The cells and features.


def test_pf_gru_is_the_specified_one():
    cell = PFGRU(prng.key(0), X, H, K)
    scale, shift = random(1, K), random(2, K)
    cell = eqx.tree_at(lambda c: (c.norm.scale, c.norm.shift), cell, (jnp.asarray(scale), jnp.asarray(shift)))
    cell = eqx.tree_at(lambda c: c.gates.bias, cell, jnp.asarray(random(3, 2 * H)))
    noise, h, x = random(4, B, K, H), random(5, B, K, H), random(6, B, X)

    W, b = np.asarray(cell.gates.weight), np.asarray(cell.gates.bias)
    W_n, b_n = np.asarray(cell.candidate.weight), np.asarray(cell.candidate.bias)
    n, z = np.empty_like(h), np.empty_like(h)
    for i, k in itertools.product(range(B), range(K)):
        gates = sigmoid(np.concatenate([h[i, k], x[i]]) @ W + b)
        z[i, k], r = gates[:H], gates[H:]
        mu_v = np.concatenate([r * h[i, k], x[i]]) @ W_n + b_n
        n[i, k] = mu_v[:H] + noise[i, k] * np.log1p(np.exp(mu_v[H:]))
    expected = (1 - z) * np.maximum(norm(n, scale, shift), 0) + z * h
    got = cell(jnp.asarray(noise), jnp.asarray(h), jnp.asarray(x))
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_slot_norm_takes_statistics_over_environments_and_numbers():
    layer = SlotNorm(K)
    x = 3 * random(0, B, K, H) + random(1, 1, K, 1)
    y = np.asarray(layer(jnp.asarray(x)))
    np.testing.assert_allclose(y.mean(axis=(0, 2)), np.zeros(K), atol=1e-6)
    np.testing.assert_allclose(y.std(axis=(0, 2)), np.ones(K), atol=1e-4)
    assert layer.scale.shape == layer.shift.shape == (K,)
    np.testing.assert_allclose(y, norm(x, np.ones(K), np.zeros(K)), atol=1e-5)


def small_filter() -> ParticleFilter:
    layer = ParticleFilter(prng.key(1), X, DPFRL(num_particles=K, hidden=H, features=F))
    norms = jnp.asarray(random(11, K)), jnp.asarray(random(12, K))
    return eqx.tree_at(lambda f: (f.moments_norm.scale, f.moments_norm.shift), layer, norms)


def test_the_beliefs_features_are_the_specified_ones():
    layer = small_filter()
    h, w = random(2, B, K, H), np.random.default_rng(3).dirichlet(np.ones(K), B).astype(np.float32)
    got = layer.belief(Latent(jnp.asarray(h), jnp.log(jnp.asarray(w))))
    M = np.asarray(layer.moments)
    features = np.maximum(
        norm(h @ M, np.asarray(layer.moments_norm.scale), np.asarray(layer.moments_norm.shift)), 0
    )
    both = np.concatenate([(w[..., None] * h).sum(1), (w[..., None] * features).sum(1)], axis=-1)
    expected = np.maximum(both @ np.asarray(layer.summary.weight) + np.asarray(layer.summary.bias), 0)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_a_step_of_the_filter_weighs_then_resamples():
    layer = small_filter()
    h, x = jnp.asarray(random(4, B, K, H)), jnp.asarray(random(5, B, X))
    log_w = jnp.asarray(np.log(np.random.default_rng(6).dirichlet(np.ones(K), B)).astype(np.float32))
    key = prng.key(7)
    latent, ancestors = layer.step(key, Latent(h, log_w), x)
    np.testing.assert_allclose(np.exp(latent.log_w).sum(1), np.ones(B), rtol=1e-6)

    h_next = np.asarray(layer.cell(jr.normal(jr.split(key)[0], h.shape), h, x))
    W, b = np.asarray(layer.likelihood.weight), np.asarray(layer.likelihood.bias)
    for i in range(B):
        fits = [np.concatenate([h_next[i, k], x[i]]) @ W + b for k in range(K)]
        log_p = np.asarray(log_w)[i] + np.array(fits)[:, 0]
        p = np.exp(log_p) / np.exp(log_p).sum()
        chosen = np.asarray(ancestors)[i]
        w = p[chosen] / (0.9 * p[chosen] + 0.1 / K)
        np.testing.assert_allclose(np.exp(latent.log_w[i]), w / w.sum(), rtol=1e-4)
        np.testing.assert_array_equal(latent.h[i], h_next[i, chosen])

    again, _ = layer.step(key, Latent(h, log_w), x, ancestors)
    jax.tree.map(np.testing.assert_array_equal, latent, again)


def test_gru_is_the_specified_one():
    cell = GRU(prng.key(2), X, DPFRL(hidden=H))
    h, x = random(1, B, H), random(2, B, X)
    W, b = np.asarray(cell.gates.weight), np.asarray(cell.gates.bias)
    W_n, b_n = np.asarray(cell.candidate.weight), np.asarray(cell.candidate.bias)
    z, r = np.split(sigmoid(np.concatenate([h, x], -1) @ W + b), 2, axis=-1)
    expected = (1 - z) * np.tanh(np.concatenate([r * h, x], -1) @ W_n + b_n) + z * h
    got, _ = cell.step(prng.key(0), jnp.asarray(h), jnp.asarray(x))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


# Soft resampling.


def test_soft_resampling_is_unbiased_before_normalisation():
    """E[1/K sum_i p(k_i)/q(k_i) f(k_i)] = sum_k p(k) f(k): 100,000 draws, and K^K cases one by one."""
    alpha, n = 0.9, 100_000
    p, f = np.array([0.05, 0.6, 0.05, 0.3]), np.array([-1.0, 2.0, 5.0, 0.5])
    q = alpha * p + (1 - alpha) / K
    log_w = jnp.broadcast_to(jnp.log(jnp.asarray(p, jnp.float32)), (n, K))
    ancestors = np.asarray(sample_ancestors(prng.key(0), log_w, alpha))
    counts = np.bincount(ancestors.ravel(), minlength=K) / ancestors.size
    assert np.all(np.abs(counts - q) < 4 * np.sqrt(q * (1 - q) / ancestors.size))
    estimates = (p / q * f)[ancestors].mean(1)
    standard_error = estimates.std() / np.sqrt(n)
    assert standard_error < 0.005
    assert abs(estimates.mean() - p @ f) < 4 * standard_error

    cases = np.array(list(itertools.product(range(K), repeat=K)))
    chances = q[cases].prod(1)
    assert chances @ (p / q * f)[cases].mean(1) == pytest.approx(p @ f)
    repeated = jnp.broadcast_to(log_w[0], cases.shape)
    h = jnp.broadcast_to(jnp.asarray(f, jnp.float32)[:, None], (*cases.shape, 1))
    h_next, log_w_next = soft_resample(h, repeated, jnp.asarray(cases, jnp.int32), alpha)
    w = (p / q)[cases]
    np.testing.assert_allclose(np.exp(log_w_next), w / w.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(h_next[..., 0], f.astype(np.float32)[cases])


def normalised_bias(num_particles: int, share: float = 0.8, alpha: float = 0.9) -> float:
    """Of the normalised weights' mean, exactly: half of the particles have `share` of the weight, f = 1 there
    and 0 elsewhere, so an outcome is the number of draws from that half, which is binomial."""
    half = num_particles // 2
    log_w = jnp.log(jnp.repeat(jnp.array([share, 1 - share]) / half, half))
    outcomes = num_particles + 1
    drawn = jnp.arange(outcomes, dtype=jnp.int32)[:, None]
    ancestors = jnp.where(jnp.arange(num_particles, dtype=jnp.int32)[None] < drawn, 0, half)
    h = jnp.broadcast_to((log_w > log_w[-1]).astype(jnp.float32)[:, None], (outcomes, num_particles, 1))
    repeated = jnp.broadcast_to(log_w, (outcomes, num_particles))
    h_next, log_w_next = soft_resample(h, repeated, ancestors, alpha)
    estimates = np.sum(np.exp(np.asarray(log_w_next, np.float64)) * np.asarray(h_next)[..., 0], axis=1)
    q = alpha * share + (1 - alpha) / 2
    n = num_particles
    chances = [math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(outcomes)]
    return float(np.dot(chances, estimates) - share)


def test_after_normalisation_the_bias_falls_as_one_over_k():
    """The bias times K tends to -Var(w f - w E f)'s leading term: ratios of successive biases tend to 1/2."""
    biases = [normalised_bias(n) for n in (16, 32, 64)]
    assert abs(biases[0]) > 1e-3
    assert biases[1] / biases[0] == pytest.approx(0.5, abs=0.03)
    assert biases[2] / biases[1] == pytest.approx(0.5, abs=0.02)


def test_soft_resampling_at_its_two_ends():
    p = np.random.default_rng(0).dirichlet(np.ones(K), B).astype(np.float32)
    ancestors = sample_ancestors(prng.key(1), jnp.log(jnp.asarray(p)), 0.5)
    h = jnp.asarray(random(2, B, K, H))
    _, log_w = soft_resample(h, jnp.log(jnp.asarray(p)), ancestors, 1.0)  # drawn from p: all weigh the same
    np.testing.assert_allclose(np.exp(log_w), np.full((B, K), 1 / K), rtol=1e-5)
    _, log_w = soft_resample(h, jnp.log(jnp.asarray(p)), ancestors, 0.0)  # drawn uniformly: p
    w = np.take_along_axis(p, np.asarray(ancestors), 1)
    np.testing.assert_allclose(np.exp(log_w), w / w.sum(1, keepdims=True), rtol=1e-5)


def test_soft_resampling_has_the_gradient_of_its_formula():
    """Against central differences in double precision, of particles and log-weights both."""
    alpha = 0.9
    ancestors = np.array([[0, 0, 2, 1], [3, 2, 2, 2], [1, 1, 1, 1]])
    h, log_w, c, d = random(0, B, K, H), random(1, B, K), random(2, B, K, H), random(3, B, K)

    def numpy_version(h, log_w):
        p = np.exp(log_w)
        w = np.take_along_axis(p / (alpha * p + (1 - alpha) / K), ancestors, 1)
        gathered = np.take_along_axis(h, ancestors[..., None], 1)
        return np.sum(gathered * c) + np.sum(np.log(w / w.sum(1, keepdims=True)) * d)

    def ours(h, log_w):
        h, log_w = soft_resample(h, log_w, jnp.asarray(ancestors, jnp.int32), alpha)
        return jnp.sum(h * c) + jnp.sum(log_w * d)

    got = jax.grad(ours, argnums=(0, 1))(jnp.asarray(h), jnp.asarray(log_w))
    inputs = [h.astype(np.float64), log_w.astype(np.float64)]
    for which in range(2):
        expected = np.zeros_like(inputs[which])
        for index in np.ndindex(expected.shape):
            sides = []
            for sign in (1, -1):
                moved = [x.copy() for x in inputs]
                moved[which][index] += sign * 1e-5
                sides.append(numpy_version(*moved))
            expected[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(got[which], expected, rtol=1e-3, atol=1e-5)


# The loss and the optimiser.


def test_n_step_targets_of_a_table_by_hand():
    """gamma .5. First actor: no end. Second: an end at step 1. Third: an end at the last step."""
    r = jnp.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]])
    ended = jnp.array([[False, False, False], [False, True, False], [False, False, True]])
    R = n_step_targets(r, ended, jnp.array([8.0, 8.0, 8.0]), 0.5)
    expected = [[4.0, 2.0, 3.0], [6.0, 2.0, 4.0], [8.0, 8.0, 4.0]]
    np.testing.assert_allclose(R, expected)


def test_the_loss_and_its_gradient():
    logits, value, R = random(0, 2, 3, 4), random(1, 2, 3), random(2, 2, 3)
    a = np.random.default_rng(3).integers(4, size=(2, 3)).astype(np.int32)
    settings = DPFRL(critic_coefficient=0.7, actor_coefficient=1.3, entropy_coefficient=0.2)
    pi = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    log_pi = np.take_along_axis(np.log(pi), a[..., None], -1)[..., 0]
    advantage, entropy = R - value, -(pi * np.log(pi)).sum(-1)
    expected = 0.7 * (advantage**2).mean() - 1.3 * (advantage * log_pi).mean() - 0.2 * entropy.mean()
    arguments = jnp.asarray(logits), jnp.asarray(value), jnp.asarray(a), jnp.asarray(R)
    assert a2c_loss(*arguments, settings) == pytest.approx(expected, rel=1e-5)
    by_value = jax.grad(a2c_loss, argnums=1)(*arguments, settings)  # the actor's part holds R - V fixed
    np.testing.assert_allclose(by_value, -2 * 0.7 * advantage / 6, rtol=1e-4)
    by_logits = jax.grad(a2c_loss)(*arguments, replace(settings, entropy_coefficient=0.0))
    np.testing.assert_allclose(by_logits, -1.3 * advantage[..., None] * (np.eye(4)[a] - pi) / 6, atol=1e-6)


def test_rmsprop_has_epsilon_outside_of_the_root():
    settings = DPFRL(decay=0.9, epsilon=0.5, max_gradient_norm=1e6)
    w = {"a": jnp.ones((2,)), "b": jnp.array(3.0)}
    state = optimizer(settings).init(w)
    plain = {"a": (np.ones(2), np.zeros(2)), "b": (np.array(3.0), np.array(0.0))}
    for step in range(3):
        g = {"a": random(step, 2), "b": random(10 + step)}
        w, state = descend(w, state, jax.tree.map(jnp.asarray, g), jnp.float32(0.1), settings)
        for name, (x, square) in plain.items():
            square = 0.9 * square + 0.1 * g[name] ** 2
            plain[name] = (x - 0.1 * g[name] / (np.sqrt(square) + 0.5), square)
    for name, (x, _) in plain.items():
        np.testing.assert_allclose(w[name], x, rtol=1e-5)


@pytest.mark.parametrize(("max_norm", "share"), [(2.5, 0.5), (5.1, 1.0)])
def test_clipping_is_by_the_norm_over_all_weights(max_norm, share):
    """A gradient of norm 5. With no decay v is g^2: it shows the gradient that RMSProp was given."""
    g = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    settings = DPFRL(decay=0.0, epsilon=2.0, max_gradient_norm=max_norm)
    w, _ = descend(g, optimizer(settings).init(g), g, jnp.float32(1.0), settings)
    moved = lambda x: share * x / (share * x + 2.0)
    np.testing.assert_allclose(w["a"], [3.0 - moved(3.0), 0.0], rtol=1e-5)
    np.testing.assert_allclose(w["b"], [[4.0 - moved(4.0)]], rtol=1e-5)


# The network.


def test_size_and_start_of_the_recommended_network():
    """By hand: encoders 4,416 + 256; gates and candidate 257 x 256 each; likelihood 257; moments 128 x 256;
    norms 4 K = 120; summary 385 x 128; heads 129 x 4."""
    network = ActorCritic(prng.key(0), tiger.make_domain().pomdp, DPFRL())
    sizes = [x.size for x in jax.tree.leaves(network)]
    assert sum(sizes) == 4416 + 256 + 2 * 257 * 256 + 257 + 128 * 256 + 120 + 385 * 128 + 129 * 4
    weight = np.asarray(network.memory.cell.candidate.weight)  # 65,536 numbers ~ N(0, 2 / 256)
    assert abs(weight.std() / np.sqrt(2 / 256) - 1) < 4 / np.sqrt(2 * weight.size)
    assert not np.any(np.asarray(network.actor.bias)) and np.std(network.actor.weight) > 0.1
    latent = network.start(2)
    assert latent.h.shape == (2, 30, 128) and not np.any(latent.h) and not np.any(latent.log_w)


@pytest.mark.parametrize("particles", [True, False])
def test_no_gradient_crosses_an_episodes_end(particles):
    network = ActorCritic(prng.key(0), Remember(), TINY, particles)
    latent = jax.tree.map(lambda x: x + 0.5, network.start(4))
    o, a = jnp.array([[0], [1], [2], [0]], jnp.int32), jnp.array([1, 0, 1, 1], jnp.int32)
    first = jnp.array([True, False, True, False])

    @jax.jit
    @jax.grad
    def gradients(latent):
        logits, value = network.heads(network.step(prng.key(1), latent, Seen(o, a, first))[0])
        return jnp.sum(logits) + jnp.sum(value**2)

    for gradient in jax.tree.leaves(gradients(latent)):
        reached = np.abs(np.asarray(gradient).reshape(4, -1)).max(1) > 0
        assert list(reached) == [False, True, False, True]


def test_an_episode_starts_with_action_zero_or_with_none():
    seen = Seen(jnp.zeros((2, 1), jnp.int32), jnp.array([1, 1], jnp.int32), jnp.array([True, False]))
    network = ActorCritic(prng.key(0), Remember(), TINY)
    W = np.maximum(np.asarray(network.action_encoder.weight), 0)
    np.testing.assert_allclose(network.inputs(seen)[:, -4:], W[[0, 1]])
    network = ActorCritic(prng.key(0), Remember(), replace(TINY, start_action="none"))
    np.testing.assert_allclose(network.inputs(seen)[:, -4:], np.stack([np.zeros(4), W[1]]))


def test_onehot_encoder():
    encoder = OneHotEncoder(prng.key(0), (2, 3), 4)
    o = jnp.array([[1, 2], [0, 0]], jnp.int32)
    x = np.array([[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]])
    hidden = np.maximum(x @ np.asarray(encoder.first.weight), 0)
    expected = np.maximum(hidden @ np.asarray(encoder.second.weight), 0)
    np.testing.assert_allclose(encoder(o), expected, rtol=1e-5)


def test_grid_encoder_convolves():
    encoder = GridEncoder(prng.key(0), 4, columns=3, numbers=3)
    o = np.random.default_rng(1).integers(4, size=(2, 6)).astype(np.int32)
    image = np.asarray(encoder.embedding)[o].reshape(2, 2, 3, 3)
    for kernel in map(np.asarray, encoder.kernels):
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
        image = np.zeros((2, 2, 3, kernel.shape[-1]))
        for i, j, y, x in itertools.product(range(3), range(3), range(2), range(3)):
            image[:, y, x] += padded[:, y + i, x + j] @ kernel[i, j]
        image = np.maximum(image, 0)
    assert image.shape[-1] == 64
    np.testing.assert_allclose(encoder(jnp.asarray(o)), image.reshape(2, -1), rtol=1e-4, atol=1e-4)


def test_the_encoder_is_chosen_by_the_observation():
    kind = lambda sizes, **changes: type(make_encoder(prng.key(0), sizes, replace(TINY, **changes)))
    assert kind((3,)) is kind((5, 5, 5)) is kind((2,) * 12) is OneHotEncoder
    assert kind((4,) * 12) is GridEncoder
    assert kind((4,) * 12, encoder="onehot") is OneHotEncoder
    assert kind((4,) * 6, encoder="grid", grid_columns=2) is GridEncoder
    with pytest.raises(UserError, match="do not fill 3 columns"):
        kind((4,) * 13)


def test_settings_say_what_is_wrong():
    assert DPFRL().problems() == []
    assert DPFRL(actors=0, resampling=1.5).problems() == [
        "dpfrl.actors must be at least 1",
        "dpfrl.resampling must lie in [0, 1]",
    ]


# Learning. A program takes seconds to compile: most tests share one.


@cache
def lived(num_updates: int) -> Any:
    """Two seeds after some updates. The steps are so small that the weights hardly change."""
    agent = A2C(Remember(horizon=7), replace(TINY, learning_rate=1e-6))
    learner, episodes = advance(start(jr.split(prng.key(3), 2), agent), agent, num_updates)
    return agent, learner, jax.tree.map(np.asarray, episodes)


@pytest.mark.parametrize("name", catalog.DOMAINS)
def test_every_domain_can_be_learned(name):
    """Traced, not run: the shapes fit, under strict promotion."""
    experiment = preset(name, "dpfrl", "paper")
    agent = A2C(build_domain(experiment).pomdp, experiment.settings.dpfrl)
    learner = eqx.filter_eval_shape(start, jr.split(prng.key(0), 2), agent)
    after, episodes = eqx.filter_eval_shape(advance, learner, agent, 3)
    assert jax.tree.structure(after) == jax.tree.structure(learner)
    assert episodes.ended.shape == (2, 3, 5, 16)
    assert isinstance(learner.network.encoder, GridEncoder) == (name == "gridverse")


@pytest.mark.slow
def test_an_extended_run_equals_a_longer_one(tmp_path, capsys):
    """The command line, from checkpoints in the middle of a window; two chunks, one with an idle lane."""
    flags = ["--runs", "3", "--chunk-size", "2", "--dpfrl.num-particles", "3", "--dpfrl.hidden", "6"]
    flags += ["--dpfrl.actors", "4", "--dpfrl.features", "5", "--dpfrl.learning-rate", "0.01"]

    def baddr_main(*arguments: object) -> int:
        with pytest.raises(SystemExit) as exit:
            main([str(a) for a in arguments])
        return int(exit.value.code or 0)

    for name, episodes in (("a", 150), ("b", 60)):
        out = ["--episodes", episodes, "--out", tmp_path / name]
        assert baddr_main("run", "tiger", "--agent", "dpfrl", *flags, *out) == 0
    assert baddr_main("resume", tmp_path / "b", "--episodes", 150) == 0
    whole, extended = (load_results(tmp_path / name) for name in "ab")
    assert list(whole) == ["run", "episode", "return", "discounted_return", "length"]
    assert list(whole["run"]) == [run for run in range(3) for _ in range(150)]
    assert list(whole["episode"]) == list(range(150)) * 3
    for name, column in whole.items():
        np.testing.assert_array_equal(column, extended[name])
    assert np.all(whole["discounted_return"] <= 10)
    assert whole["length"].min() >= 1 and whole["length"].max() <= 30
    assert baddr_main("run", "tiger", "--agent", "dpfrl", "--trace", 0) == 2
    assert "dpfrl has no belief to trace" in capsys.readouterr().err


def test_episodes_are_counted_and_added_up():
    """Samples have 2 steps and episodes 7: of 10 steps the seventh ends one, which returns 0 or 1."""
    _, learner, episodes = lived(5)
    assert episodes.ended.shape == (2, 5, 2, 4)
    ended = episodes.ended.reshape(2, 10, 4)
    assert np.all(ended[:, 6]) and np.sum(ended) == 2 * 4
    assert np.all(episodes.length[episodes.ended] == 7)
    assert set(np.unique(episodes.return_[episodes.ended])) == {0.0, 1.0}
    np.testing.assert_allclose(episodes.discounted_return, 0.5 * episodes.return_)
    for i in range(2):
        np.testing.assert_array_equal(episodes.episode[i][episodes.ended[i]], np.arange(4))
    assert np.all(learner.updates == 5) and np.all(learner.episode == 4) and not np.any(learner.failed)


def test_a_learner_whose_weights_overflow_stops_counting():
    agent, learner, _ = lived(5)
    broken = eqx.tree_at(lambda w: w.network.critic.bias, learner, jnp.array([[jnp.nan], [0.0]]))
    broken, episodes = advance(broken, agent, 5)
    assert list(broken.failed) == [True, False]
    assert not np.any(episodes.ended[0]) and np.sum(episodes.ended[1]) == 4
    assert list(broken.episode) == [4, 8]


def test_a_seeds_neighbours_do_not_matter():
    raw = lambda x: np.asarray(jr.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
    same = lambda x, y: np.testing.assert_array_equal(raw(x), raw(y))
    agent, learner, _ = lived(5)
    turned, _ = advance(start(jr.split(prng.key(3), 2)[::-1], agent), agent, 5)
    jax.tree.map(same, learner, jax.tree.map(lambda x: x[::-1], turned))
    assert np.any(learner.network.actor.weight[0] != learner.network.actor.weight[1])


def test_each_learner_has_its_own_learning_rate():
    """At a rate of 0 weights stay; a rate ten times as large moves them ten times as far, at first."""
    agent, _, _ = lived(5)
    learner = start(jr.split(prng.key(3), 2), agent)
    np.testing.assert_array_equal(learner.learning_rate, np.full(2, 1e-6, np.float32))
    twins = jax.tree.map(lambda x: x[jnp.array([0, 0])], learner)
    before = np.asarray(learner.network.actor.weight[0])
    for rates, ratio in (([0.0, 1e-6], 0.0), ([1e-6, 1e-5], 0.1)):
        after, _ = advance(twins._replace(learning_rate=jnp.array(rates)), agent, 5)
        moved = np.asarray(after.network.actor.weight) - before
        size = np.abs(moved[1]).max()
        assert size > 0
        np.testing.assert_allclose(moved[0], ratio * moved[1], atol=0.05 * ratio * size)


@pytest.mark.slow
def test_the_gradient_reaches_through_the_whole_window():
    """The third sample's gradient is that of 6 steps written out one by one, and not that of its own 2.

    The window holds what was lived: the weights of its time would have drawn the indices that it holds."""
    agent, learner, _ = lived(5)  # two samples of this window have gone by
    one = jax.tree.map(lambda x: x[0], learner)
    gradient, (sample, actors, _) = eqx.filter_jit(_gradient)(one, agent, jnp.int32(2))

    def written_out(network: ActorCritic, through: Array) -> tuple[Array, list[Array]]:
        key = lambda update, i: jr.fold_in(one.key, 3 * update + i)
        latent, drawn = one.window.latent, []
        for j, i in itertools.product(range(2), range(2)):
            seen, ancestors = jax.tree.map(lambda x: x[j, i], one.window[1:])  # noqa: B023
            drawn.append(network.step(key(3 + j, i), latent, seen)[1])
            latent, _ = network.step(key(3 + j, i), latent, seen, ancestors)
        latent = jax.tree.map(lambda x: through * x + (1 - through) * jax.lax.stop_gradient(x), latent)
        logits, values = [], []
        for i in range(2):
            seen, ancestors = jax.tree.map(lambda x: x[i], (sample.seen, sample.ancestors))  # noqa: B023
            latent, _ = network.step(key(5, i), latent, seen, ancestors)
            outputs = network.heads(latent)
            logits.append(outputs[0])
            values.append(outputs[1])
        ahead, _ = network.step(key(5, 2), latent, actors.seen)
        R, targets = jax.lax.stop_gradient(network.heads(ahead)[1]), []
        for r, ended in zip(sample.r[::-1], sample.episodes.ended[::-1], strict=True):
            R = r + 0.5 * (1 - ended.astype(jnp.float32)) * R
            targets.append(R)
        R = jnp.stack(targets[::-1])
        return a2c_loss(jnp.stack(logits), jnp.stack(values), sample.a, R, agent.settings), drawn

    grad = eqx.filter_jit(eqx.filter_grad(written_out, has_aux=True))
    expected, drawn = grad(one.network, jnp.array(1.0))
    np.testing.assert_array_equal(drawn, one.window.ancestors.reshape(4, 4, 3))
    scale = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient))
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5 * scale)
    jax.tree.map(close, gradient, expected)
    cut = grad(one.network, jnp.array(0.0))[0].memory.cell.candidate.weight
    assert np.abs(cut - gradient.memory.cell.candidate.weight).max() > 1e-3 * scale


@pytest.mark.parametrize("particles", [pytest.param(True, marks=pytest.mark.slow), False])
def test_learns_to_remember(particles):
    """Samples of one step: the bit was seen in the sample before. Optimum 1; without memory 1/2."""
    settings = replace(TINY, hidden=16, observation_width=16, actors=16, sample_length=1, learning_rate=3e-3)
    agent = A2C(Remember(), settings, particles)
    learner, episodes = advance(start(jr.split(prng.key(3), 3), agent), agent, 600)
    before = np.asarray(episodes.return_[:, :20][episodes.ended[:, :20]]).mean()
    assert 0.3 < before < 0.7
    after = evaluate(jr.split(prng.key(4), 3), learner, agent, 10, greedy=particles)
    assert np.all(np.sum(after.ended, axis=1) == 10)  # of every actor
    means = [np.asarray(after.return_[i][after.ended[i]]).mean() for i in range(3)]
    assert np.median(means) > 0.95, means


@pytest.mark.slow
def test_learns_tiger():
    """The median of 5 seeds reaches a discounted return of 2.0 within 40,000 episodes (optimum 3.77).

    Means are over blocks of 2,000 episodes. A seed that only listens takes long to get there: once 3 seeds
    have reached 2.0 in the same block, the median has, whatever the others do."""
    agent = A2C(tiger.make_domain().pomdp, DPFRL(learning_rate=3e-4, num_particles=15))
    learner = start(jr.split(prng.key(0), 5), agent)
    returns: list[list[float]] = [[] for _ in range(5)]
    reached = np.zeros((5, 20), bool)
    while np.max(reached.sum(0)) < 3 and min(map(len, returns)) < 40_000:
        learner, episodes = advance(learner, agent, 50)
        of_block = jax.device_get(episodes)
        for i, of_seed in enumerate(returns):
            of_seed += of_block.discounted_return[i][of_block.ended[i]].tolist()
            blocks = len(of_seed[:40_000]) // 2000
            reached[i, :blocks] = np.reshape(of_seed[: 2000 * blocks], (blocks, 2000)).mean(1) >= 2.0
    assert np.max(reached.sum(0)) >= 3, reached.astype(int)
