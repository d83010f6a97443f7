"""Solutions on disk."""

import numpy as np
import pytest
from solve.small import random_model

from baddr.errors import UserError
from baddr.files import cache
from baddr.solve import stored
from baddr.solve.point_based import Budget, solve
from baddr.solve.policy import act, load, save


def test_a_policy_reads_back(tmp_path) -> None:
    solution = solve(random_model(0), Budget(1e-6), 3)
    save(solution, tmp_path / "policy.npz", {"domain": "mine"})
    again = load(tmp_path / "policy.npz")
    for name in ("lower", "upper", "seconds", "trials"):
        assert getattr(again, name) == getattr(solution, name)
    for name in ("alphas", "actions", "steps_left"):
        assert np.array_equal(getattr(again, name), getattr(solution, name))


def test_the_action_is_that_of_the_best_vector_for_the_steps_left() -> None:
    solution = solve(random_model(0), Budget(1e-6), 3)
    b = np.array([0.2, 0.5, 0.3])
    for left in (1, 2, 3):
        mine = [i for i, steps in enumerate(solution.steps_left) if steps == left]
        best = max(mine, key=lambda i: solution.alphas[i] @ b)
        assert act(solution, b, left) == solution.actions[best]
    with pytest.raises(UserError, match="1 to 3 steps left, not 4"):
        act(solution, b, 4)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"nothing"])
def test_what_is_no_policy_is_refused(tmp_path, content: bytes) -> None:
    (tmp_path / "policy.npz").write_bytes(content)
    with pytest.raises(UserError, match="is not a policy"):
        load(tmp_path / "policy.npz")
    with pytest.raises(UserError, match="There is no file"):
        load(tmp_path / "another.npz")


def test_a_solution_is_made_once_and_again_where_it_is_damaged(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path))
    made = []

    def counted(*arguments):
        made.append(arguments)
        return solve(*arguments)

    monkeypatch.setattr(stored, "solve", counted)
    model, budget = random_model(0), Budget(1e-3, trials=5)
    one, other = (stored.stored_solution(model, budget, 3) for _ in range(2))
    assert len(made) == 1 and np.array_equal(one.alphas, other.alphas) and one.seconds == other.seconds
    for changed in (random_model(1), random_model(0, discount=0.91)):
        stored.stored_solution(changed, budget, 3)
    stored.stored_solution(model, Budget(1e-3, trials=6), 3)
    stored.stored_solution(model, budget, 2)
    assert len(made) == 5 == len(list(cache.solutions().glob("*.npz")))
    stored.solution_path(model, budget, 3).write_bytes(b"torn")
    stored.stored_solution(model, budget, 3)
    assert len(made) == 6
    cache.clear()
    assert not cache.solutions().exists()
