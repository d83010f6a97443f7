"""What is worth comparing with: the optimum of a result's true model, by the solver."""

from pathlib import Path
from typing import Any, NamedTuple

from baddr.files.store import Folder
from baddr.lab.build import build_domain
from baddr.lab.experiment import of_folder
from baddr.solve.point_based import Budget
from baddr.solve.stored import stored_solution

TRIALS = 300
PRECISION = 1e-3


class Optimum(NamedTuple):
    """Bounds on the optimal value."""

    lower: float
    upper: float

    def __str__(self) -> str:
        return f"between {self.lower:.6g} and {self.upper:.6g}"


def optimum(settings: Any, domain: Any) -> Optimum:
    """From the cache, or solved now, which takes seconds to minutes."""
    from baddr.domains.solving import true_model

    model, horizon = true_model(domain, settings)
    solution = stored_solution(model, Budget(PRECISION, trials=TRIALS), horizon)
    return Optimum(solution.lower, solution.upper)


def optimum_of(path: Path, trust: bool = False) -> Optimum:
    """Of the domain that a result folder is about."""
    experiment = of_folder(Folder(path), trust)
    return optimum(experiment.domain, build_domain(experiment))
