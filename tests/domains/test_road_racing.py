"""Road racing against a second version, exact returns, and frequencies."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.filters import Rejection
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.posterior import sample
from baddr.domains import road_racing
from baddr.domains.catalog import DOMAINS
from baddr.domains.road_racing import RoadDynamics, RoadRacing, believed_speeds, true_speeds
from baddr.domains.road_racing.settings import RoadRacingSettings as Settings
from baddr.domains.tables import observation_table, transition_table
from baddr.fast.runs import advance, start
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.posteriors import Architecture, Dirichlet, Dropout, Posterior
from baddr.posteriors.dropout import initial_weights
from baddr.posteriors.settings import Network

DOMAIN = road_racing.make_domain()


def second_version(p, s, a):
    """{s': (probability, observation, reward)}: every way in which the cars may advance, rule by rule."""
    n, lane = len(p), s[0]
    outcomes = {}
    for noise in itertools.product((False, True), repeat=n):
        cars, probability = list(s[1:]), 1.0
        for i, advances in enumerate(noise):
            p_i = 0.0 if i == lane and cars[i] == 1 else p[i]
            probability *= p_i if advances else 1 - p_i
            cars[i] -= int(advances)
        target = min(max(lane + (-1, 0, 1)[a], 0), n - 1)
        new_lane = lane if cars[target] == 0 else target
        cars = [5 if car == -1 else car for car in cars]
        penalty = 1 if a != 1 and new_lane != lane + (-1, 0, 1)[a] else 0
        if probability > 0:
            before = outcomes.get((new_lane, *cars), (0.0,))[0]
            outcomes[(new_lane, *cars)] = before + probability, cars[new_lane], cars[new_lane] - penalty
    return outcomes


def states(n):
    return list(itertools.product(range(n), *[range(6)] * n))


def vector(s):
    return jnp.array(s, jnp.int32)


def tables(pomdp):
    """p(s' | s, a) and R(s, a, s') in float64."""
    s, a = vector(states(pomdp.state_sizes[0])), jnp.arange(3, dtype=jnp.int32)
    over = jax.vmap(jax.vmap(jax.vmap(pomdp.reward, (None, None, 0)), (None, 0, None)), (0, None, None))
    return np.asarray(transition_table(pomdp.dynamics, pomdp)), np.asarray(jax.jit(over)(s, a, s))


@pytest.fixture(scope="module")
def three_lanes():
    with jax.enable_x64(True):
        return tables(road_racing.make_domain().pomdp)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_transition_against_the_second_version(n, three_lanes):
    """All (s, a, s'): probabilities, observations and rewards. Between them, all that the cars may do."""
    with jax.enable_x64(True):
        pomdp = RoadRacing(n, RoadDynamics(true_speeds(n)))
        T, R = three_lanes if n == 3 else tables(pomdp)
        O = np.asarray(observation_table(pomdp.dynamics, pomdp))
    index = {s: i for i, s in enumerate(states(n))}
    expected_T, expected_R = np.zeros_like(T), np.zeros_like(R)
    p = [(i + 1) / (n + 1) for i in range(n)]
    for (s, i), a in itertools.product(index.items(), range(3)):
        for s_next, (probability, o, r) in second_version(p, s, a).items():
            j = index[s_next]
            expected_T[i, a, j], expected_R[i, a, j] = probability, r
            assert O[a, j, o] == 1
    np.testing.assert_allclose(T, expected_T, atol=1e-12)
    np.testing.assert_array_equal(np.where(expected_T > 0, R, 0), expected_R)
    np.testing.assert_allclose(T.sum(-1), 1, atol=1e-12)
    np.testing.assert_array_equal(O.sum(-1), 1)


@pytest.mark.parametrize("n", [4, 9])
def test_larger_roads_against_the_second_version(n):
    """40 random (s, a) each, every s' that is possible there, and as many s' drawn at random."""
    D = RoadDynamics(true_speeds(n))
    rng = np.random.default_rng(n)
    log_prob = jax.jit(jax.vmap(D.transition_log_prob, (None, None, 0)))
    for _ in range(40):
        s = (int(rng.integers(n)), *rng.integers(0, 6, n).tolist())
        a = int(rng.integers(3))
        expected = second_version([(i + 1) / (n + 1) for i in range(n)], s, a)
        others = np.column_stack([rng.integers(0, n, 2**n), rng.integers(0, 6, (2**n, n))])
        asked = np.concatenate([np.array(list(expected)), others])[: 2**n]
        p = np.exp(log_prob(vector(s), jnp.int32(a), jnp.asarray(asked, jnp.int32)))
        np.testing.assert_allclose(p, [expected.get(tuple(x), (0.0,))[0] for x in asked.tolist()], rtol=1e-5)
        assert p[: len(expected)].sum() == pytest.approx(1, abs=1e-5)


def discounted(T, R, p0, choose, steps=20, discount=0.95):
    """The return of a policy, forward over the distribution of states."""
    r = (T * R).sum(-1)
    total, p = 0.0, p0
    for t in range(steps):
        p_a = choose(t)
        total += discount**t * float(np.sum(p[:, None] * p_a[None] * r))
        p = np.einsum("s,a,sax->x", p, p_a, T)
    return total


def test_exact_returns_of_three_lanes(three_lanes):
    """Staying, acting at random, and the best that seeing all cars could do: values computed elsewhere."""
    T, R = three_lanes
    p0 = np.zeros(len(T))
    p0[states(3).index((1, 5, 5, 5))] = 1
    assert discounted(T, R, p0, lambda t: np.eye(3)[1]) == pytest.approx(26.84886996864038, abs=1e-6)
    assert discounted(T, R, p0, lambda t: np.full(3, 1 / 3)) == pytest.approx(32.88977546228955, abs=1e-6)
    V = np.zeros(len(T))
    for _ in range(20):
        V = ((T * R).sum(-1) + 0.95 * T @ V).max(-1)
    assert p0 @ V == pytest.approx(49.50950472240047, abs=1e-6)


def test_draws_have_the_probabilities_of_the_second_version():
    """20,000 draws from each of four (s, a); every s' within 5 standard errors of its probability."""
    n, pomdp = 20_000, DOMAIN.pomdp
    draw = jax.jit(jax.vmap(pomdp.step, (0, None, None)))
    cases = [((1, 5, 5, 5), 1), ((1, 1, 1, 0), 0), ((2, 3, 1, 1), 0), ((0, 0, 0, 2), 2)]
    for number, (s, a) in enumerate(cases):
        s_next, o = draw(jr.split(prng.key(number), n), vector(s), jnp.int32(a))
        drawn, counts = np.unique(np.asarray(s_next), axis=0, return_counts=True)
        expected = second_version([0.25, 0.5, 0.75], s, a)
        assert {tuple(x) for x in drawn.tolist()} <= set(expected)
        frequency = dict(zip(map(tuple, drawn.tolist()), counts / n, strict=True))
        for x, (p, _, _) in expected.items():
            assert abs(frequency.get(x, 0.0) - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-12
        rows = np.asarray(s_next)
        np.testing.assert_array_equal(o[:, 0], rows[np.arange(n), 1 + rows[:, 0]])


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_an_episode_starts_in_the_middle_with_all_cars_far_away(n):
    pomdp = road_racing.make_domain(lanes=n).pomdp
    s = pomdp.initial_state(prng.key(0))
    assert s.tolist() == [n // 2, *[5] * n] and s.dtype == jnp.int32
    assert pomdp.initial_observation(prng.key(0), s).tolist() == [5]
    assert pomdp.state_sizes == (n, *[6] * n) and pomdp.observation_sizes == (6,)
    assert (pomdp.num_actions, pomdp.horizon, pomdp.discount) == (3, 20, 0.95)


def test_never_terminal_and_determined_by_the_key():
    pomdp = DOMAIN.pomdp
    s, a = vector((1, 1, 0, 0)), jnp.int32(0)
    s_next, o = pomdp.step(prng.key(3), s, a)
    again, o_again = jax.jit(lambda k, s, a: pomdp.step(k, s, a))(prng.key(3), s, a)
    assert jnp.array_equal(s_next, again) and jnp.array_equal(o, o_again)
    assert not pomdp.is_terminal(s, a, s_next)
    assert s_next.dtype == o.dtype == jnp.int32


def test_a_family_is_a_vmap_of_the_constructor():
    """From (1, 3, 3, 3) all cars advance with the product of the speeds."""
    speeds = jnp.array([[0.1, 0.2, 0.3], [0.5, 0.5, 0.5], [1.0, 0.9, 0.0]])
    members = jax.vmap(RoadDynamics)(speeds)
    s, a, s_next = vector((1, 3, 3, 3)), jnp.int32(1), vector((1, 2, 2, 2))
    advance = jax.vmap(lambda D: DOMAIN.pomdp.with_dynamics(D).dynamics.transition_log_prob(s, a, s_next))
    np.testing.assert_allclose(jnp.exp(advance(members)), [0.006, 0.125, 0.0], rtol=1e-5)


def test_simulators_draw_each_lanes_speed_from_the_prior():
    """Beta(500, 500): mean 1/2, variance 1/4004; 12,000 draws, within 5 standard errors."""
    D = jax.vmap(DOMAIN.sample_simulator)(jr.split(prng.key(0), 4000))
    speeds = np.asarray(D.speeds, np.float64)
    assert speeds.shape == (4000, 3)
    sd = np.sqrt(1 / 4004)
    assert np.all(np.abs(speeds.mean(0) - 0.5) < 5 * sd / np.sqrt(4000))
    assert abs(speeds.var() / sd**2 - 1) < 5 * np.sqrt(2 / 12_000)
    assert np.all(np.abs(np.corrcoef(speeds.T)[np.triu_indices(3, 1)]) < 5 / np.sqrt(4000))
    np.testing.assert_array_equal(DOMAIN.expected_simulator.speeds, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("n", [1, 2])
def test_the_tabular_prior_expects_speeds_of_one_half(n):
    """Rows with several outcomes have the total 10, all others (and all observations) are known."""
    counts = road_racing.make_domain(lanes=n).counts
    for (i, s), a in itertools.product(enumerate(states(n)), range(3)):
        expected = second_version([0.5] * n, s, a)
        row = np.zeros(len(states(n)))
        for s_next, (p, _, _) in expected.items():
            row[states(n).index(s_next)] = p * (10 if len(expected) > 1 else 10_000)
        np.testing.assert_allclose(counts.T[i, a], row, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(counts.O).sum(-1), 10_000)
    assert DOMAIN.counts is None


class Speeds(Posterior):
    """A mixture for the test: theta is the speeds."""

    def prior(self, key):
        return true_speeds(3)

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return RoadDynamics(theta)

    def update(self, key, theta, s, a, s_next, o):
        return theta


def test_describe_gives_the_moments_of_the_speeds():
    speeds, w = np.array([[0.2, 0.5, 0.9], [0.4, 0.5, 0.1]], np.float32), np.array([0.75, 0.25])
    s = jnp.tile(vector((0, 1, 1, 1)), (2, 1))
    belief = Particles(AugmentedState(s, jnp.asarray(speeds)), jnp.log(jnp.asarray(w, jnp.float32)))
    model = jax.jit(lambda key, belief: DOMAIN.describe(key, Speeds(), belief))(prng.key(0), belief)
    mean = w @ speeds
    np.testing.assert_allclose(model["speed_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(model["speed_std"], np.sqrt(w @ (speeds - mean) ** 2), atol=1e-6)


def test_speeds_are_read_from_networks_and_tables_alike():
    """Networks: by hand from the features' marginals. A table of counts: 1/2 in its prior."""
    architecture = Architecture(Network(hidden=8, dropout=0.5), (3, 6, 6, 6), 3, (6,))

    @jax.jit
    def every_outcome(key):
        posterior = Dropout(initial_weights(key, architecture)[None] * 3, architecture)
        D = sample(posterior, key, posterior.ensemble[0])
        log_prob = jax.vmap(D.transition_log_prob, (None, None, 0))
        return log_prob(vector((1, 3, 3, 3)), jnp.int32(1), vector(states(3))), believed_speeds(D, 3)

    log_p, speeds = every_outcome(prng.key(1))
    p = np.exp(log_p).reshape(3, 6, 6, 6)
    marginals = [p.sum((0, 2, 3)), p.sum((0, 1, 3)), p.sum((0, 1, 2))]
    by_hand = [m[2] / (m[2] + m[3]) for m in marginals]
    assert np.ptp(by_hand) > 0.05  # else this network could not tell lanes apart
    np.testing.assert_allclose(speeds, by_hand, rtol=1e-4)
    two = road_racing.make_domain(lanes=2)
    table = Dirichlet(two.counts, two.pomdp.state_sizes, two.pomdp.observation_sizes)
    read = jax.jit(lambda counts: believed_speeds(table.dynamics(counts, ()), 2))
    np.testing.assert_allclose(read(two.counts), [0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize("n", [2, 3])
def test_what_networks_cannot_learn_is_known(n):
    """Features drawn apart miss that the lane depends on the cars: E[sum_i H(s'_i) - H(s')] by enumeration.

    By hand: ln 2 where the car of another lane that the agent wants is at 0 or 1. `ROAD_MAX_GAP` leaves room.
    """
    entropy = lambda p: -float(np.sum(p * np.log(p)))
    gaps = []
    for s, a in itertools.product(states(n), range(3)):
        outcomes = {s_next: p for s_next, (p, _, _) in second_version([0.5] * n, s, a).items()}
        gap = -entropy(np.array(list(outcomes.values())))
        for i in range(1 + n):
            marginal = [sum(p for s_next, p in outcomes.items() if s_next[i] == v) for v in range(max(6, n))]
            gap += entropy(np.array([p for p in marginal if p > 0]))
        gaps.append(gap)
    assert np.mean(gaps) == pytest.approx(2 * (n - 1) / (3 * n) * np.log(2) / 3, rel=1e-9)


def test_presets_are_the_columns_of_the_appendix():
    three, nine = (DOMAINS["road-racing"].presets(Settings(lanes=n))["paper"] for n in (3, 9))
    for paper in (three, nine):
        planner, network = paper.groups["planner"], paper.groups["network"]
        assert (planner.num_simulations, planner.exploration, planner.depth) == (128, 15, 3)
        assert paper.groups["filter"] == Rejection(num_particles=1024)
        assert paper.groups["pretrain"].optimizer == "sgd"
        assert (network.dropout, network.learning_rate) == (0.1, 0.0001)
    train = lambda p: (p.batches, p.batch_size, p.learning_rate)
    sizes = lambda p: (p.groups["network"].hidden, *train(p.groups["pretrain"]))
    assert sizes(three) == (32, 2048, 64, 0.005) and sizes(nine) == (256, 16384, 256, 0.0025)
    assert (three.runs, three.episodes, nine.runs, nine.episodes) == (1000, 200, 300, 300)


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"lanes": 0}, "lanes"),
        ({"certainty": 0.0}, "certainty"),
        ({"prior_total": -1.0}, "prior-total"),
        ({"discount": 1.5}, "discount"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, word):
    [sentence] = Settings(**settings).problems()
    assert f"domain.{word}" in sentence
    assert Settings().problems() == []


def test_random_and_staying_return_what_others_measured_with_nine_lanes():
    """2,000 episodes of each; within 4 standard errors, theirs included."""
    pomdp = road_racing.make_domain(lanes=9).pomdp

    def episode(key, stay):
        def step(s, t):
            key_a, key_s = jr.split(jr.fold_in(key, t))
            a = jnp.where(stay, 1, jr.randint(key_a, (), 0, 3))
            s_next, _ = pomdp.step(key_s, s, a)
            return s_next, pomdp.reward(s, a, s_next)

        _, r = jax.lax.scan(step, pomdp.initial_state(key), jnp.arange(20))
        return jnp.sum(r * 0.95 ** np.arange(20, dtype=np.float32))

    episodes = jax.jit(jax.vmap(episode, (0, None)))
    for stay, theirs, tolerance in ((False, 36.56564, 0.13845), (True, 26.73819, 0.12415)):
        ours = np.asarray(episodes(jr.split(prng.key(7), 2000), jnp.array(stay)))
        standard_error = np.hypot(ours.std() / np.sqrt(2000), tolerance / 3)
        assert abs(ours.mean() - theirs) < 4 * standard_error


@pytest.mark.slow
@pytest.mark.parametrize(
    "lanes, model, theirs, tolerance",
    [
        (3, "true", 46.31366510375189, 0.2596295177384899),
        (3, "prior", 43.278605234145864, 0.24803598845499367),
        (9, "true", 54.32104531188685, 0.22974151407701912),
        (9, "prior", 44.793408631176064, 0.22475702484828855),
    ],
)
def test_po_uct_returns_what_others_measured(lanes, model, theirs, tolerance):
    """The paper's budget on the true world; `tolerance` is 3 standard errors of theirs."""
    experiment = preset("road-racing", "pomcp", "paper", Settings(lanes=lanes))
    domain = build_domain(experiment)
    believed = domain.pomdp.dynamics if model == "true" else domain.expected_simulator
    agent = build_agent(experiment, replace(domain, pomdp=domain.pomdp.with_dynamics(believed)))
    runs, episodes = 128, 8
    state = start(jr.split(prng.key(0), runs), agent, domain.pomdp)
    _, steps = advance(state, agent, domain.pomdp, jnp.int32(episodes), 20 * episodes)
    ours = np.asarray(steps.tally.discounted_return)[np.asarray(steps.ended)]
    assert len(ours) == runs * episodes
    standard_error = ours.std() / np.sqrt(len(ours))
    print(f"{lanes} lanes, {model} model: {ours.mean():.2f} +- {standard_error:.2f}, theirs {theirs:.2f}")
    assert abs(ours.mean() - theirs) < 4 * np.hypot(standard_error, tolerance / 3)
