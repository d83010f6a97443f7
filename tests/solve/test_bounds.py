"""The parts of the solver, each against a plain version of it."""

import numpy as np
import pytest
from solve.small import action_value, exact_value, random_model

from baddr.solve.bounds import Bounds, Rows
from baddr.solve.graph import Graph, backed_up, followed, undominated
from baddr.solve.initial import _mdp_backup, blind_policies, fast_informed_bound, layers
from baddr.solve.point_based import trial


@pytest.mark.parametrize("seed", range(3))
def test_the_fast_informed_bound_is_its_equation(seed: int) -> None:
    model = random_model(seed, sizes=(4, 3, 2), ends=0.2)
    A, S, Z = 3, 4, 2
    Q = np.zeros((A, S))
    for _ in range(5):
        new = np.zeros((A, S))
        for a in range(A):
            T, O = model.T[a].toarray(), model.O[a].toarray()
            for s in range(S):
                ahead = sum(max(T[s] * O[:, o] @ Q[b] for b in range(A)) for o in range(Z))
                new[a, s] = model.R[a, s] + model.discount * ahead
        Q = new
    assert np.allclose(fast_informed_bound(model, 5), Q)
    *_, mdp = layers(model, _mdp_backup(model), 5, 1)
    assert np.all(mdp >= Q - 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_bounds_enclose_every_action(seed: int) -> None:
    model = random_model(seed, ends=0.2)
    below, above = blind_policies(model, 4), fast_informed_bound(model, 4)
    for b in np.random.default_rng(seed).dirichlet(np.ones(3), 5):
        for a in range(2):
            exact = action_value(model, b, 4, a)
            assert below[a] @ b <= exact + 1e-12 and exact <= above[a] @ b + 1e-12


def test_blind_policies_solve_their_equation() -> None:
    model = random_model(2, discount=0.9, ends=0.1)
    for a, alpha in enumerate(blind_policies(model)):
        exact = np.linalg.solve(np.eye(3) - 0.9 * model.T[a].toarray(), model.R[a])
        assert np.all(alpha <= exact + 1e-9) and np.allclose(alpha, exact, atol=1e-5)


def test_without_a_horizon_the_informed_bound_comes_from_above() -> None:
    model = random_model(2, discount=0.5)
    long, never = fast_informed_bound(model, 60), fast_informed_bound(model)
    assert np.all(never >= long - 1e-12) and np.allclose(never, long, atol=1e-6)


def plain_upper(bounds: Bounds, b: np.ndarray) -> float:
    """The sawtooth, word by word."""
    found = [max(bounds.above @ b)]
    for p, v in zip(bounds.points.rows, bounds.values.rows[:, 0], strict=True):
        portion = min(b[s] / p[s] for s in range(len(b)) if p[s] > 0)
        found.append(portion * v + max(bounds.above @ (b - portion * p)))
    return min(found)


@pytest.mark.parametrize("support", [[0, 1, 2, 3], [0, 2, 3]])
def test_rows_that_look_at_what_is_new_have_the_bounds_of_all(support: list[int]) -> None:
    rng = np.random.default_rng(4)
    bounds = Bounds(rng.normal(size=(3, 4)) - 9, rng.normal(size=(3, 4)) + 9)
    W = rng.dirichlet(np.ones(len(support)), 5) * rng.random((5, 1))
    W[0, 0] = 0
    rows = Rows(np.array(support), W, bounds)
    whole = np.zeros((5, 4))
    whole[:, support] = W
    for i in range(12):
        b = rng.dirichlet(np.ones(4)) * (rng.random(4) < 0.6)
        inside = np.flatnonzero(b)
        if len(inside):
            b /= b.sum()
            point = bounds.add_point(None, inside, b[inside])
            bounds.set_point(point, float(max(bounds.above @ b)) - rng.random())
            if i % 3 == 2:
                bounds.set_point(0, float(bounds.values.rows[0, 0]) - 0.3)
        bounds.add_alpha(rng.normal(size=4) - 8, 0)
        rows.update()
        assert np.allclose(rows.upper, [plain_upper(bounds, b) for b in whole])
        assert np.allclose(rows.lower, (bounds.alphas.rows @ whole.T).max(axis=0))
        assert np.array_equal(rows.best, (bounds.alphas.rows @ whole.T).argmax(axis=0))
        v = np.where(rows.point < 0, 0, bounds.values.rows[rows.point, 0])
        assert np.allclose(rows.portion * v + rows.rest, rows.upper)


def test_new_rows_look_at_useful_vectors_and_at_the_newest() -> None:
    bounds = Bounds(np.full((1, 2), -9.0), np.full((1, 2), 9.0))
    for value in (1.0, 3.0, 2.0):
        bounds.add_alpha(np.full(2, value), 0)
    bounds.settle(np.array([0, 3]))  # not the two between
    rows = Rows(np.arange(2), np.array([[0.5, 0.5]]), bounds)
    rows.update()
    assert rows.lower[0] == 2.0 and rows.best[0] == 3
    bounds.add_alpha(np.full(2, 2.5), 0)
    rows.update()
    assert rows.lower[0] == 2.5 and rows.best[0] == 4
    late = Rows(np.arange(2), np.array([[0.5, 0.5]]), bounds)
    late.update()
    assert late.lower[0] == 2.5 and late.best[0] == 4
    bounds.settle(np.array([0]))
    rows.update()
    assert rows.best[0] == 4


@pytest.mark.parametrize("seed", [2, 5])  # of those with vectors that are best nowhere and still needed
def test_a_policy_has_all_that_its_vectors_refer_to(seed: int) -> None:
    """Or something that is better everywhere: then a step by the best vector is worth what that says."""
    graph = Graph(random_model(seed, sizes=(6, 4, 4), discount=0.95), 6)
    for _ in range(40):
        trial(graph, 1e-4, hopeful=True)
    kept = graph.policy()
    for left in range(1, 6):
        below = graph.layers[left - 1].alphas.rows
        for i in kept[left]:
            for j in graph.layers[left].after[i]:
                assert np.any(np.all(below[kept[left - 1]] >= below[j], axis=1))


def test_of_vectors_that_others_exceed_one_is_kept() -> None:
    alphas = np.array([[1.0, 1.0], [0.0, 2.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 3.0]])
    assert list(undominated(alphas)) == [False, True, True, False, True]


def test_what_follows_a_belief_is_bayes_rule() -> None:
    model = random_model(6, sizes=(4, 2, 3), ends=0.2)
    b = np.array([0.5, 0.0, 0.3, 0.2])
    groups, support, W = followed(model, np.flatnonzero(b), b[b > 0])
    joint = np.zeros((6, 4))
    for a in range(2):
        for o in range(3):
            joint[a * 3 + o] = (b @ model.T[a].toarray()) * model.O[a].toarray()[:, o]
    found = np.zeros_like(joint)
    found[np.ix_(groups, support)] = W
    assert np.allclose(found, joint) and np.all(W.sum(axis=1) > 0)


def test_a_backup_is_its_equation() -> None:
    model = random_model(7, sizes=(4, 2, 3), ends=0.2)
    alphas = np.random.default_rng(0).normal(size=(5, 4))
    choices = np.array([[0, 1, 2], [4, 4, 3]])
    for a in range(2):
        T, O = model.T[a].toarray(), model.O[a].toarray()
        for found, choice in zip(backed_up(model, a, alphas, choices), choices, strict=True):
            ahead = sum(O[:, o] * alphas[choice[o]] for o in range(3))
            assert np.allclose(found, model.R[a] + model.discount * T @ ahead)


def test_brute_force_is_right_about_a_known_case() -> None:
    """With one step it is the best expected reward."""
    model = random_model(8)
    assert exact_value(model, model.start, 1) == pytest.approx(float(np.max(model.R @ model.start)))
