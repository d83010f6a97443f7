"""Collision avoidance against a second version, exact returns and optima, and frequencies."""

import itertools
from dataclasses import replace
from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.posterior import sample
from baddr.domains import collision_avoidance
from baddr.domains.catalog import DOMAINS
from baddr.domains.collision_avoidance import CollisionDynamics, believed_policy, noise_table, policy
from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings as Settings
from baddr.domains.tables import observation_table, transition_table
from baddr.fast.pretrain import uniform_states
from baddr.fast.runs import advance, start
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.posteriors import Architecture, Dropout, Posterior
from baddr.posteriors.dropout import initial_weights
from baddr.posteriors.settings import Network

DOMAIN = collision_avoidance.make_domain()
TRUTH = (0.25, 0.5, 0.25)
PRIOR = (0.05, 0.9, 0.05)


def states(N):
    return list(itertools.product(range(N), repeat=3))


def vector(s):
    return jnp.array(s, jnp.int32)


def second_version(N, moves, s, a):
    """{s': (probability, reward)}."""
    x, y, b = s
    clamp = lambda row: min(max(row, 0), N - 1)
    outcomes = {}
    for move, probability in zip((-1, 0, 1), moves, strict=True):
        s_next = max(x - 1, 0), clamp(y + (-1, 0, 1)[a]), clamp(b + move)
        crash = s_next[0] == 0 and s_next[1] == s_next[2]
        r = (-1.0 if a != 1 else 0.0) - (1000.0 if crash else 0.0)
        outcomes[s_next] = outcomes.get(s_next, (0.0, r))[0] + probability, r
    return outcomes


def second_noise(N, sigma=1.0):
    """p(observed | row) by sums over errors: round(e) = k where e lies in (k - 1/2, k + 1/2)."""
    normal = NormalDist(0, sigma)
    table = np.zeros((N, N))
    for b, error in itertools.product(range(N), range(-60, 61)):
        table[b, min(max(b + error, 0), N - 1)] += normal.cdf(error + 0.5) - normal.cdf(error - 0.5)
    return table


def tables(N, **settings):
    """T, O and R of the library, in float64."""
    with jax.enable_x64(True):
        pomdp = collision_avoidance.make_domain(N, **settings).pomdp
        s, a = vector(states(N)), jnp.arange(3, dtype=jnp.int32)
        over = jax.vmap(jax.vmap(jax.vmap(pomdp.reward, (None, None, 0)), (None, 0, None)), (0, None, None))
        T, O = transition_table(pomdp.dynamics, pomdp), observation_table(pomdp.dynamics, pomdp)
        return np.asarray(T), np.asarray(O), np.asarray(jax.jit(over)(s, a, s), np.float64)


@pytest.fixture(scope="module")
def truth():
    return {N: tables(N) for N in (3, 5)}


def initial(N):
    p0 = np.zeros(N**3)
    p0[states(N).index((N - 1, N // 2, N // 2))] = 1
    return p0


@pytest.mark.parametrize("N", [3, 5])
def test_every_transition_and_observation_against_the_second_version(N, truth):
    T, O, R = truth[N]
    index = {s: i for i, s in enumerate(states(N))}
    expected_T, expected_O = np.zeros_like(T), np.zeros_like(O)
    for (s, i), a in itertools.product(index.items(), range(3)):
        for s_next, (p, r) in second_version(N, TRUTH, s, a).items():
            expected_T[i, a, index[s_next]] = p
            assert R[i, a, index[s_next]] == r
    for ((x, y, b), j), seen in itertools.product(index.items(), range(N)):
        expected_O[:, j, index[x, y, seen]] = second_noise(N)[b, seen]
    np.testing.assert_allclose(T, expected_T, atol=1e-12)
    np.testing.assert_allclose(O, expected_O, atol=1e-12)
    np.testing.assert_allclose(T.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(O.sum(-1), 1, atol=1e-12)


def test_an_obstacle_with_a_preference_moves_that_way():
    """The truth is symmetric: only another policy shows which way down is."""
    D = CollisionDynamics(policy(0.7, 0.1), noise_table(5, 1.0))
    log_prob = eqx.filter_jit(D.transition_log_prob)
    for s, a in [((3, 2, 2), 0), ((2, 4, 0), 1), ((1, 0, 4), 2)]:
        for s_next, (p, _) in second_version(5, (0.7, 0.2, 0.1), s, a).items():
            log_p = log_prob(vector(s), jnp.int32(a), vector(s_next))
            assert float(jnp.exp(log_p)) == pytest.approx(p, rel=1e-5)


def test_the_noise_table_has_the_published_values():
    """7 rows, to six digits."""
    rows = [
        [0.691462, 0.241730, 0.060598, 0.005977, 0.000229, 3.4e-6, 2e-8],
        [0.308538, 0.382925, 0.241730, 0.060598, 0.005977, 0.000229, 3.4e-6],
        [0.066807, 0.241730, 0.382925, 0.241730, 0.060598, 0.005977, 0.000233],
        [0.006210, 0.060598, 0.241730, 0.382925, 0.241730, 0.060598, 0.006210],
    ]
    expected = np.array([*rows, *[row[::-1] for row in rows[2::-1]]])
    np.testing.assert_allclose(noise_table(7, 1.0), expected, atol=6e-7)
    np.testing.assert_allclose(noise_table(5, 2.0), second_noise(5, 2.0), atol=1e-6)


def policy_value(T, R, p0, p_a, steps):
    """The discounted return of an open-loop policy, forward over the distribution of states."""
    r, total, p = (T * R).sum(-1), 0.0, p0
    for t in range(steps):
        total += 0.95**t * float(np.sum(p[:, None] * p_a[None] * r))
        p = np.einsum("s,a,sax->x", p, p_a, T)
    return total


def optimum(T, O, R, b, steps):
    """max over policies, by recursion over every history of actions and observations."""
    r, best = (T * R).sum(-1), []
    for a in range(3):
        value = float(b @ r[:, a])
        if steps > 1:
            joint = (b @ T[:, a])[:, None] * O[a]  # p(s', o)
            for o in np.flatnonzero(joint.sum(0)):
                p_o = joint[:, o].sum()
                value += 0.95 * p_o * optimum(T, O, R, joint[:, o] / p_o, steps - 1)
        best.append(value)
    return max(best)


@pytest.mark.parametrize(
    "N, stay, random, best, seeing",
    [
        (3, -356.25, -317.96666666666664, -186.55828181158176, -119.69999999999999),
        (5, -234.43847656249997, -179.27376601080243, -40.35173693402303, -21.259515625),
    ],
)
def test_exact_returns(N, stay, random, best, seeing, truth):
    """Staying, acting at random, the optimum, and the best if the obstacle were seen: computed elsewhere."""
    T, O, R = truth[N]
    p0 = initial(N)
    assert policy_value(T, R, p0, np.eye(3)[1], N - 1) == pytest.approx(stay, abs=1e-6)
    assert policy_value(T, R, p0, np.full(3, 1 / 3), N - 1) == pytest.approx(random, abs=1e-6)
    assert optimum(T, O, R, p0, N - 1) == pytest.approx(best, abs=1e-6)
    V = np.zeros(N**3)
    for _ in range(N - 1):
        V = ((T * R).sum(-1) + 0.95 * T @ V).max(-1)
    assert p0 @ V == pytest.approx(seeing, abs=1e-6)


@pytest.mark.parametrize(
    "sigma, best", [(0.5, -148.20091769342488), (1.5, -213.7672058264174), (2.0, -231.5484328798588)]
)
def test_exact_optimum_under_other_noise(sigma, best):
    T, O, R = tables(3, noise=sigma)
    assert optimum(T, O, R, initial(3), 2) == pytest.approx(best, abs=1e-6)


def test_draws_have_the_probabilities_of_the_second_version():
    """20,000 steps from each of four (s, a); every (s', o) within 5 standard errors of its probability."""
    n, pomdp = 20_000, DOMAIN.pomdp
    draw = jax.jit(jax.vmap(pomdp.step, (0, None, None)))
    noise = second_noise(5)
    for number, (s, a) in enumerate([((4, 2, 2), 1), ((1, 0, 0), 0), ((2, 4, 4), 2), ((3, 1, 3), 0)]):
        s_next, o = draw(jr.split(prng.key(number), n), vector(s), jnp.int32(a))
        assert s_next.dtype == o.dtype == jnp.int32
        drawn, counts = np.unique(np.concatenate([s_next, o], 1), axis=0, return_counts=True)
        frequency = dict(zip(map(tuple, drawn.tolist()), counts / n, strict=True))
        expected = {
            (*x, *x[:2], seen): p * noise[x[2], seen]
            for x, (p, _) in second_version(5, TRUTH, s, a).items()
            for seen in range(5)
        }
        assert set(frequency) <= set(expected)
        for x, p in expected.items():
            assert abs(frequency.get(x, 0.0) - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-12


@pytest.mark.parametrize("N", [3, 5, 7])
def test_an_episode_flies_from_the_right_to_the_left(N):
    """It starts in the middle rows and ends after N - 1 steps, and not before."""
    pomdp = collision_avoidance.make_domain(N).pomdp
    assert pomdp.state_sizes == pomdp.observation_sizes == (N, N, N)
    assert (pomdp.num_actions, pomdp.horizon, pomdp.discount) == (3, N - 1, 0.95)
    key = prng.key(0)
    s = pomdp.initial_state(key)
    assert s.tolist() == [N - 1, N // 2, N // 2] and s.dtype == jnp.int32
    o = pomdp.initial_observation(key, s)
    assert o.tolist()[:2] == s.tolist()[:2] and 0 <= int(o[2]) < N
    step = eqx.filter_jit(pomdp.step)
    for t in range(N - 1):
        assert collision_avoidance.is_legal(s)
        s_next, o = step(jr.fold_in(key, t), s, jnp.int32(t % 3))
        again, o_again = step(jr.fold_in(key, t), s, jnp.int32(t % 3))
        assert jnp.array_equal(s_next, again) and jnp.array_equal(o, o_again)
        assert np.all((np.asarray(s_next) >= 0) & (np.asarray(s_next) < N))
        assert bool(pomdp.is_terminal(s, jnp.int32(t % 3), s_next)) == (t == N - 2)
        s = s_next
    assert not collision_avoidance.is_legal(s)


def test_networks_are_trained_on_states_before_the_last_column():
    sample = jax.vmap(uniform_states(DOMAIN.pomdp.state_sizes, DOMAIN.is_legal))
    s = np.asarray(jax.jit(sample)(jr.split(prng.key(0), 8000)))
    counts = np.stack([np.bincount(s[:, i], minlength=5) for i in range(3)])
    assert counts[0, 0] == 0
    assert np.all(np.abs(counts[0, 1:] / 8000 - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 8000))
    assert np.all(np.abs(counts[1:] / 8000 - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 8000))


def test_a_family_is_a_vmap_of_the_constructor():
    policies = jnp.array([TRUTH, PRIOR, (0.0, 0.25, 0.75)])
    members = jax.vmap(CollisionDynamics, (0, None))(policies, noise_table(5, 1.0))
    assert members.policy.shape == (3, 3)
    s, a = vector((4, 2, 2)), jnp.int32(1)

    def moves_up(moves):
        D = CollisionDynamics(moves, DOMAIN.pomdp.noise)
        return DOMAIN.pomdp.with_dynamics(D).dynamics.transition_log_prob(s, a, vector((3, 2, 3)))

    np.testing.assert_allclose(jnp.exp(jax.vmap(moves_up)(policies)), [0.25, 0.05, 0.75], rtol=1e-5)


@pytest.mark.parametrize("certainty", [10.0, 10_000.0])
def test_simulators_draw_the_obstacles_policy_from_the_prior(certainty):
    """Dirichlet(c * (.05, .9, .05)): mean, and variance p (1 - p) / (c + 1); 20,000 draws, 5 s.e.."""
    domain, n = collision_avoidance.make_domain(certainty=certainty), 20_000
    moves = np.asarray(jax.vmap(domain.sample_simulator)(jr.split(prng.key(0), n)).policy, np.float64)
    np.testing.assert_allclose(moves.sum(-1), 1, atol=1e-6)
    p = np.array(PRIOR)
    variance = p * (1 - p) / (certainty + 1)
    assert np.all(np.abs(moves.mean(0) - p) < 5 * np.sqrt(variance / n))
    fourth = ((moves - p) ** 4).mean(0)
    assert np.all(np.abs(((moves - p) ** 2).mean(0) - variance) < 5 * np.sqrt((fourth - variance**2) / n))
    np.testing.assert_allclose(domain.expected_simulator.policy, p, rtol=1e-6)


@pytest.mark.parametrize("N", [3, 5])
def test_the_tabular_prior_is_that_of_the_literature(N):
    """Rows of (.05, .9, .05), at an edge (.95, .05), with the total 10; observations known with 10,000."""
    counts = collision_avoidance.make_domain(N).counts
    index = {s: i for i, s in enumerate(states(N))}
    expected_T, expected_O = np.zeros(counts.T.shape), np.zeros(counts.O.shape)
    for (s, i), a in itertools.product(index.items(), range(3)):
        for s_next, (p, _) in second_version(N, PRIOR, s, a).items():
            expected_T[i, a, index[s_next]] = 10 * p
    for ((x, y, b), j), seen in itertools.product(index.items(), range(N)):
        expected_O[:, j, index[x, y, seen]] = 10_000 * second_noise(N)[b, seen]
    np.testing.assert_allclose(counts.T, expected_T, rtol=1e-5)
    np.testing.assert_allclose(counts.O, expected_O, rtol=1e-4, atol=1e-3)
    edge = counts.T[index[2, 1, 0], 1]
    np.testing.assert_allclose(edge[jnp.array([index[1, 1, 0], index[1, 1, 1]])], [9.5, 0.5], rtol=1e-5)
    assert collision_avoidance.make_domain(7).counts is None


class Policies(Posterior):
    """A mixture for the test: theta is the obstacle's policy."""

    def prior(self, key):
        return jnp.array(TRUTH)

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return CollisionDynamics(theta, DOMAIN.pomdp.noise)

    def update(self, key, theta, s, a, s_next, o):
        return theta


def test_describe_gives_the_mean_policy():
    moves, w = np.array([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0]], np.float32), np.array([0.75, 0.25], np.float32)
    s = jnp.tile(vector((1, 1, 1)), (2, 1))
    belief = Particles(AugmentedState(s, jnp.asarray(moves)), jnp.log(jnp.asarray(w)))
    model = jax.jit(lambda key, belief: DOMAIN.describe(key, Policies(), belief))(prng.key(0), belief)
    np.testing.assert_allclose(model["obstacle_mean"], w @ moves, rtol=1e-5)
    variance = w @ (moves - w @ moves) ** 2
    np.testing.assert_allclose(model["obstacle_std"], np.sqrt(variance), rtol=1e-4)


def test_the_policy_is_read_from_networks():
    """By hand from the marginal of the obstacle's row."""
    architecture = Architecture(Network(hidden=8, dropout=0.5), (5, 5, 5), 3, (5, 5, 5))

    @jax.jit
    def every_outcome(key):
        posterior = Dropout(initial_weights(key, architecture)[None] * 3, architecture)
        D = sample(posterior, key, posterior.ensemble[0])
        log_prob = jax.vmap(D.transition_log_prob, (None, None, 0))
        return log_prob(vector((4, 2, 2)), jnp.int32(1), vector(states(5))), believed_policy(D, 5)

    log_p, moves = every_outcome(prng.key(1))
    marginal = np.exp(log_p).reshape(5, 5, 5).sum((0, 1))[1:4]
    assert np.ptp(marginal) > 0.05  # else there would be nothing to tell apart
    np.testing.assert_allclose(moves, marginal / marginal.sum(), rtol=1e-4)


def test_the_preset_is_the_column_of_the_appendix():
    paper = DOMAINS["collision-avoidance"].presets(Settings())["paper"]
    assert (paper.runs, paper.episodes) == (35000, 500)
    planner, network, training = (paper.groups[name] for name in ("planner", "network", "pretrain"))
    assert (planner.num_simulations, planner.exploration, planner.depth) == (256, 1000, 0)
    assert paper.groups["filter"] == Importance(num_particles=128, resample_below=32.0)
    assert (network.hidden, network.dropout, network.learning_rate) == (64, 0.5, 0.0005)
    assert network.learn_transition and not network.learn_observation
    assert (training.batches, training.batch_size, training.learning_rate) == (8192, 32, 0.05)
    assert (training.optimizer, training.num_networks) == ("sgd", 1)


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"size": 4}, "size"),
        ({"size": 1}, "size"),
        ({"down": 0.7, "up": 0.4}, "down"),
        ({"down": -0.1}, "down"),
        ({"prior_down": 0.0}, "prior-down"),
        ({"prior_up": 0.95}, "prior-up"),
        ({"noise": 0.0}, "noise"),
        ({"certainty": 0.0}, "certainty"),
        ({"prior_total": 0.0}, "prior-total"),
        ({"discount": -0.1}, "discount"),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, word):
    [sentence] = Settings(**settings).problems()
    assert f"domain.{word}" in sentence
    assert Settings().problems() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "N, model, theirs, tolerance",
    [
        (3, "true", -220.39041666650152, 4.901988708794543),
        (3, "prior", -255.44164083315272, 5.151212112330219),
        (5, "true", -68.51447506669622, 2.7968317530450353),
        (5, "prior", -119.0042394896222, 3.59965582152081),
    ],
)
def test_po_uct_returns_what_others_measured(N, model, theirs, tolerance):
    """The paper's budget on the true world; `tolerance` is 3 standard errors of theirs."""
    experiment = preset("collision-avoidance", "pomcp", "paper", Settings(size=N))
    domain = build_domain(experiment)
    believed = domain.pomdp.dynamics if model == "true" else domain.expected_simulator
    agent = build_agent(experiment, replace(domain, pomdp=domain.pomdp.with_dynamics(believed)))
    runs, episodes = 256, 64
    state = start(jr.split(prng.key(0), runs), agent, domain.pomdp)
    _, steps = advance(state, agent, domain.pomdp, jnp.int32(episodes), (N - 1) * episodes)
    ours = np.asarray(steps.tally.discounted_return)[np.asarray(steps.ended)]
    assert len(ours) == runs * episodes
    standard_error = ours.std() / np.sqrt(len(ours))
    print(f"N = {N}, {model} model: {ours.mean():.1f} +- {standard_error:.1f}, theirs {theirs:.1f}")
    assert abs(ours.mean() - theirs) < 4 * np.hypot(standard_error, tolerance / 3)
