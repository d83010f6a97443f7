"""Rao-Blackwell tables against brute force: every state with every model, one after the other."""

import itertools
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.belief_update import initial_belief, next_episode
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import all_vectors
from baddr.domains import collision_avoidance, factored_tiger, road_racing, sysadmin
from baddr.posteriors import Factored, grids
from baddr.posteriors.factored.graph import untied
from baddr.posteriors.forms import NoForm
from baddr.posteriors.tables import TableModels, feature_tables

FILTERS = [Importance(2048, resample_below=512.0), Rejection(2048)]
# What is done and seen: episodes of (a, o).
RACES = [[(2, 4), (0, 4), (0, 3), (1, 3), (2, 4)], [(0, 5), (0, 4), (2, 4)]]
LISTENED = [[(2, 0), (2, 0), (0, 2)], [(2, 1), (2, 0)]]
LOOKED = [[(0, 1), (1, 0), (3, 1), (0, 0)], [(1, 1)]]


@cache
def problem(name):
    """(pomdp, tables with three models of each feature, p(s_0), episodes)."""
    if name == "road racing":
        domain, episodes = road_racing.make_domain(lanes=2), RACES
        start = [np.eye(size)[v] for size, v in zip(domain.pomdp.state_sizes, (1, 5, 5), strict=True)]
        graph = domain.graphs["default"]
    elif name == "factored tiger":
        domain, episodes = factored_tiger.make_domain(irrelevant=1), LISTENED
        graph, start = domain.graphs["default"], [np.full(2, 0.5)] * 2
    else:
        domain, episodes = sysadmin.make_domain(computers=2, topology="independent", prior_total=4.0), LOOKED
        graph, start = untied(domain.graphs["default"]), [np.eye(2)[1]] * 2
    return domain.pomdp, feature_tables(graph, start, grid=3), start, episodes


def few_models(monkeypatch):
    monkeypatch.setattr(grids, "NUM_DRAWN", 3)


def brute_force(pomdp, tables, start, episodes):
    """p(s, k | h) as an array [k, s], and p(o | h, a) of each step."""
    weights = np.asarray(tables.weights, np.float64)
    ks = list(itertools.product(range(weights.shape[1]), repeat=len(weights)))
    states, z = all_vectors(pomdp.state_sizes), all_vectors(pomdp.observation_sizes)

    @eqx.filter_jit
    def table(k, a, o):
        D = tables.dynamics(tables.prior(prng.key(0)), k)
        one = lambda s, s_next: D.log_prob(s, a, s_next, o)
        over = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
        return jnp.exp(over(jnp.asarray(states), jnp.asarray(states)))

    prior = np.array([np.prod([weights[i, k] for i, k in enumerate(pick)]) for pick in ks])
    p0 = np.ravel(np.array([np.prod([start[i][v] for i, v in enumerate(s)]) for s in states]))
    b, seen = prior[:, None] * p0[None], []
    for h in episodes:
        b = b.sum(1, keepdims=True) * p0[None]
        for a, o in h:
            i = jnp.int32(a), jnp.asarray(z[o])
            D = np.stack([np.asarray(table(jnp.array(k, jnp.int32), *i), np.float64) for k in ks])
            b = np.einsum("ks,kst->kt", b, D)
            seen.append(b.sum())
            b = b / b.sum()
    return ks, states, b, seen


@pytest.mark.cover
@pytest.mark.parametrize("name", ["road racing", "factored tiger", "sysadmin"])
@pytest.mark.parametrize(
    "how", [Importance(2048, resample_below=512.0), Rejection(2048)], ids=["importance", "rejection"]
)
def test_the_belief_is_that_of_brute_force(name, how, monkeypatch):
    """p(o | h, a) of each step, and at the end p(u) and p(x_i, k_i) of all features. Where nothing is sampled
    they are exact to rounding; the agent's lane is, so that there 5 standard errors are left."""
    few_models(monkeypatch)
    pomdp, tables, start, episodes = problem(name)
    ks, states, exact, seen = brute_force(pomdp, tables, start, episodes)
    gba = GBAPOMDP(pomdp, TableModels(tables))
    update, belief, n = eqx.filter_jit(how.update), None, how.num_particles
    close = 5 * 0.5 / np.sqrt(n / 8) if tables.form.sampled else 2e-6
    key, z, t = prng.key(3), all_vectors(pomdp.observation_sizes), 0
    for h in episodes:
        belief = initial_belief(key, gba, n) if belief is None else next_episode(key, gba, belief)
        for a, o in h:
            t += 1
            belief, info = update(jr.fold_in(key, t), gba, belief, jnp.int32(a), jnp.asarray(z[o]))
            if isinstance(how, Importance):
                assert float(info.acceptance_rate) == pytest.approx(seen[t - 1], abs=max(close, 1e-5))
    w = np.asarray(belief.weights)
    for i, feature in enumerate(tables.form.features):
        found = np.einsum("n,nxg->xg", w, np.asarray(belief.states.theta.b[:, i]))
        wanted = np.zeros_like(found)
        for k, row in zip(ks, exact, strict=True):
            np.add.at(wanted[:, k[i]], states[:, feature], row)
        np.testing.assert_allclose(found, wanted, atol=close + 1e-5)
        x = np.asarray(belief.states.s[:, feature])  # one draw from the tables
        drawn = np.bincount(x, w, minlength=len(wanted))
        np.testing.assert_allclose(drawn, wanted.sum(1), atol=5 * 0.5 / np.sqrt(n / 4))
    for u in tables.form.sampled:
        found = np.bincount(np.asarray(belief.states.s[:, u]), w, minlength=2)
        np.testing.assert_allclose(found, np.bincount(states[:, u], exact.sum(0)), atol=close)


def test_the_models_of_a_draw_fit_its_state():
    """k ~ b(. | x): within 5 standard errors of the table's own column."""
    _, tables, _, _ = problem("road racing")
    theta = tables.prior(prng.key(0))
    b = jr.uniform(prng.key(1), theta.b.shape)
    theta = theta._replace(b=b / b.sum((1, 2), keepdims=True), x=jnp.array([2, 4], jnp.int32))
    k = np.asarray(jax.vmap(lambda key: tables.draw(key, theta))(jr.split(prng.key(2), 4096)))
    for i, x in enumerate((2, 4)):
        p = np.asarray(theta.b[i, x] / theta.b[i, x].sum())
        assert np.all(np.abs(np.bincount(k[:, i], minlength=3) / 4096 - p) < 5 * 0.5 / np.sqrt(4096))


def test_a_graph_that_has_not_the_form_is_refused():
    graph = sysadmin.make_domain(computers=3).graphs["default"]
    with pytest.raises(NoForm, match="feature 0 of s' depends on"):
        feature_tables(untied(graph), [np.eye(2)[1]] * 3, 3)


# Tied parameters.


def test_a_tied_graph_expects_what_the_untied_one_does():
    for domain in (road_racing.make_domain(lanes=2), collision_avoidance.make_domain(size=3)):
        graph, pomdp = domain.graphs["default"], domain.pomdp
        states = jnp.asarray(all_vectors(pomdp.state_sizes))

        @eqx.filter_jit
        def table(posterior, a, states=states):
            D = posterior.dynamics(posterior.prior(prng.key(0)), None)
            one = lambda s, s_next: D.transition_log_prob(s, a, s_next)
            return jnp.exp(jax.vmap(jax.vmap(one, (None, 0)), (0, None))(states, states))

        for a in range(3):
            p, q = (table(Factored(graph, tied=tied), jnp.int32(a)) for tied in (False, True))
            np.testing.assert_allclose(p, q, atol=1e-6)


def test_a_tied_count_is_shared_by_all_rows():
    """A car that advances at one distance is expected to advance at any other: (5 + 1) / (10 + 1)."""
    domain = road_racing.make_domain(lanes=2)
    tied = Factored(domain.graphs["default"], tied=True)
    s, s_next = jnp.array([0, 5, 5], jnp.int32), jnp.array([0, 4, 5], jnp.int32)
    theta = tied.update(prng.key(0), tied.prior(prng.key(0)), s, jnp.int32(1), s_next, s_next[1:2])
    D = tied.dynamics(theta, None)
    at_3, at_2 = jnp.array([0, 3, 3], jnp.int32), jnp.array([0, 2, 3], jnp.int32)
    p = jnp.exp(D.transition_log_prob(at_3, jnp.int32(0), at_2))
    assert float(p) == pytest.approx(6 / 11 * 6 / 11, abs=1e-6)  # car 0 advances, car 1 waits


def test_a_move_against_an_edge_counts_for_one_of_the_moves_that_land_alike():
    """Down or stay, in proportion to their counts .5 and 9: 1 in 19 is down, within 5 standard errors."""
    domain = collision_avoidance.make_domain(size=3)
    tied = Factored(domain.graphs["default"], tied=True)
    s, s_next = jnp.array([2, 1, 0], jnp.int32), jnp.array([1, 1, 0], jnp.int32)
    one = lambda key: tied.update(key, tied.prior(key), s, jnp.int32(1), s_next, s_next).counts - tied.counts
    grown = np.asarray(jax.vmap(one)(jr.split(prng.key(1), 4096)))
    assert np.all(grown.sum(1) == 1) and np.all(grown[:, 2] == 0)
    assert abs(grown[:, 0].mean() - 1 / 19) < 5 * np.sqrt(1 / 19 * 18 / 19 / 4096)
