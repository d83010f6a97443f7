"""A solution as a file: vectors, their actions, and the bounds. Needs no JAX."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from baddr.errors import UserError
from baddr.files.writing import write
from baddr.solve.point_based import Solution

ARRAYS = ("alphas", "actions", "steps_left")
NUMBERS = ("lower", "upper", "seconds", "trials")


def save(solution: Solution, path: Path, about: dict[str, Any] | None = None) -> None:
    """An .npz archive of NumPy arrays; `about` is kept as JSON text."""
    buffer = io.BytesIO()
    values = {name: np.asarray(getattr(solution, name)) for name in (*ARRAYS, *NUMBERS)}
    np.savez_compressed(buffer, about=np.array(json.dumps(about or {})), **values)  # type: ignore[arg-type]
    write(path, buffer.getvalue())


def load(path: Path) -> Solution:
    """What `save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays, numbers = [found[name] for name in ARRAYS], [found[name].item() for name in NUMBERS]
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        raise UserError(f"{path} is not a policy written by `baddr solve --out`.") from None
    return Solution(numbers[0], numbers[1], *arrays, seconds=numbers[2], trials=numbers[3])


def act(solution: Solution, b: Float64[np.ndarray, " S"], steps_left: int) -> int:
    """The action of the best vector at a belief, with so many steps left."""
    mine = np.flatnonzero((solution.steps_left == steps_left) | (solution.steps_left == 0))
    if not len(mine):
        most = int(solution.steps_left.max())
        raise UserError(f"The policy is for 1 to {most} steps left, not {steps_left}.")
    return int(solution.actions[mine[np.argmax(solution.alphas[mine] @ b)]])
