"""The numbered claims of Sections 2 and 3, one test or more for each, on a random 3-state problem."""

import itertools
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array
from scipy.integrate import quad

from baddr import exact
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.pomdp import POMDP, Dynamics, Table
from baddr.posteriors import Counts, Dirichlet, Frozen, Posterior
from baddr.prng import categorical

S, A, Z = 3, 2, 2
TOLERANCE = 1e-12


class Small(POMDP):
    """A POMDP whose reward is a table."""

    dynamics: Dynamics
    R: Array
    p0: Array
    discount: float = eqx.field(static=True, default=0.9)
    horizon: int = eqx.field(static=True, default=3)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(S,))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(Z,))
    num_actions: int = eqx.field(static=True, default=A)

    def initial_state(self, key):
        return categorical(key, self.p0)[None]

    def initial_observation(self, key, s):
        return jnp.zeros((1,), jnp.int32)

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return self.R[s[0], a, s_next[0]]

    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def make_posterior(seed: int, expected: bool = True) -> Dirichlet:
    """Counts are quarters, which float32 holds exactly."""
    rng = np.random.default_rng(seed)
    T, O = rng.integers(2, 9, (S, A, S)) / 4, rng.integers(2, 9, (A, S, Z)) / 4
    return Dirichlet(Counts(jnp.asarray(T, jnp.float32), jnp.asarray(O, jnp.float32)), (S,), (Z,), expected)


@cache
def small(seed: int = 0) -> Small:
    rng = np.random.default_rng(100 + seed)
    R, p0 = rng.normal(size=(S, A, S)), rng.integers(1, 5, S)
    truth = Table(*make_posterior(seed).counts, (S,), (Z,))
    return Small(truth, jnp.asarray(R, jnp.float32), jnp.asarray(p0 / p0.sum(), jnp.float32))


@cache
def pomdp(seed: int = 0) -> exact.TabularPOMDP:
    p0 = np.asarray(small(seed).p0, np.float64)
    return exact.tabulate(small(seed), p0 / p0.sum())


@cache
def bayes(seed: int = 0) -> exact.DirichletTables:
    """The prior's own tables: their `evidence` integrates over D in closed form."""
    counts = make_posterior(seed).counts
    return exact.DirichletTables(np.asarray(counts.T), np.asarray(counts.O))


@cache
def jax_dirichlet(seed: int = 0) -> exact.Tabulated:
    return exact.Tabulated(make_posterior(seed), small(seed))


@cache
def jax_frozen(seed: int = 0) -> exact.Tabulated:
    return exact.Tabulated(Frozen(make_posterior(seed)), small(seed))


@cache
def family() -> exact.Family:
    """Three D whose transitions and observations are random and not independent."""
    Ds = np.random.default_rng(7).dirichlet(np.ones(S * Z), (3, S, A)).reshape(3, S, A, S, Z)
    return exact.Family(Ds, np.array([0.5, 0.3, 0.2]))


def belief(posterior: exact.TabularPosterior, h: exact.History) -> exact.Mixture:
    b = exact.initial_mixture(posterior, pomdp().p0)
    for a, o in h:
        b, _ = exact.mixture_update(posterior, b, a, o)
    return b


def all_histories(depth: int) -> list[exact.History]:
    steps = list(itertools.product(range(A), range(Z)))
    return [h for t in range(depth + 1) for h in itertools.product(steps, repeat=t)]


# --- Section 2 ---------------------------------------------------------------------------------------


def test_eq_1_belief_update_is_bayes_rule() -> None:
    D, b = pomdp().D, np.array([0.2, 0.5, 0.3])
    for a, o in itertools.product(range(A), range(Z)):
        joint = [sum(D[s, a, s_next, o] * b[s] for s in range(S)) for s_next in range(S)]
        b_next, p_o = exact.belief_update(pomdp(), b, a, o)
        assert p_o == pytest.approx(sum(joint), abs=TOLERANCE)
        assert b_next == pytest.approx(np.array(joint) / sum(joint), abs=TOLERANCE)


def test_eq_1_is_the_mixture_update_of_a_known_D() -> None:
    b, h = pomdp().p0, ((0, 1), (1, 0), (0, 0))
    for a, o in h:
        b, _ = exact.belief_update(pomdp(), b, a, o)
    assert exact.state_probabilities(belief(exact.known(pomdp().D), h)) == pytest.approx(b, abs=TOLERANCE)


# --- Section 3.2 -------------------------------------------------------------------------------------


def test_eq_3_unrolls_to_eq_4() -> None:
    """p(s_t, D | h_t) by recursion, and as p(D) sum over sequences of p(s_0) prod D."""
    for h in all_histories(3):
        unrolled = np.zeros((3, S))
        for d, D in enumerate(family().Ds):
            for H, p in exact.state_sequences(pomdp(), exact.known(D).evidence, h).items():
                s = H[1][-1][1] if h else H[0]
                unrolled[d, s] += family().p[d] * p
        b = belief(family(), h)
        assert np.stack([b[d] for d in range(3)]) == pytest.approx(unrolled / unrolled.sum(), abs=TOLERANCE)


def test_eq_5_belief_is_a_mixture_of_posteriors_given_full_histories() -> None:
    """sum over sequences of p(s_0 ... s_t | h_t) p(D | H_t) is the belief over (s_t, D)."""
    h = ((1, 1), (0, 0), (1, 0))
    weights = exact.state_sequences(pomdp(), family().evidence, h)
    mixture = np.zeros((3, S))
    for H, p in weights.items():
        component = family().p * [exact.known(D).evidence(H) for D in family().Ds]
        mixture[:, H[1][-1][1]] += p / sum(weights.values()) * component / component.sum()
    b = belief(family(), h)
    assert np.stack([b[d] for d in range(3)]) == pytest.approx(mixture, abs=TOLERANCE)


def test_eq_6_weights_follow_the_recursion() -> None:
    """New weight = prior weight x transition likelihood / p(o | h, a), for every state sequence."""
    h, (a, o) = ((0, 1), (1, 1)), (0, 0)
    before = exact.state_sequences(pomdp(), bayes().evidence, h)
    after = exact.state_sequences(pomdp(), bayes().evidence, (*h, (a, o)))
    _, p_o = exact.mixture_update(jax_dirichlet(), belief(jax_dirichlet(), h), a, o)
    for (s_0, steps), p in after.items():
        H = s_0, steps[:-1]
        theta = next(iter(jax_dirichlet().prior()))
        for x in exact.transitions(H):
            theta = jax_dirichlet().update(theta, *x)
        likelihood = jax_dirichlet().predictive(theta)[exact.transitions((s_0, steps))[-1]]
        ours = before[H] / sum(before.values()) * likelihood / p_o
        assert ours == pytest.approx(p / sum(after.values()), abs=TOLERANCE)


def test_eq_6_merged_components_equal_brute_force() -> None:
    """p(s_t, theta_t | h_t) of the library's own Dirichlet, against sequences grouped by their theta."""
    h = ((0, 1), (0, 1), (0, 1))
    posterior, weights = jax_dirichlet(), exact.state_sequences(pomdp(), bayes().evidence, h)
    brute: dict = {}
    for H, p in weights.items():
        theta = next(iter(posterior.prior()))
        for x in exact.transitions(H):
            theta = posterior.update(theta, *x)
        s = H[1][-1][1]
        brute[theta, s] = brute.get((theta, s), 0.0) + p / sum(weights.values())
    ours = {(theta, s): w[s] for theta, w in belief(posterior, h).items() for s in range(S) if w[s] > 0}
    assert len(ours) < len(weights)
    assert ours == pytest.approx(brute, abs=TOLERANCE)


def test_eq_7_transition_likelihood_is_the_integral_over_dynamics() -> None:
    """Quadrature over the two unknown probabilities that matter, weighted by H's likelihood."""
    H = (0, ((1, 2, 0), (0, 0, 1), (1, 2, 1), (0, 0, 1), (1, 1, 1)))
    s, a, s_next, o = 0, 1, 2, 1  # (0, 1) -> 2 happened twice of three times; o = 1 once of twice
    theta = next(iter(jax_dirichlet().prior()))
    for x in exact.transitions(H):
        theta = jax_dirichlet().update(theta, *x)

    def mean(alpha: float, beta: float, n: int, m: int) -> float:
        """E[x] under the density x^(alpha-1) (1-x)^(beta-1) and the likelihood x^n (1-x)^m."""
        normaliser, _ = quad(lambda x: x ** (alpha - 1 + n) * (1 - x) ** (beta - 1 + m), 0, 1)
        moment, _ = quad(lambda x: x ** (alpha + n) * (1 - x) ** (beta - 1 + m), 0, 1)
        return moment / normaliser

    T, O = bayes().T[s, a], bayes().O[a, s_next]
    integral = mean(T[s_next], T.sum() - T[s_next], 2, 1) * mean(O[o], O.sum() - O[o], 1, 1)
    assert jax_dirichlet().predictive(theta)[s, a, s_next, o] == pytest.approx(integral, abs=1e-8)


# --- Section 3.3 -------------------------------------------------------------------------------------

steps = st.tuples(st.integers(0, A - 1), st.integers(0, S - 1), st.integers(0, Z - 1))
full_history = st.tuples(st.integers(0, S - 1), st.lists(steps, max_size=12).map(tuple))


@settings(max_examples=40, deadline=None)
@given(H=full_history)
def test_def_3_dirichlet_satisfies_the_update_criterion(H: exact.FullHistory) -> None:
    assert exact.update_criterion_gap(jax_dirichlet(), bayes().evidence, [H]) < TOLERANCE


@settings(max_examples=20, deadline=None)
@given(H=full_history.filter(lambda H: len(H[1]) > 0))
def test_def_3_an_update_that_does_nothing_violates_it(H: exact.FullHistory) -> None:
    """After any first transition, the row it came from has another prediction."""
    s_0, ((a, s_next, o), *_) = H
    back = s_0, ((a, s_next, o), (a, s_0, o))  # back in s_0, where (s_0, a) was seen
    assert exact.update_criterion_gap(jax_frozen(), bayes().evidence, [back]) > 0.01


def test_lemma_1_prediction_holds_for_every_full_history() -> None:
    histories = list(exact.full_histories((S, A, Z), 2))
    assert len(histories) == S * (1 + 12 + 12**2)
    assert exact.update_criterion_gap(jax_dirichlet(), bayes().evidence, histories) < TOLERANCE


def test_lemma_1_needs_the_initial_parameters_to_match_the_prior() -> None:
    """Eq. 9 fails at t = 0 where theta_0 is another prior's, although U is the right one."""
    base = list(exact.full_histories((S, A, Z), 0))
    assert exact.update_criterion_gap(jax_dirichlet(), bayes().evidence, base) < TOLERANCE
    assert exact.update_criterion_gap(jax_dirichlet(), bayes(1).evidence, base) > 0.01


def test_lemma_1_holds_in_expectation_for_models_drawn_from_the_dirichlets() -> None:
    """A draw is random here: the gap is the Monte Carlo error of its mean."""
    H = [(0, ((1, 2, 0), (0, 0, 1)))]
    few, many = (
        exact.update_criterion_gap(exact.Tabulated(make_posterior(0, False), small(), n), bayes().evidence, H)
        for n in (2, 400)
    )
    assert TOLERANCE < many < 0.03 < few


class CoinFlip(Dirichlet):
    """A random U: it learns a transition with probability one half."""

    def update(self, key, theta, s, a, s_next, o):
        learned = super().update(key, theta, s, a, s_next, o)
        return jax.tree.map(lambda yes, no: jnp.where(jr.bernoulli(key), yes, no), learned, theta)


def test_a_random_update_flips_a_new_coin_at_every_step() -> None:
    """`Tabulated` averages over thetas: of two equal transitions, half of them learn exactly one."""
    n, x = 200, (0, 1, 0, 1)
    posterior = exact.Tabulated(CoinFlip(make_posterior(0).counts, (S,), (Z,)), small(), n)
    before = bayes().predictive(next(iter(bayes().prior())))[x]
    learned_one = bayes().predictive(bayes().update(next(iter(bayes().prior())), *x))[x]
    twice = [posterior.update(posterior.update(theta, *x), *x) for theta in posterior.prior()]
    after = [posterior.predictive(theta)[x] for theta in twice]
    assert np.mean(np.isclose(after, learned_one)) == pytest.approx(1 / 2, abs=5 / np.sqrt(4 * n))
    assert np.mean(np.isclose(after, before)) == pytest.approx(1 / 4, abs=5 * np.sqrt(3 / 16 / n))


# --- Section 3.4 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("s, a", list(itertools.product(range(S), range(A))))
def test_def_4_step_draws_from_the_predictive_and_applies_U(s: int, a: int) -> None:
    gba, n = GBAPOMDP(small(), make_posterior(0)), 4000
    theta = gba.posterior.counts
    s_bar = AugmentedState(jnp.array([s], jnp.int32), theta)
    s_bar_next, o = jax.vmap(lambda key: gba.step(key, s_bar, jnp.int32(a)))(jr.split(jr.key(s + 10 * a), n))
    i, s_next, z = np.arange(n), np.asarray(s_bar_next.s[:, 0]), np.asarray(o[:, 0])
    frequency = np.zeros((S, Z))
    np.add.at(frequency, (s_next, z), 1 / n)
    p = pomdp().D[s, a]
    assert np.all(abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / n))
    T, O = np.tile(theta.T, (n, 1, 1, 1)), np.tile(theta.O, (n, 1, 1, 1))
    T[i, s, a, s_next] += 1
    O[i, a, s_next, z] += 1
    assert np.array_equal(s_bar_next.theta.T, T) and np.array_equal(s_bar_next.theta.O, O)


def test_def_4_reward_is_the_reward_of_the_states() -> None:
    gba, R = GBAPOMDP(small(), make_posterior(0)), np.asarray(small().R)
    assert len(np.unique(R)) == R.size
    for s, a, s_next in itertools.product(range(S), range(A), range(S)):
        s_bar = AugmentedState(jnp.array([s]), make_posterior(1).counts)
        s_bar_next = AugmentedState(jnp.array([s_next]), make_posterior(2).counts)
        assert gba.reward(s_bar, jnp.int32(a), s_bar_next) == R[s, a, s_next]  # Def. 4 prints R(s, a, s)


def history_mdp_gap(evidence: exact.Evidence, posterior: exact.TabularPosterior, depth: int) -> float:
    """The largest difference in R(h, a) or p(o | h, a), over every history of at most `depth` steps."""
    gap = 0.0
    for h, a in itertools.product(all_histories(depth), range(A)):
        R_bporl, p_bporl = exact.bporl_step(pomdp(), evidence, h, a)
        R_gba, p_gba = exact.gba_step(pomdp(), posterior, h, a)
        assert p_bporl.sum() == pytest.approx(1, abs=TOLERANCE)
        gap = max(gap, abs(R_bporl - R_gba), abs(p_bporl - p_gba).max())
    return gap


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_theorem_1_dirichlet_prior(depth: int) -> None:
    """The last action makes one step more: three steps, or four."""
    assert history_mdp_gap(bayes().evidence, jax_dirichlet(), depth) < TOLERANCE


def test_theorem_1_finite_family() -> None:
    assert history_mdp_gap(family().evidence, family(), 2) < TOLERANCE


@pytest.mark.parametrize("depth", [1, 2])
def test_theorem_1_fails_without_the_update(depth: int) -> None:
    """Without U the two history-MDPs agree before the first step and differ after it."""
    assert history_mdp_gap(bayes().evidence, jax_frozen(), 0) < TOLERANCE
    assert history_mdp_gap(bayes().evidence, jax_frozen(), depth) > 1e-3


class SkippedObservation(Posterior):
    """Dirichlet with a broken U: it learns the transition and forgets the observation."""

    dirichlet: Dirichlet

    def prior(self, key):
        return self.dirichlet.prior(key)

    def draw(self, key, theta):
        return self.dirichlet.draw(key, theta)

    def dynamics(self, theta, epsilon):
        return self.dirichlet.dynamics(theta, epsilon)

    def update(self, key, theta, s, a, s_next, o):
        return Counts(self.dirichlet.update(key, theta, s, a, s_next, o).T, theta.O)


def test_theorem_1_fails_with_half_an_update() -> None:
    broken = exact.Tabulated(SkippedObservation(make_posterior(0)), small())
    assert history_mdp_gap(bayes().evidence, broken, 1) > 1e-3
    assert exact.update_criterion_gap(broken, bayes().evidence, exact.full_histories((S, A, Z), 1)) > 1e-3
