"""`exact.py` against rational arithmetic, published closed forms, and brute force over policies."""

import itertools
import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import DATA

from baddr import exact
from baddr.core.pomdp import Table, flat_index
from baddr.domains import tiger
from baddr.posteriors import Counts, Dirichlet

BELIEFS = json.loads((DATA / "tiger_exact_beliefs.json").read_text())["histories"]
VALUES = json.loads((DATA / "values.json").read_text())
ACTIONS = {"openL": 0, "openR": 1, "listen": 2}
OBSERVATIONS = {"hearL": 0, "hearR": 1, "null": 2}
UNIFORM = np.array([0.5, 0.5])


def tiger_tables(hearing: np.ndarray, known: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    T, O = np.zeros((2, 3, 2)), np.zeros((3, 2, 3))
    T[:, :2], T[:, 2] = known / 2, known * np.eye(2)
    O[:2, :, 2], O[2, :, :2] = known, hearing
    return T, O


def tiger_D(accuracy: float) -> np.ndarray:
    T, O = tiger_tables(np.array([[accuracy, 1 - accuracy], [1 - accuracy, accuracy]]))
    return T[..., None] * O[None]


def make_tiger(accuracy: float = 0.85, discount: float = 0.95) -> exact.TabularPOMDP:
    R = np.full((2, 3, 2), -1.0)
    R[:, :2] = np.where(np.eye(2), 10.0, -100.0)[..., None]
    terminal = np.zeros((2, 3, 2), bool)
    terminal[:, :2] = True
    return exact.TabularPOMDP(tiger_D(accuracy), R, terminal, UNIFORM, discount, 30)


def tiger_prior(known: float = 1.0, learn_all: bool = False) -> exact.DirichletTables:
    """Dirichlet (5, 3) for each door's listening row; all else is known, or learned too."""
    listening = np.zeros((3, 2), bool)
    listening[2] = True
    T, O = tiger_tables(np.array([[5.0, 3], [3, 5]]), known)
    if learn_all:
        return exact.DirichletTables(T, O)
    return exact.DirichletTables(T, O, np.zeros((2, 3), bool), listening)


def random_problem(seed: int, terminals: bool = False) -> tuple[exact.TabularPOMDP, exact.DirichletTables]:
    """3 states, 2 actions, 2 observations; counts that float32 holds exactly."""
    rng = np.random.default_rng(seed)
    counts = exact.DirichletTables(rng.integers(1, 9, (3, 2, 3)) / 4, rng.integers(1, 9, (2, 3, 2)) / 4)
    D = counts.predictive(next(iter(counts.prior())))
    terminal = rng.random((3, 2, 3)) < (0.3 if terminals else 0)
    p0 = rng.dirichlet(np.ones(3))
    return exact.TabularPOMDP(D, rng.normal(size=(3, 2, 3)), terminal, p0, 0.9, 3), counts


def given_state(b: exact.Mixture, s: int) -> exact.Mixture:
    p = exact.state_probabilities(b)[s]
    return {theta: w * (np.arange(len(w)) == s) / p for theta, w in b.items()}


def num_components(b: exact.Mixture) -> int:
    return sum(int(np.count_nonzero(w)) for w in b.values())


# --- the exact mixture -------------------------------------------------------------------------------


def tiger_steps(posterior: exact.DirichletTables, history: list) -> list:
    """(belief, p_obs) after every step; opening a door ends the episode."""
    b = exact.initial_mixture(posterior, UNIFORM)
    steps = [(b, None)]
    for action, observation in history:
        b, p_o = exact.mixture_update(posterior, b, ACTIONS[action], OBSERVATIONS[observation])
        b = exact.next_episode(b, UNIFORM) if action != "listen" else b
        steps.append((b, p_o))
    return steps


@pytest.mark.parametrize("name", BELIEFS)
def test_tiger_belief_equals_rational_arithmetic(name: str) -> None:
    posterior, oracle = tiger_prior(), BELIEFS[name]
    steps = tiger_steps(posterior, oracle["history"])
    for (b, p_o), truth in zip(steps, oracle["steps"], strict=True):
        p_left = exact.state_probabilities(b)[0]
        ours = {
            "p_obs": p_o,
            "p_state_L": p_left,
            "p_hearL_if_listen": exact.predictive(posterior, b, 2).sum((0, 1))[0],
            "expected_reward_openL": 10 * p_left - 100 * (1 - p_left),
            "n_components": num_components(b),
        }
        for x, side in enumerate("LR"):
            ours[f"mean_acc_{side}"], ours[f"var_acc_{side}"] = posterior.observation_moments(b, 2, x, x)
            for y, state in enumerate("LR"):
                mean, _ = posterior.observation_moments(given_state(b, y), 2, x, x)
                ours[f"mean_acc_{side}_given_state_{state}"] = mean
        assert set(ours) == set(truth) - {"exact", "p_obs_exact"}
        for field, value in ours.items():
            assert value == truth[field] or value == pytest.approx(truth[field], abs=1e-9), field


@pytest.mark.parametrize("name", BELIEFS)
def test_tiger_final_mixture_equals_rational_arithmetic(name: str) -> None:
    posterior, oracle = tiger_prior(), BELIEFS[name]
    b, _ = tiger_steps(posterior, oracle["history"])[-1]
    ours = {
        (state, *posterior.counts(theta)[1][2, :, :2].ravel()): w[s]
        for theta, w in b.items()
        for s, state in enumerate("LR")
        if w[s] > 0
    }
    rows = "counts_state_L(hearL,hearR)", "counts_state_R(hearL,hearR)"
    truth = {(x["state"], *x[rows[0]], *x[rows[1]]): x["weight"] for x in oracle["final_mixture"]}
    assert ours == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("name", BELIEFS)
def test_log_evidence_over_episodes(name: str) -> None:
    episodes: list[list] = [[]]
    for action, observation in BELIEFS[name]["history"]:
        episodes[-1].append((ACTIONS[action], OBSERVATIONS[observation]))
        if action != "listen":
            episodes.append([])
    ours = exact.log_evidence(tiger_prior(), UNIFORM, map(tuple, episodes))
    assert ours == pytest.approx(BELIEFS[name]["log_evidence"], abs=1e-9)


def test_rows_of_10000_counts_are_nearly_known_rows() -> None:
    history = BELIEFS["h10_2ep_LLL_open_LLL"]["history"]
    b_known, _ = tiger_steps(tiger_prior(), history)[-1]
    b_all, _ = tiger_steps(tiger_prior(10_000.0, learn_all=True), history)[-1]
    difference = abs(exact.state_probabilities(b_all) - exact.state_probabilities(b_known)).max()
    assert 0 < difference < 1e-3
    assert num_components(b_all) > num_components(b_known)


@pytest.mark.parametrize("seed", range(3))
def test_mixture_equals_brute_force_over_state_sequences(seed: int) -> None:
    pomdp, posterior = random_problem(seed)
    h = ((0, 1), (0, 1), (0, 1), (1, 0))
    b = exact.initial_mixture(posterior, pomdp.p0)
    for a, o in h:
        b, _ = exact.mixture_update(posterior, b, a, o)
    sequences = exact.state_sequences(pomdp, posterior.evidence, h)
    brute: dict = {}
    for (s_0, steps), p in sequences.items():
        n_T, n_O = np.zeros((3, 2, 3), int), np.zeros((2, 3, 2), int)
        s = s_0
        for a, s_next, o in steps:
            n_T[s, a, s_next] += 1
            n_O[a, s_next, o] += 1
            s = s_next
        name = (*n_T.ravel().tolist(), *n_O.ravel().tolist()), s
        brute[name] = brute.get(name, 0.0) + p / sum(sequences.values())
    ours = {(theta, s): w[s] for theta, w in b.items() for s in range(3) if w[s] > 0}
    assert len(brute) < len(sequences)  # some sequences have equal counts: they were merged
    assert ours == pytest.approx(brute, rel=1e-12, abs=1e-14)


def test_predictive_and_belief_sum_to_one() -> None:
    pomdp, posterior = random_problem(5)
    b, _ = exact.mixture_update(posterior, exact.initial_mixture(posterior, pomdp.p0), 1, 0)
    assert exact.state_probabilities(b).sum() == pytest.approx(1, abs=1e-14)
    for a in range(2):
        p_o = exact.predictive(posterior, b, a).sum((0, 1))
        assert p_o.sum() == pytest.approx(1, abs=1e-14)
        for o in range(2):
            assert exact.mixture_update(posterior, b, a, o)[1] == pytest.approx(p_o[o], abs=1e-14)


def test_impossible_observation_is_an_error() -> None:
    pomdp = make_tiger()
    with pytest.raises(ValueError, match="observation 2 is impossible after action 2"):
        exact.belief_update(pomdp, UNIFORM, 2, 2)
    with pytest.raises(ValueError, match="impossible"):
        exact.mixture_update(tiger_prior(), exact.initial_mixture(tiger_prior(), UNIFORM), 2, 2)


# --- values ------------------------------------------------------------------------------------------


def open_at_net(k: int):
    """Listen until one door leads by k reports, then open it; on the belief of hearing accuracy .85."""
    threshold = 0.85**k / (0.85**k + 0.15**k) - 1e-9

    def policy(b: exact.Mixture, steps: int) -> np.ndarray:
        p = exact.state_probabilities(b)
        return np.eye(3)[p.argmax() if p.max() > threshold else tiger.LISTEN]

    return policy


def always(p: list[float]):
    return lambda b, steps: np.array(p)


POLICIES = {f"open_at_net_{k}": open_at_net(k) for k in (1, 2, 3, 5)} | {
    "random_uniform_3_actions": always([1 / 3] * 3),
    "random_door_immediately": always([0.5, 0.5, 0]),
    "always_listen": always([0.0, 0, 1]),
}


@pytest.mark.parametrize("kind, discount", [("disc", 0.95), ("undisc", 1.0)])
@pytest.mark.parametrize("name", POLICIES)
def test_tiger_policy_values(name: str, kind: str, discount: float) -> None:
    value = exact.policy_value(make_tiger(discount=discount), POLICIES[name])
    assert value == pytest.approx(VALUES[f"tiger/{name}/{kind}"]["value"], abs=1e-9)


def test_tiger_optimum() -> None:
    pomdp = make_tiger()
    value, Q = exact.expectimax(pomdp)
    assert value == pytest.approx(3.7701876649966595, abs=1e-9)
    assert Q == pytest.approx([-45, -45, value], abs=1e-9)
    policy = exact.greedy(exact.optimal_Q(pomdp))
    assert exact.policy_value(pomdp, policy) == pytest.approx(value, abs=1e-9)
    undiscounted = exact.policy_value(replace(pomdp, discount=1.0), policy)
    assert undiscounted == pytest.approx(VALUES["tiger/optimal_gamma.95/undisc"]["value"], abs=1e-9)


def test_tiger_optimum_without_discount() -> None:
    value, _ = exact.expectimax(make_tiger(discount=1.0))
    assert value == pytest.approx(VALUES["tiger/optimal_for_undiscounted/undisc"]["value"], abs=1e-9)


@pytest.mark.parametrize("p", [0.55, 0.625, 0.7, 0.9])
def test_planning_with_a_wrong_model(p: float) -> None:
    """The agent believes in hearing accuracy p; the truth is .85."""
    policy = exact.greedy(exact.optimal_Q(make_tiger(p)))
    value = exact.policy_value(make_tiger(), policy, exact.known(tiger_D(p)))
    assert value == pytest.approx(VALUES[f"tiger/plan_with_p={p}_gamma=0.95/disc"]["value"], abs=1e-6)


def test_bayes_adaptive_policy_at_the_truth() -> None:
    posterior = tiger_prior()
    policy = exact.greedy(exact.optimal_Q(make_tiger(), posterior))
    value = exact.policy_value(make_tiger(), policy, posterior)
    oracle = VALUES["tiger/bayes_adaptive_prior_5_3, episode 1/disc"]
    assert value == pytest.approx(oracle["value"], abs=oracle["tol"])


def test_expected_model_policy_at_the_truth() -> None:
    posterior = tiger_prior()
    mean = exact.known(posterior.predictive(next(iter(posterior.prior()))))
    value = exact.policy_value(make_tiger(), exact.greedy(exact.optimal_Q(make_tiger(), mean)), mean)
    oracle = VALUES["tiger/expected_model_planning_prior_5_3, episode 1/disc"]
    assert value == pytest.approx(oracle["value"], abs=oracle["tol"])


def test_bayes_optimal_value_is_its_policys_average_over_the_prior_and_bounds_all_others() -> None:
    accuracies, p = (0.95, 0.7, 0.55), np.array([0.2, 0.5, 0.3])
    family = exact.Family(np.stack([tiger_D(x) for x in accuracies]), p)
    value, _ = exact.expectimax(make_tiger(), posterior=family)

    def average(policy: exact.Policy, posterior: exact.TabularPosterior) -> float:
        return float(p @ [exact.policy_value(make_tiger(x), policy, posterior) for x in accuracies])

    best = exact.greedy(exact.optimal_Q(make_tiger(), family))
    assert average(best, family) == pytest.approx(value, abs=1e-9)
    for x in accuracies:
        other = exact.greedy(exact.optimal_Q(make_tiger(x)))
        assert average(other, exact.known(tiger_D(x))) < value - 1e-3


def policy_values_by_enumeration(pomdp: exact.TabularPOMDP, evidence: exact.Evidence, steps: int):
    """The return of every deterministic policy on histories, summed over every full history."""
    A, Z = pomdp.D.shape[1], pomdp.D.shape[3]
    histories = [h for t in range(steps) for h in itertools.product(range(Z), repeat=t)]
    for actions in itertools.product(range(A), repeat=len(histories)):
        policy, value = dict(zip(histories, actions, strict=True)), 0.0
        for s_0, chain in exact.full_histories((3, A, Z), steps):
            observed = [o for *_, o in chain]
            follows = all(a == policy[tuple(observed[:t])] for t, (a, _, _) in enumerate(chain))
            x = exact.transitions((s_0, chain))
            if chain and follows and not any(pomdp.terminal[s, a, s_next] for s, a, s_next, _ in x[:-1]):
                p = pomdp.p0[s_0] * evidence((s_0, chain))
                value += p * pomdp.discount ** (len(x) - 1) * pomdp.R[x[-1][:3]]
        yield value


@pytest.mark.parametrize("seed", range(2))
def test_bayes_adaptive_expectimax_equals_the_best_of_all_policies(seed: int) -> None:
    """Dirichlet prior, some transitions terminal: two steps, 8 policies."""
    pomdp, posterior = random_problem(seed, terminals=True)
    assert pomdp.terminal.any()
    value, _ = exact.expectimax(pomdp, 2, posterior)
    values = list(policy_values_by_enumeration(pomdp, posterior.evidence, 2))
    assert value == pytest.approx(max(values), abs=1e-12)
    assert max(values) - sorted(set(values))[-2] > 1e-6


# --- the library's values as tables ------------------------------------------------------------------


def test_tabulate_tiger() -> None:
    ours = exact.tabulate(tiger.make_domain().pomdp, UNIFORM)
    truth = make_tiger()
    assert ours.D == pytest.approx(truth.D, abs=1e-7)  # .85 is stored in float32
    assert ours.D.sum((2, 3)) == pytest.approx(np.ones((2, 3)), abs=1e-14)
    assert np.array_equal(ours.R, truth.R) and np.array_equal(ours.terminal, truth.terminal)
    assert (ours.discount, ours.horizon) == (0.95, 30)
    assert exact.expectimax(ours)[0] == pytest.approx(3.7701876649966595, abs=1e-5)


def test_tabulate_numbers_features_as_flat_index_does() -> None:
    sizes = (2, 3), (2, 2)
    T, O = (jr.uniform(jr.key(i), shape, minval=0.1) for i, shape in enumerate([(6, 2, 6), (2, 6, 4)]))
    domain = tiger.Tiger(Table(T, O, *sizes), state_sizes=sizes[0], observation_sizes=sizes[1], num_actions=2)
    D = exact.tabulate(domain, np.full(6, 1 / 6)).D
    s, s_next, o = jnp.array([1, 0]), jnp.array([0, 2]), jnp.array([1, 0])
    i, i_next, z = flat_index(s, sizes[0]), flat_index(s_next, sizes[0]), flat_index(o, sizes[1])
    assert math.log(D[i, 1, i_next, z]) == pytest.approx(
        float(domain.dynamics.log_prob(s, jnp.int32(1), s_next, o)), abs=1e-5
    )


@pytest.mark.parametrize("seed", range(2))
def test_tabulated_dirichlet_equals_dirichlet_tables(seed: int) -> None:
    _, ours = random_problem(seed)
    counts = Counts(jnp.asarray(ours.T, jnp.float32), jnp.asarray(ours.O, jnp.float32))
    sizes = {"state_sizes": (3,), "observation_sizes": (2,)}
    domain = tiger.Tiger(Table(*counts, **sizes), num_actions=2, **sizes)
    theirs = exact.Tabulated(Dirichlet(counts, (3,), (2,)), domain)
    theta, theta_theirs = next(iter(ours.prior())), next(iter(theirs.prior()))
    for x in [(0, 1, 2, 1), (2, 0, 1, 0), (1, 1, 2, 1)]:
        assert theirs.predictive(theta_theirs) == pytest.approx(ours.predictive(theta), abs=1e-14)
        theta, theta_theirs = ours.update(theta, *x), theirs.update(theta_theirs, *x)
    assert theirs.predictive(theta_theirs) == pytest.approx(ours.predictive(theta), abs=1e-14)
    assert jnp.ones(1).dtype == jnp.float32 and not jax.config.jax_enable_x64  # float64 stays inside
