"""The GPU's kernels, interpreted on a CPU, against the plain networks (which test_dropout.py has checked)."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import untrained

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, uniform_weights
from baddr.core.pomdp import Transition
from baddr.domains import road_racing, tiger
from baddr.fast import dropout_models, kernels
from baddr.fast.choose import models_of
from baddr.fast.dropout_models import DropoutModels, net_of
from baddr.fast.tables import Rows, tabulate
from baddr.posteriors import Frozen
from baddr.posteriors.dropout import Architecture, Dropout, logits, unpack
from baddr.posteriors.partial import Partial
from baddr.posteriors.settings import Network

SIZES = (3, 2), 2, (2, 3)
PARTICLES = 4
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-6)


def make(network: Network, sizes=SIZES, scale: float = 3.0, **options):
    """The models of `PARTICLES` networks, plain, and the same with kernels."""
    posterior = untrained(network, sizes, PARTICLES, scale, **options)
    return tuple(DropoutModels(posterior, by_kernels=by_kernels) for by_kernels in (False, True))


@pytest.fixture
def with_kernels(monkeypatch):
    """As on a GPU: the kernels are chosen. On a CPU they are interpreted."""
    monkeypatch.setattr(dropout_models, "has_kernels", lambda: True)


def example(posterior: Dropout, n: int):
    """n transitions of random particles, with keys."""
    (state_sizes, _, observation_sizes), rng = posterior.architecture[1:4], np.random.default_rng(2)
    draw = lambda sizes: jnp.asarray(rng.integers(sizes, size=(n, len(sizes))), jnp.int32)
    i = jnp.asarray(rng.integers(PARTICLES, size=n), jnp.int32)
    return jr.split(prng.key(3), n), i, draw(state_sizes), draw(state_sizes), draw(observation_sizes)[0]


NETWORKS = [  # with the weights that a program holds at a time
    (Network(hidden=24, dropout=0.25, dropout_placement="first", inputs="scaled"), 64),
    (Network(hidden=5, dropout=0.5, dropout_placement="all", inputs=("onehot", "raw")), 16),
    (Network(hidden=40, dropout=0.5, dropout_placement="all", inputs="scaled"), 4096),
    (Network(hidden=16, dropout=0.0), 4096),
]


@pytest.mark.cover
@pytest.mark.parametrize(("network", "tile"), NETWORKS)
@pytest.mark.parametrize("net", ["T", "O"])
def test_forward_is_the_plain_network(network, tile, net, monkeypatch):
    """Of particles of two runs at three inputs."""
    monkeypatch.setattr(kernels, "ALONE", kernels.Tiling(tile, 32))
    monkeypatch.setattr(kernels, "DESCENT", kernels.Tiling(tile, 32))
    posterior = make(network)[0].posterior
    architecture, keys = posterior.architecture, jr.split(prng.key(4), 2)
    shape = net_of(architecture, net)
    thetas = posterior.ensemble[None] * jnp.array([1.0, -0.5])[:, None, None]
    i = jnp.array([[3, 0, 3], [1, 2, 0]], jnp.int32)
    masks = jax.vmap(jax.vmap(lambda key: posterior.draw(key, thetas[0, 0])))(jr.split(keys[0], (2, 3)))
    words, X = masks[:, :, "TO".index(net)], jr.normal(keys[1], (2, 3, 3, shape.inputs))

    def plain(theta, X, words):
        w = getattr(architecture.layers(theta), net)
        return jax.vmap(lambda x: logits(w, x, unpack(words, network.hidden), network.dropout))(X)

    def kernel(thetas, i, X, words):
        return kernels.forward(thetas, i, X, words, shape, interpret=True).Y

    found = jax.jit(jax.vmap(jax.vmap(kernel, in_axes=(None, 0, 0, 0))))(thetas, i, X, words)
    expected = jax.vmap(jax.vmap(plain))(thetas[jnp.arange(2)[:, None], i], X, words)
    assert found.shape == (2, 3, 3, shape.outputs)
    close(found, expected)


@pytest.mark.slow
def test_groups_hold_every_draw_once():
    """Of its own particle, in as few groups as `GROUP` allows; the draws of nobody in none."""
    i = np.random.default_rng(5).integers(-1, 6, size=70).astype(np.int32)
    groups = kernels.groups_of(jnp.asarray(i), 6)
    draws, whose = np.asarray(groups.draws), np.asarray(groups.i)
    assert sorted(draws[draws >= 0]) == sorted(np.flatnonzero(i >= 0))
    assert all(i[d] == who for who, row in zip(whose, draws, strict=True) for d in row if d >= 0)
    counts = np.bincount(i[i >= 0], minlength=6)
    assert counts.max() > kernels.GROUP and np.sum(whose >= 0) == np.sum(-(-counts // kernels.GROUP))
    everything = kernels.groups_of(jnp.full((7,), -1, jnp.int32), 2)
    assert np.all(everything.i == -1) and np.all(everything.draws == -1)


@pytest.mark.parametrize("nobody", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_draws_in_groups_are_the_draws_alone(nobody, monkeypatch):
    """Two runs, 21 draws of 4 particles each, in groups of up to 3, with masks and inputs of their own."""
    network = Network(hidden=24, dropout=0.25, dropout_placement="all", inputs="scaled")
    posterior = make(network)[0].posterior
    net, n, rng = net_of(posterior.architecture, "O"), 21, np.random.default_rng(6)
    thetas = posterior.ensemble[None] * jnp.array([1.0, -0.5])[:, None, None]
    i = jnp.asarray(rng.integers(-1 if nobody else 0, PARTICLES, size=(2, n)), jnp.int32)
    X = jnp.asarray(rng.normal(size=(2, n, 2, net.inputs)), jnp.float32)
    masks = jax.vmap(jax.vmap(lambda key: posterior.draw(key, thetas[0, 0])))(jr.split(prng.key(7), (2, n)))

    def forward():
        one = lambda thetas, i, X, words: kernels.forward(thetas, i, X, words, net, interpret=True)
        return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0, 0)))(thetas, i, X, masks[:, :, 1])

    alone = forward()
    monkeypatch.setattr(kernels, "LARGE", 1)
    monkeypatch.setattr(kernels, "GROUP", 3)
    assert "argsort" in str(jax.make_jaxpr(forward)())
    for x, y in zip(forward(), alone, strict=True):
        np.testing.assert_array_equal(x[i >= 0], y[i >= 0])


@pytest.mark.parametrize(("network", "tile"), NETWORKS)
def test_learning_is_the_plain_gradient_step(network, tile, monkeypatch):
    monkeypatch.setattr(kernels, "ALONE", kernels.Tiling(tile, 32))
    monkeypatch.setattr(kernels, "DESCENT", kernels.Tiling(tile, 32))
    plain, kernel = make(replace(network, learning_rate=0.3))
    thetas = plain.posterior.ensemble
    keys, i, s, s_next, o = example(plain.posterior, 6)

    def U(models, learn):
        return models.update(keys, thetas, i, Transition(s, jnp.int32(1), s_next, o), learn)

    found = eqx.filter_jit(U)(kernel, jnp.array(True))
    expected = eqx.filter_jit(U)(plain, jnp.array(True))
    close(found, expected)
    assert np.mean(np.abs(np.asarray(found - thetas[i])) > 1e-3) > 0.05  # it moves
    np.testing.assert_array_equal(eqx.filter_jit(U)(kernel, jnp.array(False)), thetas[i])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"learn_transition": False}, {"learn_observation": False}])
def test_a_network_that_does_not_learn(options):
    plain, kernel = make(Network(hidden=5, learning_rate=0.3, **options))
    keys, i, s, s_next, o = example(plain.posterior, 3)
    thetas, steps = plain.posterior.ensemble, Transition(s, jnp.int32(0), s_next, o)
    U = lambda models: models.update(keys, thetas, i, steps, jnp.array(True))
    found, expected = jax.jit(lambda: (U(kernel), U(plain)))()
    close(found, expected)
    half = plain.posterior.architecture.num_weights("T")
    frozen = slice(half) if "learn_transition" in options else slice(half, None)
    np.testing.assert_array_equal(found[:, frozen], thetas[i][:, frozen])
    assert np.any(found != thetas[i])


def test_runs_that_learn_and_runs_that_do_not():
    """A batched `learn`; and a particle whose weights are not numbers, which touches no other."""
    plain, kernel = make(Network(hidden=5, learning_rate=0.3))
    keys, i, s, s_next, o = example(plain.posterior, 3)
    thetas = jnp.stack([plain.posterior.ensemble, plain.posterior.ensemble.at[3].set(jnp.nan)])
    i, steps = jnp.array([0, 2, 1], jnp.int32), Transition(s, jnp.int32(0), s_next, o)
    U = lambda models: jax.vmap(lambda thetas, learn: models.update(keys, thetas, i, steps, learn))(
        thetas, jnp.array([True, False])
    )
    found, expected = jax.jit(lambda: (U(kernel), U(plain)))()
    close(found, expected)
    np.testing.assert_array_equal(found[1], thetas[1][i])


@pytest.mark.parametrize("redraw", [False, True])
def test_dynamics_of_particles(redraw):
    plain, kernel = make(Network(hidden=6, redraw_masks=redraw))
    keys, i, s, s_next, o = example(plain.posterior, 8)
    thetas = plain.posterior.ensemble

    def outcomes(models):
        def one(key, i, s, s_next):
            D = models.dynamics(thetas, i, models.posterior.draw(key, thetas[i]))
            a = jnp.int32(1)
            return D.step(key, s, a), D.log_prob(s, a, s_next, o)

        return jax.vmap(one)(keys, i, s, s_next)

    (drawn, log_prob), (drawn_plain, log_prob_plain) = jax.jit(lambda: (outcomes(kernel), outcomes(plain)))()
    for x, y in zip(drawn, drawn_plain, strict=True):
        np.testing.assert_array_equal(x, y)
    close(log_prob, log_prob_plain)


def test_tables_of_draws():
    plain, kernel = make(Network(hidden=6))
    rows = Rows(((0, 0), (5, 1), (3, 1)), ((0, 1, 4), (2, 0, 1)))
    thetas, (keys, i, *_) = plain.posterior.ensemble, example(plain.posterior, 5)
    masks = jax.vmap(lambda key: plain.posterior.draw(key, thetas[0]))(keys)
    found, expected = jax.jit(
        lambda: [tabulate(models, rows, thetas, i, masks) for models in (kernel, plain)]
    )()
    assert found.table_T.shape == (5, 3, 5) and found.table_O.shape == (5, 2, 5)
    close(found.table_T, expected.table_T)
    close(found.table_O, expected.table_O)


def belief_of(how, pomdp, models):
    """The beliefs of two runs after an update."""
    gba = GBAPOMDP(pomdp, models)

    def one(key, o):
        key_belief, key = jr.split(key)
        belief = initial_belief(key_belief, gba, 12)
        return how.update(key, gba, belief, jnp.int32(pomdp.num_actions - 1), o)

    o = jnp.zeros((2, len(pomdp.observation_sizes)), jnp.int32).at[1].set(1)
    return jax.jit(jax.vmap(one))(jr.split(prng.key(6), 2), o)


def sizes_of(pomdp):
    return pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes


@pytest.mark.parametrize("large", [kernels.LARGE, pytest.param(1, marks=pytest.mark.slow)])
def test_rejection_sampling(large, monkeypatch):
    """One run finishes rounds before the other: what is then undefined for it is not seen.

    Where networks count as large, several proposals of a particle are computed together: here as many in
    the plain filter, too.
    """
    monkeypatch.setattr(kernels, "LARGE", large)
    monkeypatch.setattr(DropoutModels, "tries_at_once", 1 if large > 1 else 2)
    pomdp = road_racing.make_domain(3).pomdp
    both = make(Network(hidden=6, learning_rate=0.1), sizes_of(pomdp), scale=1.0)
    expected, found = (belief_of(Rejection(max_tries=50), pomdp, models) for models in both)
    info = found[1]
    rounds = np.ceil(1 / np.asarray(info.acceptance_rate) - 1e-3)
    assert rounds[0] != rounds[1] and not info.num_filled.any()
    same(found, expected)


def test_importance_sampling_with_half_of_D(with_kernels):
    """T and O of networks of their own, one of them frozen."""
    pomdp = tiger.Tiger(tiger.dynamics())
    T = untrained(Network(hidden=6), sizes_of(pomdp), PARTICLES, 3.0, networks="T")
    O = untrained(Network(hidden=6, learning_rate=0.1), sizes_of(pomdp), PARTICLES)
    posterior, how = Partial(Frozen(T), O), Importance(resample_below=6.0, weight_after_update=True)
    kernel = models_of(posterior)
    assert kernel.observation.by_kernels and kernel.transition.inner.by_kernels
    same(belief_of(how, pomdp, kernel), belief_of(how, pomdp, posterior))


def same(found, expected) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        close(x, y)


PAPER = [  # sizes of s, actions, sizes of o
    (Network(hidden=32), (2,), 3, (3,)),
    (Network(hidden=256), (9, *[6] * 9), 3, (6,)),
    (Network(hidden=256, inputs=("scaled", "scaled", "onehot")), (32, 32, 4), 3, (4,) * 96),
]


lowers_for_gpu = pytest.mark.skipif(
    jax.__version_info__ > (0, 10, 2), reason="this JAX lowers for a GPU only where it has one"
)


@lowers_for_gpu
@pytest.mark.parametrize("parts", PAPER, ids=["tiger", "nine lanes", "gridverse"])
def test_a_gpu_gets_kernels_that_copy_no_weights(parts, monkeypatch):
    """At the paper's sizes they can be lowered, and no other operation than U makes an array of weights."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    architecture = Architecture(*parts)
    weights = architecture.num_weights("T") + architecture.num_weights("O")
    posterior, runs, n = Dropout(jnp.zeros((1, weights)), architecture), 3, 7
    models = models_of(posterior)
    assert models.by_kernels

    def update(key, thetas, s, a, o, learn):
        key_draw, key_U = jr.split(key)
        i = jr.randint(key_draw, (n,), 0, n)

        def step(key, i, s):
            D = models.dynamics(thetas, i, posterior.draw(key, thetas[i]))
            return D.step(key, s, a)[0], D.observation_log_prob(s, a, s, o)

        keys = jr.split(key_U, n)
        s_next, log_prob = jax.vmap(step)(keys, i, s)
        return models.update(keys, thetas, i, Transition(s, a, s_next, o), learn), log_prob

    shape, ints = jax.ShapeDtypeStruct, partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
    arguments = (
        jax.eval_shape(lambda: jr.split(prng.key(0), runs)),
        shape((runs, n, weights), jnp.float32),
        ints((runs, n, len(architecture.state_sizes))),
        ints((runs,)),
        ints((runs, len(architecture.observation_sizes))),
        shape((runs,), jnp.bool_),
    )
    module = jax.jit(jax.vmap(update)).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    results = [line.split("->")[-1] for line in module.splitlines() if "stablehlo." in line]
    assert sum(f"x{weights}xf32" in result for result in results) == 1
    assert module.count("gpu.triton") == 6  # T, O, and O once more; U takes three


@lowers_for_gpu
def test_a_summary_of_nine_lanes_copies_no_weights_on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    architecture = Architecture(*PAPER[1])
    weights, n = sum(map(architecture.num_weights, "TO")), 5
    posterior = Dropout(jnp.zeros((1, weights)), architecture)

    def describe(key, s, thetas):
        belief = Particles(AugmentedState(s, thetas), uniform_weights(n))
        return road_racing.describe(key, posterior, belief)

    shapes = jax.ShapeDtypeStruct((n, 10), jnp.int32), jax.ShapeDtypeStruct((n, weights), jnp.float32)
    lowered = jax.jit(describe).trace(prng.key(0), *shapes).lower(lowering_platforms=("cuda",)).as_text()
    assert "gpu.triton" in lowered and "dot_general" not in lowered  # no products of copies
