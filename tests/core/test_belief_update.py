"""Both filters against exact beliefs, and their depletion policy."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import DATA

from baddr import prng
from baddr.core import belief_update
from baddr.core.belief_update import next_episode
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, independent_indices, systematic_indices
from baddr.domains import collision_avoidance, tiger
from baddr.posteriors import Dirichlet, Frozen, Known

update = eqx.filter_jit(lambda how, *arguments: how.update(*arguments))
initial_belief = eqx.filter_jit(belief_update.initial_belief)

DOMAIN = tiger.make_domain()
POSTERIOR = Dirichlet(DOMAIN.counts, *tiger.SIZES)
GBA = GBAPOMDP(DOMAIN.pomdp, POSTERIOR)
ORACLES = json.loads((DATA / "tiger_exact_beliefs.json").read_text())["histories"]
ACTIONS = {"openL": 0, "openR": 1, "listen": 2}
HEARD = {"hearL": 0, "hearR": 1, "null": 2}
N = 100_000

describe = jax.jit(lambda k, b: tiger.describe(k, POSTERIOR, b))
redraw = jax.jit(lambda k, b: next_episode(k, GBA, b))
importance = jax.jit(lambda k, b, a, o: Importance(resample_below=N / 8).update(k, GBA, b, a, o))
rejection = jax.jit(lambda k, b, a, o: Rejection().update(k, GBA, b, a, o))
FILTERS = {"importance": importance, "rejection": rejection}


@pytest.mark.cover
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("history", ORACLES)
def test_filters_match_the_exact_belief(name, history):
    """Within 5 standard errors at 100,000 particles, after every step.

    Each step that resamples adds its own noise, so after t steps the variance of a mean is at most
    (t + 1) / n times that of one draw.
    """
    key = prng.key(7)
    belief = initial_belief(key, GBA, N)
    for t, (action, heard) in enumerate(ORACLES[history]["history"], start=1):
        a, o = jnp.int32(ACTIONS[action]), jnp.array([HEARD[heard]], jnp.int32)
        belief, info = FILTERS[name](jr.fold_in(key, 2 * t), belief, a, o)
        assert not info.impossible and info.num_filled == 0
        if action != "listen":
            belief = redraw(jr.fold_in(key, 2 * t + 1), belief)
        exact = ORACLES[history]["steps"][t]
        described = describe(key, belief)
        p_left = float(np.sum(np.asarray(belief.weights), where=np.asarray(belief.states.s[:, 0]) == 0))
        size = min(float(belief.effective_sample_size()), N) / (t + 1)
        assert abs(p_left - exact["p_state_L"]) < 5 * np.sqrt(0.25 / size)
        for side in (0, 1):
            variance = exact[f"var_acc_{'LR'[side]}"]
            standard_error = np.sqrt(variance / size)
            mean = float(described["accuracy_mean"][side])
            assert abs(mean - exact[f"mean_acc_{'LR'[side]}"]) < 5 * standard_error
            # The fourth moment of a Beta mixture is below 3 variances squared plus room for skew.
            spread = float(described["accuracy_std"][side]) ** 2
            assert abs(spread - variance) < 5 * np.sqrt(4 * variance**2 / size)


@pytest.mark.parametrize("name", FILTERS)
def test_learning_adds_one_to_the_real_observations_entry(name):
    """Every particle: T(s, a, s') and O(a, s', o) grow by one, for the o that was seen."""
    belief = initial_belief(prng.key(0), GBA, N)
    heard = jnp.array([1], jnp.int32)
    after, _ = FILTERS[name](prng.key(1), belief, jnp.int32(2), heard)
    s = np.asarray(after.states.s[:, 0])
    grown_O = np.asarray(after.states.theta.O) - np.asarray(DOMAIN.counts.O)
    grown_T = np.asarray(after.states.theta.T) - np.asarray(DOMAIN.counts.T)
    assert np.all(grown_O.sum((1, 2, 3)) == 1) and np.all(grown_O[np.arange(N), 2, s, 1] == 1)
    assert np.all(grown_T.sum((1, 2, 3)) == 1) and np.all(grown_T[np.arange(N), s, 2, s] == 1)


def test_next_episode_keeps_models_and_weights_and_redraws_states():
    belief = initial_belief(prng.key(0), GBA, 1000)
    belief, _ = importance(prng.key(1), belief, jnp.int32(2), jnp.array([0], jnp.int32))
    after = next_episode(prng.key(2), GBA, belief)
    assert jnp.array_equal(after.log_weights, belief.log_weights)
    assert jnp.array_equal(after.states.theta.O, belief.states.theta.O)
    left = float(jnp.mean(after.states.s == 0))
    assert abs(left - 0.5) < 5 * np.sqrt(0.25 / 1000)


def test_importance_resamples_below_the_threshold_only():
    belief = initial_belief(prng.key(0), GBA, 64)
    skewed = Particles(belief.states, jnp.log(jnp.full((64,), 1e-6).at[3].set(1 - 63e-6)))
    for threshold, expected in ((0.5, False), (32.0, True)):
        how, heard = Importance(resample_below=threshold), jnp.array([0], jnp.int32)
        _, info = update(how, prng.key(1), GBA, skewed, jnp.int32(2), heard)
        assert bool(info.resampled) is expected
        assert (int(info.distinct_ancestors) < 5) is expected


def test_the_weight_after_the_update_differs_as_the_authors_program_does():
    """Dirichlet (5, 3): 5/8 before U, 6/9 after it, for a particle whose state was heard."""
    belief = initial_belief(prng.key(0), GBA, 1000)
    left = np.asarray(belief.states.s[:, 0] == 0)
    for after_update, (right, wrong) in ((False, (5 / 8, 3 / 8)), (True, (6 / 9, 4 / 9))):
        how = Importance(resample_below=0.0, weight_after_update=after_update)
        after, _ = update(how, prng.key(1), GBA, belief, jnp.int32(2), jnp.array([0], jnp.int32))
        ratio = np.asarray(after.weights)[left][0] / np.asarray(after.weights)[~left][0]
        assert ratio == pytest.approx(right / wrong, rel=1e-4)


def test_learning_can_be_switched_off_for_a_step():
    belief = initial_belief(prng.key(0), GBA, 100)
    a, o = jnp.int32(2), jnp.array([0], jnp.int32)
    for how, learn in ((Importance(resample_below=0.0), False), (Rejection(), jnp.array(False))):
        after, _ = update(how, prng.key(1), GBA, belief, a, o, learn)
        assert jnp.array_equal(after.states.theta.O, belief.states.theta.O)


@pytest.mark.parametrize("how", [Importance(resample_below=64.0), Rejection()])
def test_a_belief_that_is_not_active_stays_as_it_is(how):
    """Of two runs one is not active: the other one is what it is alone."""
    keys = jr.split(prng.key(0), 2)
    before = jax.vmap(lambda key: initial_belief(key, GBA, 64))(keys)
    log_weights = before.log_weights + jnp.linspace(0, 4, 64)[None]
    before = Particles(before.states, jax.nn.log_softmax(log_weights, axis=1))
    each = jax.vmap(lambda key, b, active: update(how, key, GBA, b, LISTEN, HEAR_LEFT, True, active)[0])
    after = each(keys, before, jnp.array([True, False]))
    alone = each(keys, before, jnp.array([True, True]))
    for x, y, z in zip(*map(jax.tree.leaves, (before, after, alone)), strict=True):
        np.testing.assert_array_equal(x[1], y[1])
        np.testing.assert_array_equal(z[0], y[0])
    assert np.any(np.asarray(alone.states.theta.O)[1] != np.asarray(before.states.theta.O)[1])


def test_frozen_reweights_and_never_learns():
    gba = GBAPOMDP(DOMAIN.pomdp, Frozen(POSTERIOR))
    belief = initial_belief(prng.key(0), gba, 100)
    how = Importance(resample_below=0.0)
    after, _ = update(how, prng.key(1), gba, belief, jnp.int32(2), jnp.array([0], jnp.int32))
    assert jnp.array_equal(after.states.theta.O, belief.states.theta.O)
    assert not jnp.array_equal(after.log_weights, belief.log_weights)


@pytest.mark.parametrize("tries", [1, 8])
def test_steps_that_are_tried_give_the_exact_belief_and_lose_fewer_particles(tries):
    """The row of an obstacle that is seen through noise, by the forward algorithm; within 5 standard errors.

    The mean of K weights has the K-th part of their variance, and so many particles count after a first step
    from a known state (the standard error of that number is below 1 %).
    """
    pomdp, n, p = collision_avoidance.make_domain().pomdp, 8192, np.eye(5)[2]
    gba, D, noise = GBAPOMDP(pomdp, Known(pomdp.dynamics)), pomdp.dynamics, np.asarray(pomdp.noise)
    moves = sum(w * np.eye(5)[np.clip(np.arange(5) + m - 1, 0, 4)] for m, w in enumerate(D.policy))
    how, belief, counted = Importance(n, 0.0, tries=tries), initial_belief(prng.key(0), gba, n), []
    for t, row in enumerate((4, 4, 0)):
        o = jnp.array([3 - t, 2, row], jnp.int32)
        p = (p @ np.asarray(moves)) * noise[:, row]
        belief, _ = update(how, prng.key(t), gba, belief, jnp.int32(1), o)
        counted.append(float(belief.effective_sample_size()))
    p, found = p / np.sum(p), np.bincount(belief.states.s[:, 2], belief.weights, minlength=5)
    assert np.all(np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / counted[-1]))
    weights = noise[1:4, 4]
    variance = D.policy @ weights**2 / (D.policy @ weights) ** 2 - 1
    assert counted[0] == pytest.approx(n / (1 + float(variance) / tries), rel=0.04)


# The depletion policy.

PERFECT = GBAPOMDP(DOMAIN.pomdp, Known(tiger.dynamics(1.0)))
LISTEN = jnp.int32(2)
HEAR_LEFT = jnp.array([0], jnp.int32)


def known_belief(states: list[int]) -> Particles:
    n = len(states)
    belief = initial_belief(prng.key(0), PERFECT, n)
    return Particles(belief.states._replace(s=jnp.array(states, jnp.int32)[:, None]), belief.log_weights)


@pytest.mark.parametrize("name", ["importance", "rejection"])
def test_an_impossible_observation_is_reported_and_nothing_is_learned(name):
    """All particles know that the good door is right and hear perfectly; left is heard."""
    counts = tiger.tables(np.array([[8.0, 0.0], [0.0, 8.0]]), tiger.KNOWN)
    gba = GBAPOMDP(DOMAIN.pomdp, Dirichlet(counts, *tiger.SIZES))
    belief = initial_belief(prng.key(0), gba, 50)
    belief = Particles(belief.states._replace(s=jnp.ones((50, 1), jnp.int32)), belief.log_weights)
    if name == "importance":
        how = Importance(resample_below=0.0)
        after, info = update(how, prng.key(1), gba, belief, LISTEN, HEAR_LEFT)
    else:
        after, info = update(Rejection(max_tries=20), prng.key(1), gba, belief, LISTEN, HEAR_LEFT)
        assert info.num_filled == 50 and info.acceptance_rate == 0
    assert info.impossible
    assert jnp.array_equal(after.states.theta.O, belief.states.theta.O)
    assert jnp.allclose(after.weights, 1 / 50) and jnp.all(after.states.s == 1)


def test_rejection_fills_up_with_copies_when_tries_run_out():
    """2 of 100 particles explain the observation; one block of tries cannot find 100."""
    belief = known_belief([0, 0] + [1] * 98)
    after, info = update(Rejection(max_tries=1), prng.key(1), PERFECT, belief, LISTEN, HEAR_LEFT)
    assert 0 < info.num_filled < 100 and not info.impossible
    assert jnp.all(after.states.s == 0)


def test_rejection_falls_back_to_importance_when_nothing_is_accepted():
    """Hearing is wrong with 1e-12: never drawn, but the one particle that explains it takes over."""
    gba = GBAPOMDP(DOMAIN.pomdp, Known(tiger.dynamics((1e-12, 1.0))))
    belief = known_belief([0] + [1] * 99)
    seen = 0
    for seed in range(8):  # the particle must be among the last block's 100 proposals
        key = prng.key(seed)
        after, info = update(Rejection(max_tries=3), key, gba, belief, LISTEN, HEAR_LEFT)
        assert info.num_filled == 100 and info.acceptance_rate == 0
        if not info.impossible:
            seen += 1
            assert jnp.all(after.states.s == 0)
    assert seen > 0


def test_systematic_resampling_keeps_expected_counts():
    """Each index appears floor or ceil of n w times."""
    w = jnp.array([0.1, 0.25, 0.0, 0.65])
    counts = np.bincount(np.asarray(systematic_indices(prng.key(0), w, 10)), minlength=4)
    assert np.all(np.abs(counts - 10 * np.asarray(w)) < 1) and counts[2] == 0


def test_independent_resampling_is_multinomial():
    """20,000 draws within 4 standard errors of the weights; and the variance of a place is that of draws."""
    w = jnp.array([0.1, 0.25, 0.0, 0.65])
    draw = jax.jit(lambda keys: jax.vmap(lambda key: independent_indices(key, w, 10))(keys))
    indices = np.asarray(draw(jr.split(prng.key(0), 2000)))
    p, n = np.bincount(indices.reshape(-1), minlength=4) / indices.size, indices.size
    assert p[2] == 0 and np.all(np.abs(p - w) <= 4 * np.sqrt(np.asarray(w * (1 - w)) / n))
    variance = np.var((indices == 3).sum(axis=1), ddof=1)  # binomial: 10 x .65 x .35 = 2.275, s.e. about .07
    assert abs(variance - 2.275) < 0.29


def test_a_filter_of_4096_particles_compiles():
    """With keys split from keys XLA had not compiled this after minutes."""
    belief = initial_belief(prng.key(0), GBA, 4096)
    listen, left = jnp.int32(tiger.LISTEN), jnp.zeros((1,), jnp.int32)
    after, _ = update(Importance(resample_below=512.0), prng.key(1), GBA, belief, listen, left)
    # p(s = left | heard left) = .625, by 4096 particles: three quarters of a point is a standard error.
    heard = float(jnp.sum(jnp.where(after.states.s[:, 0] == 0, after.weights, 0)))
    assert abs(heard - 0.625) < 4 * 0.0076
