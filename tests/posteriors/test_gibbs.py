"""Rejuvenation leaves the exact posterior as it is: draws from it, moved, have the moments that they had."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import exact, prng
from baddr.core.agent import Agent
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.domains import tiger
from baddr.planners.uniform import Uniform
from baddr.posteriors import Counts, Dirichlet
from baddr.posteriors.gibbs import GibbsCounts, gibbs_counts
from baddr.posteriors.memory import remember

LISTEN, NULL = tiger.LISTEN, tiger.NULL
DOMAIN = tiger.make_domain()
POSTERIOR = Dirichlet(DOMAIN.counts, *tiger.SIZES)
P0 = np.full(2, 0.5)
# (a, o), episode after episode: sounds that agree, that differ, one opening alone, and one that ends in the
# middle, after which the tiger is elsewhere.
EPISODES = (
    ((2, 0), (2, 0), (2, 1), (0, 2)),
    ((1, 2),),
    ((2, 1), (2, 1), (2, 1), (2, 1)),
    ((2, 0), (2, 0)),
)
DRAWS = 20_000


@cache
def mixture():
    """p(s, counts | h), enumerated."""
    tables = exact.DirichletTables(*(np.asarray(x, np.float64) for x in DOMAIN.counts))
    b = exact.initial_mixture(tables, P0)
    for h in EPISODES:
        b = exact.next_episode(b, P0)
        for a, o in h:
            b, _ = exact.mixture_update(tables, b, a, o)
    return tables, [(theta, s, w[s]) for theta, w in b.items() for s in (0, 1) if w[s] > 0]


def exact_draws(seed, n):
    """n of them as stacked (s, theta)."""
    tables, components = mixture()
    p = np.array([w for *_, w in components])
    drawn = np.random.default_rng(seed).choice(len(p), size=n, p=p / p.sum())
    counts = [tables.counts(theta) for theta, _, _ in components]
    T, O = (np.stack([c[i] for c in counts])[drawn].astype(np.float32) for i in range(2))
    s = np.array([s for _, s, _ in components], np.int32)[drawn, None]
    return AugmentedState(jnp.asarray(s), Counts(jnp.asarray(T), jnp.asarray(O)))


def memory_of(moves, episodes):
    memory = moves.codes.empty(moves.capacity)
    yes = jnp.array(True)
    for h in episodes:
        memory = memory._replace(first=yes)
        for a, o in h:
            memory = remember(moves.codes, memory, (jnp.int32(a), jnp.array([o], jnp.int32), ~yes), yes, yes)
    return memory


def features(states):
    """What moments are taken of: s, and the counts of what was heard and where doors led, less the prior."""
    seen = [np.asarray(x) - np.asarray(y) for x, y in zip(states.theta, DOMAIN.counts, strict=True)]
    flat = np.concatenate([np.asarray(states.s), *(x.reshape(len(x), -1) for x in seen)], axis=1)
    return flat[:, flat.any(axis=0)]


def moments(states):
    x = features(states)
    return np.concatenate([x, (x[:, :, None] * x[:, None]).reshape(len(x), -1)], axis=1)


def worst(states, seed=0):
    """The largest distance of a first or second moment from the exact one, in standard errors."""
    tables, components = mixture()
    p = np.array([w for *_, w in components])
    counts = [tables.counts(theta) for theta, _, _ in components]
    T, O = (jnp.asarray(np.stack([c[i] for c in counts]), jnp.float32) for i in range(2))
    every = moments(AugmentedState(jnp.array([[s] for _, s, _ in components]), Counts(T, O)))
    found = moments(states)
    mean = p @ every
    error = np.sqrt(np.maximum(p @ every**2 - mean**2, 1e-12) / len(found))
    return np.max(np.abs(found.mean(0) - mean) / np.maximum(error, 1e-9))


def moves_with(**changes):
    moves = gibbs_counts(POSTERIOR, P0, horizon=4, capacity=64)
    assert moves.permutations == ((1, 0),)
    return eqx.tree_at(lambda m: m, moves, type(moves)(**{**vars(moves), **changes}))


def moved(moves, seed, n):
    states, memory = exact_draws(seed, n), memory_of(moves, EPISODES)
    return eqx.filter_jit(lambda m, s: m.move(prng.key(seed), s, memory))(moves, states)


@pytest.mark.parametrize("rows_at_once", [1, 3])
def test_a_sweep_leaves_the_exact_posterior_as_it_is(rows_at_once):
    states, info = moved(moves_with(rows_at_once=rows_at_once), 1, DRAWS)
    assert worst(exact_draws(1, DRAWS)) < 4  # the test itself
    assert worst(states) < 4
    assert int(info.relabelled) > 0.2 * DRAWS and int(info.moved) > 0.5 * DRAWS


def test_relabelling_alone_leaves_it_as_it_is():
    moves = moves_with()
    states, accepted = jax.jit(jax.vmap(moves.relabel))(jr.split(prng.key(2), DRAWS), exact_draws(2, DRAWS))
    assert worst(states) < 4 and 0.2 < np.mean(accepted) < 0.9


@pytest.mark.slow
def test_a_hundred_thousand_draws_stay_as_they_are():
    states, _ = moved(moves_with(), 3, 100_000)
    assert worst(states) < 4


class Expected(GibbsCounts):
    """Broken on purpose: the expected model in place of a drawn one."""

    def model(self, key, theta):
        drawn = super().model(key, theta)
        T, O = (x / x.sum(-1, keepdims=True) for x in theta)
        return drawn._replace(T=jnp.transpose(T, (2, 1, 3, 0)), O=jnp.transpose(O, (1, 3, 2, 0)))


class Careless(GibbsCounts):
    """Broken on purpose: relabelling without the prior's ratio."""

    def log_score(self, theta):
        return jnp.zeros(())


@pytest.mark.parametrize("broken", [Expected, Careless])
def test_a_broken_move_is_noticed(broken):
    moves = broken(**vars(moves_with()))
    states, _ = moved(moves, 1, DRAWS)
    assert worst(states) > 6


def test_an_agent_that_moves_starts_episodes_evenly():
    """p(s_0) of the belief is right to half of the largest weight, not to that of so many draws."""
    gba, n = GBAPOMDP(DOMAIN.pomdp, POSTERIOR), 256
    belief = initial_belief(prng.key(0), gba, n)
    weights = np.random.default_rng(0).exponential(size=n) ** 3
    weights /= weights.sum()
    belief = eqx.tree_at(lambda b: b.log_weights, belief, jnp.log(jnp.asarray(weights, float)))
    left = []
    for moves in (moves_with(), None):
        agent = Agent(gba, Importance(n), Uniform(), rejuvenation=moves)
        after = jax.jit(jax.vmap(agent.next_episode, (0, None)))(jr.split(prng.key(1), 20), belief)
        left.append(np.sum(np.asarray(after.weights) * (np.asarray(after.states.s[..., 0]) == 0), axis=1))
    most = float(weights.max())
    assert np.all(np.abs(left[0] - 0.5) <= most / 2 + 1e-6) and np.std(left[1]) > most / 2


# Simulation-based calibration: models and histories from the prior itself.

NUM_PRIORS, NUM_DRAWS, NUM_MOVES, NUM_EPISODES, LENGTH, BINS = 500, 63, 12, 6, 4, 16


def ranks(moves):
    """Of the true accuracy of each of 500 prior draws among 63 draws of the posterior that moves reach from
    the true history. Uniform, if the moves leave the posterior as it is."""

    def one(key):
        keys = jr.split(key, 4)
        truth = moves.model(keys[0], jax.tree.map(lambda x: x[None], POSTERIOR.counts))
        hears = truth.O[LISTEN, :NULL, :, 0]  # o, s
        s = jr.bernoulli(keys[1], 0.5, (NUM_EPISODES, 1)).astype(jnp.int32)
        o = (jr.uniform(keys[2], (NUM_EPISODES, LENGTH)) > hears[0][s]).astype(jnp.int32)
        memory, theta, yes = moves.codes.empty(moves.capacity), POSTERIOR.counts, jnp.array(True)
        for e in range(NUM_EPISODES):
            memory = memory._replace(first=yes)
            for t in range(LENGTH):
                memory = remember(moves.codes, memory, (jnp.int32(LISTEN), o[e, t][None], ~yes), yes, yes)
                theta = POSTERIOR.update(key, theta, s[e], jnp.int32(LISTEN), s[e], o[e, t][None])
        copies = lambda x: jnp.broadcast_to(x, (NUM_DRAWS, *x.shape))
        states = AugmentedState(copies(s[-1]), jax.tree.map(copies, theta))
        step = lambda states, key: (moves.move(key, states, memory)[0], None)
        states, _ = jax.lax.scan(step, states, jr.split(keys[3], NUM_MOVES))
        drawn = moves.model(jr.fold_in(key, 9), states.theta).O[LISTEN, 0]
        return jnp.sum(drawn < hears[0][:, None], axis=1, dtype=jnp.int32)

    return np.asarray(eqx.filter_jit(lambda keys: jax.lax.map(one, keys))(jr.split(prng.key(5), NUM_PRIORS)))


def distance(found):
    """Chi-square of the ranks over 16 bins, in standard deviations above its mean; the worse of two doors."""
    counts = [np.bincount(column * BINS // (NUM_DRAWS + 1), minlength=BINS) for column in found.T]
    expected = NUM_PRIORS / BINS
    chi = max(np.sum((c - expected) ** 2 / expected) for c in counts)
    return (chi - (BINS - 1)) / np.sqrt(2 * (BINS - 1))


@pytest.mark.slow
def test_simulation_based_calibration():
    assert distance(ranks(moves_with())) < 4


@pytest.mark.slow
@pytest.mark.parametrize("broken", [Expected, Careless])
def test_a_broken_move_is_not_calibrated(broken):
    assert distance(ranks(broken(**vars(moves_with())))) > 8
