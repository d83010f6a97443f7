"""Solutions on disk, under the hash of the model and of what was asked for. Needs no JAX."""

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np

from baddr.errors import UserError
from baddr.files import cache
from baddr.solve.model import SparseModel
from baddr.solve.point_based import Budget, Progress, Solution, solve
from baddr.solve.policy import load, save

CODE_VERSION = 4  # raise it when the same model and budget give another solution


def stored_solution(
    model: SparseModel, budget: Budget, horizon: int | None = None, progress: Progress | None = None
) -> Solution:
    """From the cache, or solved now and kept."""
    path = solution_path(model, budget, horizon)
    with suppress(UserError, OSError):  # it is not there, or damaged: it can be made again
        return load(path)
    solution = solve(model, budget, horizon, progress)
    with cache.optional("a solution"):
        save(solution, path)
    return solution


def solution_path(model: SparseModel, budget: Budget, horizon: int | None) -> Path:
    asked = CODE_VERSION, model.discount, horizon, budget.precision, budget.seconds, budget.trials
    asked += (budget.vectors,) * (budget.vectors > 0)
    parts = [repr(asked).encode(), model.R.tobytes(), model.start.tobytes()]
    for table in (*model.T, *model.O):
        parts += [np.asarray(x).tobytes() for x in (table.data, table.indices, table.indptr)]
    return cache.solutions() / f"{hashlib.sha256(b''.join(parts)).hexdigest()}.npz"
