"""The belief tree against exact planning, closed forms and itself by other means."""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from searches import TIGER, TRUE

from baddr import exact, prng
from baddr.core.agent import Agent
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles
from baddr.core.planner import Plan, best_action
from baddr.core.pomdp import Dynamics, Table
from baddr.core.posterior import Posterior
from baddr.domains import collision_avoidance, from_tables
from baddr.fast import known_bounds
from baddr.fast.belief_tree import FastTree, fast_tree
from baddr.fast.runs import advance
from baddr.life.run import start, step
from baddr.planners.belief_tree import BeliefTree, search
from baddr.planners.belief_tree.bounds import Draws, Rows, value_iteration
from baddr.planners.belief_tree.mean_model import mean_model
from baddr.planners.belief_tree.nodes import ParticleNodes, likeliest
from baddr.posteriors import Dirichlet, Known

S, A, Z, HORIZON, DISCOUNT = 3, 2, 2, 4, 0.9
_plan = eqx.filter_jit(lambda planner, *arguments: planner.plan(*arguments))


def plan(planner: Any, pomdp: Any, belief: Particles, steps_left: int, seed: int = 0) -> Any:
    """Of one run."""
    alone = jax.tree.map(lambda x: x[None], (prng.key(seed), belief, jnp.int32(steps_left)))
    found = _plan(planner, alone[0], pomdp, *alone[1:], jnp.ones((1,), bool))
    return jax.tree.map(lambda x: np.asarray(x[0]), found)


def random_tables(seed: int, models: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Any]:
    """T, O of some models, R, p0 and the transitions that end an episode."""
    draw = np.random.default_rng(seed)
    T, O = draw.dirichlet(np.ones(S), (models, S, A)), draw.dirichlet(np.ones(Z), (models, A, S))
    terminal = draw.random((S, A, S)) < 0.15
    return T, O, draw.normal(size=(S, A, S)), draw.dirichlet(np.ones(S)), terminal


def random_pomdp(seed: int) -> tuple[Any, exact.TabularPOMDP]:
    T, O, R, p0, terminal = random_tables(seed)
    domain = from_tables(T[0], O[0], R, p0, DISCOUNT, horizon=HORIZON, terminal=terminal)
    return domain.pomdp, exact.tabulate(domain.pomdp, p0)


def all_states(p0: np.ndarray) -> Particles:
    """The exact belief: a particle for each state."""
    return Particles(jnp.arange(S, dtype=jnp.int32)[:, None], jnp.log(jnp.asarray(p0, jnp.float32)))


@pytest.mark.parametrize("seed", range(4))
def test_with_full_expansion_the_value_is_that_of_expectimax(seed):
    pomdp, tabular = random_pomdp(seed)
    value, Q = exact.expectimax(tabular)
    how = BeliefTree(num_expansions=400, precision=0.0, stop_when_certain=False).build()
    found = plan(how, pomdp, all_states(tabular.p0), HORIZON)
    assert found.Q.max() == pytest.approx(value, abs=1e-4)
    assert found.upper.max() == pytest.approx(value, abs=1e-4)
    assert found.gap == pytest.approx(0, abs=1e-4)
    assert np.all(found.Q <= Q + 1e-4) and np.all(Q <= found.upper + 1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_lies_between_the_bounds_at_every_expansion(seed):
    pomdp, tabular = random_pomdp(seed)
    _, Q = exact.expectimax(tabular)
    gaps = []
    for expansions in (1, 2, 3, 5, 8, 13, 40):
        how = BeliefTree(num_expansions=expansions, precision=0.0, stop_when_certain=False).build()
        found = plan(how, pomdp, all_states(tabular.p0), HORIZON)
        assert np.all(found.Q <= Q + 1e-5) and np.all(Q <= found.upper + 1e-5)
        gaps.append(found.gap)
    assert np.all(np.diff(gaps) <= 1e-6)  # closer and closer
    assert gaps[-1] <= 0.5 * gaps[0]


class OneOf(Posterior):
    """One of a few models, and theta says which: nothing to learn but that."""

    T: jax.Array
    O: jax.Array

    def prior(self, key):
        return jr.randint(key, (), 0, self.T.shape[0])

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon) -> Dynamics:
        return Table(self.T[theta], self.O[theta], (S,), (Z,))

    def update(self, key, theta, s, a, s_next, o):
        return theta


@pytest.mark.parametrize("seed", range(3))
def test_what_is_learned_inside_the_tree_counts(seed):
    """Three models that are equally likely: the value is the Bayes-adaptive optimum."""
    T, O, R, p0, terminal = random_tables(seed, models=3)
    pomdp = from_tables(T[0], O[0], R, p0, DISCOUNT, horizon=HORIZON, terminal=terminal).pomdp
    D = T[..., None] * O.transpose(0, 2, 1, 3)[:, None].transpose(0, 1, 3, 2, 4)
    family, tabular = exact.Family(D, np.full(3, 1 / 3)), exact.tabulate(pomdp, p0)
    value, Q = exact.expectimax(tabular, posterior=family)
    theta, s = (jnp.asarray(x.reshape(-1), jnp.int32) for x in np.mgrid[:3, :S])
    belief = Particles(AugmentedState(s[:, None], theta), jnp.log(jnp.asarray(p0, jnp.float32)[s] / 3))
    gba = GBAPOMDP(pomdp, OneOf(jnp.asarray(T, jnp.float32), jnp.asarray(O, jnp.float32)))
    how = BeliefTree(num_expansions=400, precision=0.0, stop_when_certain=False).build()
    found = plan(how, gba, belief, HORIZON)
    blind, _ = exact.expectimax(tabular, posterior=exact.known(D.mean(0)))
    assert abs(value - blind) > 1e-3  # learning matters here
    assert found.Q.max() == pytest.approx(value, abs=1e-3)
    assert np.all(found.Q <= Q + 1e-3)


def heard(net: int) -> Particles:
    """Tiger's exact belief after net evidence for the left door."""
    odds = 0.85**net / (0.85**net + 0.15**net)
    states = AugmentedState(jnp.array([[0], [1]], jnp.int32), ())
    return Particles(states, jnp.log(jnp.array([odds, 1 - odds])))


@pytest.mark.parametrize("fast", [False, True])
def test_on_true_tiger_its_decisions_are_the_optimal_ones(fast):
    """It listens until net evidence 3: so its value is the optimum, 3.770 (tests/data/values.json)."""
    how: Any = BeliefTree(num_expansions=16, num_particles=256).build()
    planner = fast_tree(how, TRUE) if fast else how
    actions = [int(np.argmax(plan(planner, TRUE, heard(net), 30).Q)) for net in range(5)]
    assert actions == [2, 2, 2, 0, 0]


@pytest.fixture
def particles_only(monkeypatch):
    """Searches by particles where they would go by tables."""
    monkeypatch.setattr(search, "LARGEST_TABLES", 0)
    monkeypatch.setattr(sys.modules[__name__], "_plan", eqx.filter_jit(lambda how, *x: how.plan(*x)))


def test_by_particles_it_plans_as_by_tables_where_states_stay(particles_only, monkeypatch):
    """Tiger's state changes only where the episode ends: nothing that is drawn makes a difference. Both with
    the bounds of blind policies."""
    monkeypatch.setattr(known_bounds, "SMALL", 0)
    how = BeliefTree(num_expansions=6, precision=0.0, stop_when_certain=False).build()
    for net in range(3):
        by_particles = plan(how, TRUE, heard(net), 30)
        by_tables = plan(fast_tree(how, TRUE), TRUE, heard(net), 30)
        np.testing.assert_allclose(by_particles.Q, by_tables.Q, atol=1e-4)
        np.testing.assert_allclose(by_particles.upper, by_tables.upper, atol=1e-4)


def test_by_particles_the_values_of_one_step_are_their_means(particles_only):
    """One step left, 4096 particles: Q(a) is the mean reward, within 4 standard errors."""
    pomdp, tabular = random_pomdp(1)
    _, Q = exact.expectimax(tabular, steps=1)
    s = np.random.default_rng(0).choice(S, 4096, p=tabular.p0)
    belief = Particles(jnp.asarray(s, jnp.int32)[:, None], jnp.full((4096,), -np.log(4096.0)))
    found = plan(BeliefTree(num_expansions=1, num_particles=4096).build(), pomdp, belief, 1)
    standard_error = tabular.R.std() / np.sqrt(4096)
    np.testing.assert_allclose(found.Q, Q, atol=4 * standard_error)


def test_the_likeliest_observations_are_followed():
    o = jnp.array([[1, 2], [3, 4], [1, 2], [5, 6], [3, 4], [7, 8]])
    mass = jnp.array([0.1, 0.2, 0.15, 0.3, 0.2, 0.0])
    found, followed = likeliest(o, mass, 3)
    assert found.tolist() == [[3, 4], [5, 6], [1, 2]] and followed.tolist() == [True] * 3
    _, followed = likeliest(o, mass, 5)
    assert followed.tolist() == [True, True, True, False, False]  # one has no mass, the fifth repeats


def test_with_many_observations_those_left_out_go_to_the_others():
    """Collision avoidance: 125 observations, of which 5 are possible. All are followed, or the likeliest two
    with the mass of all."""
    domain = collision_avoidance.make_domain(size=5)
    gba = GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics))
    belief = initial_belief(prng.key(0), gba, 64)
    for count, kept in ((16, 5), (2, 2)):
        how: Any = BeliefTree(num_particles=64, num_observations=count).build()
        for nodes in (
            how.nodes(prng.key(1), gba, belief),
            fast_tree(how, gba).nodes(prng.key(1), gba, belief),
        ):
            w, of = nodes.root()
            W = np.asarray(nodes.expand(prng.key(2), w, of, jnp.array(False)).W).sum(-1)
            assert W.shape == (3, count)
            np.testing.assert_allclose(W.sum(1), 1, atol=1e-5)
            assert np.all((W > 1e-6).sum(1) == kept)


def test_value_iteration_is_that_of_numpy():
    pomdp, tabular = random_pomdp(2)
    T, R = tabular.D.sum(-1), np.einsum("sanz,san->sa", tabular.D, tabular.R)
    T = np.where(tabular.terminal, 0, T)
    blind, V = np.zeros((A, S)), np.zeros(S)
    model = mean_model(prng.key(0), GBAPOMDP(pomdp, Known(pomdp.dynamics)), wrapped(all_states(tabular.p0)))
    lower, upper = value_iteration(model, DISCOUNT, HORIZON)
    for h in range(1, HORIZON + 1):
        blind = np.array([R[:, a] + DISCOUNT * T[:, a] @ blind[a] for a in range(A)])
        Q = R + DISCOUNT * T @ V
        V = Q.max(1)
        np.testing.assert_allclose(lower[h], blind, atol=1e-5)
        np.testing.assert_allclose(upper[h], Q.T, atol=1e-5)


def wrapped(belief: Particles) -> Particles:
    return Particles(AugmentedState(belief.states, ()), belief.log_weights)


def test_draws_stand_for_rows_where_states_are_many(monkeypatch):
    """4096 draws of each s': values within 4 standard errors of those by rows."""
    pomdp, tabular = random_pomdp(0)
    n = 4096
    for name, value in (("MOST_ROWS_KNOWN", 0), ("FEWEST", n), ("MOST_PARTICLES", n)):
        monkeypatch.setattr(f"baddr.planners.belief_tree.mean_model.{name}", value)
    gba = GBAPOMDP(pomdp, Known(pomdp.dynamics))
    belief = Particles(AugmentedState(jnp.zeros((n, 1), jnp.int32), ()), jnp.full((n,), -np.log(n)))
    drawn = mean_model(prng.key(0), gba, belief)
    monkeypatch.undo()
    rows = mean_model(prng.key(0), gba, belief)
    assert isinstance(drawn, Draws) and isinstance(rows, Rows)
    V = jnp.asarray(np.random.default_rng(0).normal(size=(A, S)))
    standard_error = float(jnp.std(V)) / np.sqrt(n)
    np.testing.assert_allclose(drawn.expect(V), rows.expect(V), atol=4 * standard_error)
    np.testing.assert_allclose(drawn.R, rows.R, atol=4 * tabular.R.std() / np.sqrt(n))


def test_the_mean_model_of_counts_is_their_mean():
    gba = GBAPOMDP(TIGER.pomdp, Dirichlet(TIGER.counts, (2,), (3,)))
    model = mean_model(prng.key(0), gba, initial_belief(prng.key(1), gba, 32))
    assert isinstance(model, Rows)
    np.testing.assert_allclose(model.T[2], np.eye(2), atol=1e-6)  # listening; opening ends the episode
    np.testing.assert_allclose(model.T[:2], 0)
    np.testing.assert_allclose(model.R, [[10, -100], [-100, 10], [-1, -1]], atol=1e-4)


def test_bounds_are_worked_out_before_an_episode_and_kept_through_it(monkeypatch):
    """In the mean model, where plans do not go by tables. Counts move with every step, bounds do not."""
    monkeypatch.setattr(search, "LARGEST_TABLES", 0)
    T, O, R, p0, _ = random_tables(5)
    domain = from_tables(T[0], O[0], R, p0, DISCOUNT, horizon=3)
    gba = GBAPOMDP(domain.pomdp, Dirichlet(domain.counts, (S,), (Z,)))
    agent = Agent(gba, Importance(num_particles=32), BeliefTree(num_expansions=2, num_particles=16).build())
    move = eqx.filter_jit(step)
    run = start(prng.key(3), agent, domain.pomdp)
    alone, rows = run, jax.tree.map(lambda x: x[None], run)
    for t in range(1, 7):
        after, _ = move(alone, agent, domain.pomdp, jnp.int32(9))
        same = np.array_equal(alone.prepared.lower, after.prepared.lower)
        assert same == (t % 3 > 0)
        alone = after
    many, _ = advance(rows, agent, domain.pomdp, jnp.int32(9), 6)  # the fast twin
    np.testing.assert_allclose(many.prepared.lower[0], alone.prepared.lower, atol=1e-5)


def test_the_fast_form_goes_by_tables_where_it_can():
    counts = GBAPOMDP(TIGER.pomdp, Dirichlet(TIGER.counts, (2,), (3,)))
    assert isinstance(fast_tree(BeliefTree().build(), counts), FastTree)
    assert fast_tree(BeliefTree().build(), counts).stream == "beliefs by tables"
    domain = collision_avoidance.make_domain(size=5)
    known = GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics))
    assert fast_tree(BeliefTree().build(), known).stream == "beliefs by tables"
    nodes = BeliefTree().build().nodes(prng.key(0), known, initial_belief(prng.key(0), known, 8))
    assert isinstance(nodes, ParticleNodes)


def test_of_actions_that_are_as_good_as_equal_the_one_that_may_be_worth_more_is_chosen():
    """Where nothing is known from below, all Q are equal: chance would choose, or rounding."""
    Q, upper = jnp.array([0.0, 1e-7, -1.0, 0.0]), jnp.array([1.0, 0.5, 9.0, 2.0])
    plan = Plan(Q, jnp.ones((4,)), jnp.int32(1), jnp.int32(1), upper)
    assert {int(best_action(prng.key(i), plan)) for i in range(8)} == {3}
    clear = plan._replace(Q=jnp.array([0.0, 0.1, -1.0, 0.0]))
    assert int(best_action(prng.key(0), clear)) == 1
