"""Priors from simulators (Section 4.2): the fit, its report, and the cache."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.pomdp import Table, Transition
from baddr.domains import tiger
from baddr.fast.pretrain import (
    Fit,
    _cut,
    _fit,
    _join,
    _optimizer,
    cached_prior,
    pretrain,
    prior_settings,
    uniform_states,
)
from baddr.files import cache
from baddr.posteriors.dropout import Architecture, Dropout
from baddr.posteriors.settings import Network, Pretrain

POMDP = tiger.make_domain().pomdp
NETWORK = Network()  # the paper's tiger: raw inputs, 3 layers of 32, dropout .5
ARCHITECTURE = Architecture(NETWORK, (2,), 3, (3,))
UNTRAINED = Pretrain(num_networks=4, batches=0)


def sample_simulator(key) -> Table:
    """Tiger with an accuracy ~ Beta(5, 3) for each door."""
    left, right = jr.beta(key, 5.0, 3.0, (2,))
    D = tiger.dynamics(0.5)
    hearing = jnp.array([[left, 1 - left], [1 - right, right]])
    return Table(D.T, D.O.at[tiger.LISTEN, :, : tiger.NULL].set(hearing), *tiger.SIZES)


@jax.jit
def predicted_accuracies(posterior):
    """Per member and side, averaged over 512 masks."""

    def one(theta, side):
        s, listen = side[None], jnp.int32(tiger.LISTEN)
        return jnp.exp(posterior.predictive(prng.key(0), theta, Transition(s, listen, s, s), 512)[1])

    sides = jnp.arange(2, dtype=jnp.int32)
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(posterior.ensemble, sides)


@pytest.fixture(scope="module")
def paper():
    """The paper's tiger prior, 4096 batches of 32, SGD .1, four times on the expected model."""
    told = []
    settings = Pretrain(num_networks=4)
    trained = pretrain(
        prng.key(0),
        tiger.dynamics(0.625),
        POMDP,
        NETWORK,
        settings,
        progress=lambda *news: told.append(news),
    )
    return *trained, told


def test_tiger_prior_reaches_its_entropy_floor(paper):
    """Within .02 nats, the predictive averaged over 64 masks, raw inputs, the paper's settings."""
    posterior, fit, told = paper
    floor = 2 / 3 * np.log(2) - (0.625 * np.log(0.625) + 0.375 * np.log(0.375)) / 3
    np.testing.assert_allclose(fit.entropy, floor, atol=4 * 0.32 / np.sqrt(4096))  # .32: sd of one sample
    assert np.all(fit.gap < 0.02) and not fit.failed.any()
    assert told[-1][:2] == (4096, 4096) and told[-1][2] < told[0][2] - 0.1
    assert len({float(w) for w in posterior.ensemble[:, 0]}) == 4  # members differ


def test_members_learn_their_own_simulators():
    posterior, fit = pretrain(prng.key(3), sample_simulator, POMDP, NETWORK, Pretrain(num_networks=4))
    assert not fit.failed.any() and np.ptp(fit.entropy) > 0.005
    key_simulator, *_ = jr.split(prng.key(3), 4)
    M = [sample_simulator(key) for key in jr.split(key_simulator, 4)]
    truth = [[float(D.O[tiger.LISTEN, side, side]) for side in (0, 1)] for D in M]
    learned = predicted_accuracies(posterior)
    assert np.mean(np.abs(np.subtract(truth, learned))) < 0.08
    assert np.corrcoef(np.ravel(truth), np.ravel(learned))[0, 1] > 0.8


@pytest.mark.slow
def test_a_member_that_does_not_fit_is_reported(paper):
    """Untrained networks, and networks whose weights are not finite."""
    trained, *_ = paper
    _untrained, fit = pretrain(prng.key(0), tiger.dynamics(0.625), POMDP, NETWORK, UNTRAINED)
    assert np.all(fit.gap > 0.1) and fit.failed.all()
    blown_up = Dropout(trained.ensemble.at[1, 0].set(jnp.nan), trained.architecture)
    M = jax.tree.map(lambda x: jnp.stack([x] * 4), tiger.dynamics(0.625))
    fit = _fit(jr.split(prng.key(0), 4), blown_up, M, uniform_states((2,)), max_gap=0.1)
    assert fit.failed.tolist() == [False, True, False, False]


@pytest.mark.slow
def test_adam_and_a_single_network():
    settings = Pretrain(batches=300, batch_size=64, learning_rate=0.01, optimizer="adam")
    posterior, fit = pretrain(
        prng.key(0), tiger.dynamics(0.85), POMDP, Network(dropout=0.1), settings, networks="O"
    )
    assert fit.gap[0] < 0.05 and posterior.architecture.num_weights("T") == 0
    assert abs(predicted_accuracies(posterior)[0, 1] - 0.85) < 0.1


def test_states_are_uniform_and_legal():
    draw = uniform_states((3, 4), lambda s: s[0] != s[1])
    s = np.asarray(jax.vmap(draw)(jr.split(prng.key(0), 9000)))
    counts = np.zeros((3, 4))
    np.add.at(counts, (s[:, 0], s[:, 1]), 1)
    assert counts[np.arange(3), np.arange(3)].sum() == 0
    legal = counts[~np.eye(3, 4, dtype=bool)]
    assert np.all(np.abs(legal - 1000) < 4 * np.sqrt(9000 / 9 * 8 / 9))


class Trained:
    """Stands for a training run and its test, and counts how often it is asked for each."""

    def __init__(self):
        self.times = self.tests = 0

    def __call__(self):
        self.times += 1
        w = jnp.asarray(np.random.default_rng(self.times).normal(size=(4, 2629)), jnp.float32)
        return Dropout(w, ARCHITECTURE)

    def test(self, posterior):
        self.tests += 1
        assert np.array_equal(posterior.ensemble, np.random.default_rng(1).normal(size=(4, 2629)).astype("f"))
        return Fit(np.full(4, 1.0), np.full(4, 0.7), np.array([0.3, 0.3, 0.3, np.nan]), np.ones(4, bool))


def fetch(directory, train, seed: int = 0, network: Network = NETWORK):
    settings = prior_settings("tiger", {"accuracy": 0.85}, network, UNTRAINED, seed)
    return cached_prior(settings, ARCHITECTURE._replace(network=network), train, train.test, directory)


def test_a_trained_prior_is_kept_and_found_again(tmp_path):
    train = Trained()
    posterior, _ = fetch(tmp_path, train)
    again, _ = fetch(tmp_path, train)
    assert train.times == 1 and np.array_equal(posterior.ensemble, again.ensemble)
    fetch(tmp_path, train, seed=1)
    assert train.times == 2
    online = Network(learning_rate=0.5, redraw_masks=True)  # not part of what was trained
    assert fetch(tmp_path, train, network=online)[0].architecture.network == online
    assert train.times == 2


def test_its_test_is_kept_with_it_when_it_was_made(tmp_path):
    train = Trained()
    _, fit = fetch(tmp_path, train)
    _, fit_later = fetch(tmp_path, train)
    assert train.tests == 0
    found = fit_later()
    _, fit_again = fetch(tmp_path, train)
    for x, y in zip(found, fit_again(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert train.tests == 1 and train.times == 1
    fit()  # of one who did not find it on disk
    assert train.tests == 2


def test_damaged_entries_are_trained_again(tmp_path):
    train = Trained()
    fetch(tmp_path, train)
    (arrays,), (about,) = tmp_path.glob("*.npz"), tmp_path.glob("*.json")
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:100] + b"x" + whole[101:])
    fetch(tmp_path, train)
    about.write_text("{")
    fetch(tmp_path, train)
    arrays.unlink()
    fetch(tmp_path, train)
    assert train.times == 4
    fetch(tmp_path, train)
    assert train.times == 4


def test_the_cache_can_be_listed_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path))
    assert cache.stored_priors() == [] and cache.clear() == 0
    train = Trained()
    fetch(None, train)
    fetch(None, train, seed=1)
    entries = cache.stored_priors()
    assert {entry["settings"]["seed"] for entry in entries} == {0, 1}
    assert all(entry["name"].startswith("tiger-") and entry["bytes"] > 10_000 for entry in entries)
    next(cache.priors().glob("*.json")).write_text("{")
    assert len(cache.stored_priors()) == 1
    assert cache.clear() > 20_000 and cache.stored_priors() == [] and list(tmp_path.iterdir()) == []


def test_settings_are_checked():
    assert Network().problems() == [] and Pretrain().problems() == []
    assert len(Network(hidden=0, layers=1, dropout=1.0).problems()) == 3
    assert len(Pretrain(num_networks=0, batch_size=0).problems()) == 2


def test_training_begins_with_the_cut_weights_and_an_optimiser_of_zeros():
    w = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2629)), jnp.float32)
    layers = _cut(w, ARCHITECTURE)
    jax.tree.map(np.testing.assert_array_equal, layers, jax.vmap(ARCHITECTURE.layers)(w))
    assert np.array_equal(_join(layers), w)
    for name in ("sgd", "adam"):
        state = _optimizer(Pretrain(optimizer=name)).init(layers)
        assert all(np.all(np.asarray(x) == 0) for x in jax.tree.leaves(state))
