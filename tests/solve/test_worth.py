"""What a policy for another model is worth, against a walk through all histories."""

import numpy as np
import pytest

from baddr.solve.model import SparseModel, from_tables
from baddr.solve.point_based import Budget, solve
from baddr.solve.policy import act
from baddr.solve.worth import worth

LISTEN, NULL = 2, 2


def tiger(accuracy: float) -> SparseModel:
    T = np.stack([np.full((2, 2), 0.5), np.full((2, 2), 0.5), np.eye(2)])
    O = np.zeros((3, 2, 3))
    O[:LISTEN, :, NULL] = 1
    O[LISTEN, :, :NULL] = [[accuracy, 1 - accuracy], [1 - accuracy, accuracy]]
    R = np.full((3, 2, 2), -1.0)
    R[0], R[1] = np.array([[10.0], [-100.0]]), np.array([[-100.0], [10.0]])
    terminal = np.zeros((3, 2, 2), bool)
    terminal[:LISTEN] = True
    return from_tables(T, O, R, np.array([0.5, 0.5]), 0.95, terminal)


def by_histories(solution, believed: SparseModel, truth: SparseModel, steps: int) -> float:
    """The sum over all histories of a few steps, one after the other."""

    def value(b: np.ndarray, w: np.ndarray, left: int) -> float:
        if left == 0 or not w.sum():
            return 0.0
        a = act(solution, b, left)
        total = float(truth.R[a] @ w)
        for o in range(3):
            b_next = (b @ believed.T[a].toarray()) * believed.O[a].toarray()[:, o]
            w_next = (w @ truth.T[a].toarray()) * truth.O[a].toarray()[:, o]
            if b_next.sum() > 0:
                total += truth.discount * value(b_next / b_next.sum(), w_next, left - 1)
        return total

    return value(believed.start, truth.start, steps)


@pytest.mark.parametrize("expected", [0.625, 0.7, 0.85])
def test_worth_is_the_sum_over_all_histories(expected):
    believed, truth = tiger(expected), tiger(0.85)
    solution = solve(believed, Budget(1e-4, trials=200), 7)
    found = worth(solution, believed, truth, 7)
    assert found == pytest.approx(by_histories(solution, believed, truth, 7), abs=1e-9)


def test_the_policy_of_the_truth_is_worth_the_optimum_and_others_less():
    truth, vague = tiger(0.85), tiger(0.625)
    solution = solve(truth, Budget(1e-4, trials=100), 8)
    best = worth(solution, truth, truth, 8)
    assert best is not None and solution.lower - 1e-6 <= best <= solution.upper + 1e-6
    other = worth(solve(vague, Budget(1e-3, trials=100), 8), vague, truth, 8)
    assert other is not None and other < best - 0.5
    assert worth(solution, truth, truth, 8, most=1) is None, "too many beliefs to tell apart"
