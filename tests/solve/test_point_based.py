"""The solver against brute force, and against published bounds."""

import json
from pathlib import Path

import numpy as np
import pytest
from solve.small import exact_value, policy_value, random_model

from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.cassandra.sparse import file_model
from baddr.errors import UserError
from baddr.solve.model import from_tables
from baddr.solve.point_based import Budget, solve

SHARED = Path(__file__).parents[3] / "shared"
EXAMPLES = Path(__file__).parents[2] / "examples"
NEAR = 1e-9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ends", [0.0, 0.3])
def test_with_a_horizon_both_bounds_meet_at_the_exact_value(seed: int, ends: float) -> None:
    model = random_model(seed, ends=ends)
    exact = exact_value(model, model.start, 4)
    seen = []
    solution = solve(model, Budget(1e-6), 4, lambda *now: seen.append(now))
    assert solution.lower - NEAR <= exact <= solution.upper + NEAR and solution.gap <= 1e-6
    # At every moment, and only ever tighter.
    lower, upper = (np.array([now[i] for now in seen]) for i in (1, 2))
    assert np.all(lower <= exact + NEAR) and np.all(upper >= exact - NEAR)
    assert np.all(np.diff(lower) >= -NEAR) and np.all(np.diff(upper) <= NEAR)
    assert policy_value(model, solution, model.start, 4) >= solution.lower - NEAR


@pytest.mark.parametrize("seed", range(4))
def test_without_a_horizon_the_bounds_enclose_the_exact_value(seed: int) -> None:
    """With gamma = .2, what comes after 6 steps is worth less than .2^6 of the largest return: 6e-5."""
    model = random_model(seed, discount=0.2, ends=0.2 if seed % 2 else 0.0)
    exact = exact_value(model, model.start, 6)
    rest = 0.2**6 * float(np.max(np.abs(model.R))) / 0.8
    solution = solve(model, Budget(1e-4))
    assert solution.lower - rest <= exact <= solution.upper + rest and solution.gap <= 1e-4
    assert policy_value(model, solution, model.start, 6) >= solution.lower - rest


@pytest.mark.parametrize("seed", [0, 5])
def test_sweeps_keep_the_bounds_true(seed: int) -> None:
    """Against the other method: 16 steps of a horizon, whose rest is bounded."""
    model = random_model(seed, discount=0.6)
    rest = 0.6**16 * float(np.max(np.abs(model.R))) / 0.4
    ends, never = solve(model, Budget(1e-3, trials=100), 16), solve(model, Budget(1e-4, trials=400))
    assert never.gap <= 1e-4
    assert never.lower <= ends.upper + rest and never.upper >= ends.lower - rest


def test_the_last_step_is_the_best_reward_alone() -> None:
    model = random_model(1)
    solution = solve(model, Budget(), 1)
    assert solution.lower == pytest.approx(np.max(model.R @ model.start))
    assert solution.upper == pytest.approx(solution.lower)


def test_without_a_discount_there_must_be_a_horizon() -> None:
    model = random_model(1, discount=1.0)
    with pytest.raises(UserError, match="discount below 1"):
        solve(model, Budget())
    exact = exact_value(model, model.start, 4)
    assert solve(model, Budget(1e-6), 4).lower == pytest.approx(exact, abs=2e-6)


def test_a_discount_of_nothing_looks_one_step_ahead() -> None:
    model = random_model(2, discount=0.0)
    assert solve(model, Budget()).lower == pytest.approx(np.max(model.R @ model.start))


def test_the_same_trials_give_the_same_solution() -> None:
    model = random_model(3, discount=0.95)
    one, other = (solve(model, Budget(0.0, trials=12)) for _ in range(2))
    assert one.trials == 12
    assert np.array_equal(one.alphas, other.alphas) and np.array_equal(one.actions, other.actions)


def test_time_is_kept() -> None:
    model = random_model(3, discount=0.999, sizes=(8, 4, 4))
    solution = solve(model, Budget(0.0, seconds=0.1))
    assert solution.seconds >= 0.1 and solution.gap > 0


def test_a_chain_that_is_seen_is_an_mdp() -> None:
    """Two states that swap, seen: staying in the good one earns 1 for ever."""
    T = np.stack([np.eye(2), np.eye(2)[::-1]])
    O, R = np.stack([np.eye(2)] * 2), np.zeros((2, 2, 2))
    R[:, :, 1] = 1.0
    solution = solve(from_tables(T, O, R, np.array([1.0, 0.0]), 0.9), Budget(1e-6))
    assert solution.lower == pytest.approx(10.0, abs=1e-5) and solution.upper == pytest.approx(10.0, abs=1e-5)


def model_in(name: str):
    if not (SHARED / "pomdp").is_dir():
        pytest.skip("the published files are not here")
    (path,) = (SHARED / "pomdp").glob(f"*--{name}.pomdp")
    return file_model(CassandraSettings(path=str(path)))


def published(name: str) -> tuple[float, float]:
    lower, upper = json.loads((SHARED / "oracles" / "pomdp_values.json").read_text())[name]
    return lower, upper


@pytest.mark.parametrize("name", ["tiger.95", "4x3.95", "cheese.95", "paint.95"])
def test_published_bounds_are_met(name: str) -> None:
    solution, (lower, upper) = solve(model_in(name), Budget(1e-3, seconds=60.0)), published(name)
    assert solution.gap <= 1e-3
    assert solution.lower <= upper + 1e-5 and solution.upper >= lower - 1e-5  # they have six digits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "key", "least"), [("Hallway", "hallway (sarsop)", 0.97), ("TagAvoid", "TagAvoid", -6.5)]
)
def test_larger_files_come_close_within_a_minute(name: str, key: str, least: float) -> None:
    solution, (lower, upper) = solve(model_in(name), Budget(1e-3, seconds=60.0)), published(key)
    assert solution.lower >= least and lower <= solution.upper and solution.lower <= upper


def test_our_own_tiger_file() -> None:
    solution = solve(file_model(CassandraSettings(path=str(EXAMPLES / "tiger.pomdp"))), Budget(1e-3))
    assert solution.lower <= 19.3721 and solution.upper >= 19.3711  # as published
