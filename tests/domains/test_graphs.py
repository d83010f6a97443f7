"""The graphs of the domains, and the two domains that come with them, each against a second version."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.pomdp import Table
from baddr.domains import collision_avoidance, factored_tiger, road_racing, sysadmin, tiger
from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.domains.sysadmin.settings import SysadminSettings
from baddr.domains.tables import every_vector, observation_table, transition_table
from baddr.errors import UserError
from baddr.lab.build import build
from baddr.lab.experiment import preset
from baddr.posteriors import Factored
from baddr.posteriors.factored import expected_dynamics
from baddr.posteriors.factored.graph import num_counts
from baddr.posteriors.settings import FactoredSettings

LISTEN = 2


def tables(D, pomdp):
    return np.asarray(transition_table(D, pomdp), float), np.asarray(observation_table(D, pomdp), float)


def assert_frequencies(pomdp, s, a, T, O, n=20_000):
    """Steps from (s, a) against the tables: each (s', o) within 5 standard errors."""
    s_next, o = jax.jit(jax.vmap(pomdp.step, (0, None, None)))(
        jr.split(prng.key(0), n), jnp.array(s, jnp.int32), jnp.int32(a)
    )
    i = np.ravel_multi_index(tuple(s), pomdp.state_sizes)
    p = T[i, a][:, None] * O[a]
    flat = np.ravel_multi_index(tuple(np.asarray(s_next).T), pomdp.state_sizes) * p.shape[1]
    flat += np.ravel_multi_index(tuple(np.asarray(o).T), pomdp.observation_sizes)
    frequency = np.bincount(flat, minlength=p.size).reshape(p.shape) / n
    assert np.all(np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-7)


# Tiger and factored tiger.


def test_tiger_graph_is_the_tabular_prior():
    domain = tiger.make_domain()
    expected = Table(*domain.counts, *tiger.SIZES)
    for found, table in zip(
        tables(expected_dynamics(domain.graphs["default"]), domain.pomdp),
        tables(expected, domain.pomdp),
        strict=True,
    ):
        np.testing.assert_allclose(found, table, rtol=1e-6)
    theta = Factored(domain.graphs["default"]).prior(prng.key(0))
    np.testing.assert_allclose(theta.counts.reshape(2, 3), [[5, 3, 0], [3, 5, 0]])  # nothing else is stored


def test_factored_tiger_against_a_second_version():
    """Listening keeps all of s, opening redraws it; only the door is heard, with .85."""
    domain = factored_tiger.make_domain(irrelevant=2)
    T, O = tables(domain.pomdp.dynamics, domain.pomdp)
    for a in range(3):
        np.testing.assert_allclose(T[:, a], np.eye(8) if a == LISTEN else np.full((8, 8), 1 / 8), atol=1e-7)
        heard = [[0.85, 0.15, 0]] * 4 + [[0.15, 0.85, 0]] * 4
        np.testing.assert_allclose(O[a], heard if a == LISTEN else [[0, 0, 1]] * 8, rtol=1e-6)
    for a in range(3):
        assert_frequencies(domain.pomdp, (1, 0, 1), a, T, O)
    counts = domain.counts
    np.testing.assert_allclose(counts.O[LISTEN], [[5, 3, 0]] * 4 + [[3, 5, 0]] * 4, rtol=1e-6)
    np.testing.assert_allclose(counts.T.sum(-1), 10_000, rtol=1e-6)
    start = jax.vmap(domain.pomdp.initial_state)(jr.split(prng.key(1), 4096))
    np.testing.assert_allclose(start.mean(0), 0.5, atol=5 * 0.5 / math.sqrt(4096))


def test_factored_tiger_rewards_are_those_of_tiger():
    pomdp, original = factored_tiger.make_domain(irrelevant=1).pomdp, tiger.make_domain().pomdp
    for door, f, a in itertools.product(range(2), range(2), range(3)):
        s, of_tiger = jnp.array([door, f], jnp.int32), jnp.array([door], jnp.int32)
        assert pomdp.reward(s, jnp.int32(a), s) == original.reward(of_tiger, jnp.int32(a), of_tiger)
        assert bool(pomdp.is_terminal(s, jnp.int32(a), s)) == (a != LISTEN)


# Sysadmin.


def sysadmin_by_hand(n, linear, failure=0.025, infection=0.075):
    """T and O from the text: fail, then reboot."""
    states = list(itertools.product(range(2), repeat=n))
    T, O = np.zeros((2**n, 2 * n, 2**n)), np.zeros((2 * n, 2**n, 2))
    for i, s in enumerate(states):
        for a in range(2 * n):
            up = []
            for c in range(n):
                failing = sum(1 - s[j] for j in (c - 1, c + 1) if 0 <= j < n) if linear else 0
                p = (1 - failure) * (1 - infection) ** failing if s[c] else 0.0
                up.append(p + (1 - p) * 0.95 if a == n + c else p)
            for j, y in enumerate(states):
                T[i, a, j] = math.prod(p if on else 1 - p for p, on in zip(up, y, strict=True))
            status = s[a % n]
            O[a, i, status], O[a, i, 1 - status] = 0.95, 0.05
    return T, O


@pytest.mark.parametrize("topology", ["linear", "independent"])
def test_sysadmin_against_a_second_version(topology):
    domain = sysadmin.make_domain(3, topology)
    T, O = sysadmin_by_hand(3, topology == "linear")
    for found in (domain.pomdp.dynamics, domain.expected_simulator, Table(*domain.counts, (2,) * 3, (2,))):
        for p, q in zip(tables(found, domain.pomdp), (T, O), strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-7)
    for s, a in [((1, 1, 1), 0), ((1, 0, 1), 2), ((0, 1, 1), 3), ((1, 0, 0), 5)]:
        assert_frequencies(domain.pomdp, s, a, T, O)


def test_sysadmin_with_rates_that_the_prior_does_not_expect():
    domain = sysadmin.make_domain(3, failure=0.1, infection=0.3, prior_failure=0.05, prior_infection=0.2)
    truth, expected = sysadmin_by_hand(3, True, 0.1, 0.3), sysadmin_by_hand(3, True, 0.05, 0.2)
    counted = Table(*domain.counts, (2,) * 3, (2,))
    for found, wanted in [
        (domain.pomdp.dynamics, truth),
        (domain.expected_simulator, expected),
        (counted, expected),
    ]:
        for p, q in zip(tables(found, domain.pomdp), wanted, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-7)


def test_sysadmin_rewards_and_start():
    pomdp = sysadmin.make_domain(3).pomdp
    s, s_next = jnp.ones((3,), jnp.int32), jnp.array([1, 0, 1], jnp.int32)
    assert [float(pomdp.reward(s, jnp.int32(a), s_next)) for a in range(6)] == [2, 2, 2, 1, 1, 1]
    assert pomdp.initial_state(prng.key(0)).tolist() == [1, 1, 1]
    assert not pomdp.is_terminal(s, jnp.int32(0), s_next) and pomdp.horizon == 20


# Road racing and collision avoidance: the expected model of a graph is that of the simulators.


def test_road_racing_graph_is_the_expected_simulator():
    domain = road_racing.make_domain(lanes=2)
    found = tables(expected_dynamics(domain.graphs["default"]), domain.pomdp)
    for p, q in zip(found, tables(domain.expected_simulator, domain.pomdp), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-7)


def test_the_figures_graph_has_the_right_margins():
    """lane' given (lane, cars) is right; cars are, but for the car right ahead; o is the distance ahead."""
    domain = road_racing.make_domain(lanes=2)
    sizes = domain.pomdp.state_sizes
    exact_T, exact_O = tables(domain.expected_simulator, domain.pomdp)
    T, O = tables(expected_dynamics(domain.graphs["figure"]), domain.pomdp)
    np.testing.assert_allclose(O, exact_O, atol=1e-7)
    joint, exact = T.reshape(72, 3, *sizes), exact_T.reshape(72, 3, *sizes)
    np.testing.assert_allclose(joint.sum((3, 4)), exact.sum((3, 4)), rtol=1e-5, atol=1e-7)
    states = np.asarray(every_vector(sizes))
    for car in (0, 1):
        others = tuple(axis for axis in (2, 3, 4) if axis != 3 + car)
        free = (states[:, 0] != car) | (states[:, 1 + car] != 1)
        np.testing.assert_allclose(joint.sum(others)[free], exact.sum(others)[free], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(joint.sum(others)[~free, :, :2], 0.5, rtol=1e-5)


@pytest.mark.parametrize("name", ["default", "uncertain-observation"])
def test_collision_avoidance_graph_is_the_expected_simulator(name):
    domain = collision_avoidance.make_domain(size=3, prior_observation_total=30.0)
    found = tables(expected_dynamics(domain.graphs[name]), domain.pomdp)
    for p, q in zip(found, tables(domain.expected_simulator, domain.pomdp), strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-7)


def test_collision_avoidance_prior_counts():
    """noise .4 and total 10 of the published prior: stay .9, move .05, at an edge .95 and .05."""
    domain = collision_avoidance.make_domain(size=5, prior_observation_total=30.0)
    counts = np.asarray(Factored(domain.graphs["uncertain-observation"]).counts)
    b = counts[:75].reshape(3, 5, 5)
    np.testing.assert_allclose(b[1, 0], [9.5, 0.5, 0, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(b[2, 3], [0, 0, 0.5, 9, 0.5], rtol=1e-5)
    np.testing.assert_allclose(counts[75:].reshape(3, 5, 5).sum(-1), 30, rtol=1e-5)
    middle = [0.066807, 0.241730, 0.382925, 0.241730, 0.066807]  # P(o | b' = 2) on five rows
    np.testing.assert_allclose(counts[75:].reshape(3, 5, 5)[0, 2] / 30, middle, atol=1e-6)


# Sizes.


@pytest.mark.parametrize(
    ("lanes", "name", "counts"),
    [(3, "figure", 17_820), (9, "figure", 4_081_467_852), (3, "default", 972), (9, "default", 8_748)],
)
def test_table_sizes_of_road_racing(lanes, name, counts):
    graph = road_racing.make_domain(lanes).graphs[name]
    assert num_counts(graph) == counts
    if counts < 10**6:
        assert Factored(graph).counts.shape == (counts,)


def test_table_sizes_of_collision_avoidance():
    """7 x 7: the obstacle's moves, 3 x 49, and its observed row where that is learned."""
    graphs = collision_avoidance.make_domain(size=7).graphs
    assert num_counts(graphs["default"]) == 147 and num_counts(graphs["uncertain-observation"]) == 294
    assert num_counts(graphs["default"], "full") == 147 * 49


def test_a_setting_that_cannot_fit_is_refused_with_the_figure():
    experiment = preset("road-racing", "fba-pomcp", settings=RoadRacingSettings(lanes=9))
    domain = road_racing.make_domain(9)
    fits = build(experiment, domain).life.agent.gba.posterior
    assert isinstance(fits, Factored) and fits.counts.shape == (8_748,)
    experiment = experiment.changed(factored=FactoredSettings(graph="figure"))
    with pytest.raises(UserError, match=r"4,081,467,852 counts per particle, 15\.2 GiB"):
        build(experiment, domain)


def test_settings_reach_the_posterior():
    experiment = preset("factored-tiger", "fba-pomcp")
    settings = FactoredSettings(structure="uncertain", edge_probability=0.2, model="sampled")
    experiment = experiment.changed(factored=settings)
    posterior = build(experiment, factored_tiger.make_domain()).life.agent.gba.posterior
    assert isinstance(posterior, Factored)
    assert (posterior.num_edges, posterior.edge_probability, posterior.expected) == (3, 0.2, False)
    experiment = experiment.changed(factored=FactoredSettings(graph="figure"))
    with pytest.raises(UserError, match="no graph 'figure'"):
        build(experiment, factored_tiger.make_domain())
    assert FactoredSettings(edge_probability=1.5).problems() and SysadminSettings(computers=0).problems()
