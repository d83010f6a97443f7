"""Options that several commands have: each stands here once."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Positional, arg

from baddr.errors import UserError

T = TypeVar("T")
Flat = Annotated[T, arg(name="")]  # a group whose flags stand beside the command's own
Folders = Positional[Annotated[tuple[Path, ...], arg(metavar="DIR...", help="Result folders.")]]
Device = Annotated[
    Literal["auto", "cpu", "gpu"], arg(help="What to compute on. auto: a GPU if JAX sees one.")
]
DryRun = Annotated[bool, arg(help="Only print what would run, and the memory and time it needs.")]
Out = Annotated[
    Path | None, arg(metavar="DIR", help="The folder to write. By default, a new one in results/.")
]
Config = Annotated[
    Path | None, arg(help="A TOML file with settings. They override the preset, and flags override them.")
]
Level = Annotated[
    float | None, arg(help="Also print after how many episodes the mean return reaches this level.")
]
History = Annotated[
    Path | None,
    arg(help='A JSON file: {"episodes": [{"actions": [2], "observations": [[0]]}]}. Required.'),
]
Reference = Annotated[
    Literal["none", "optimum", "all"],
    arg(
        help="Lines to compare with. optimum: the optimal value of the true model (from `baddr solve`; kept "
        "on disk). all: also the returns of planning with the prior only and with the true model."
    ),
]
Watch = Annotated[bool, arg(help="Show the learning curve in the terminal as it grows.")]
Track = Annotated[
    tuple[Literal["jsonl", "tensorboard"], ...],
    arg(
        help="Also write each episode, as it ends, to metrics.jsonl or to TensorBoard event files. "
        "A resumed folder keeps its trackers."
    ),
]
Trust = Annotated[
    bool,
    arg(help="Execute the FILE.py that the folder names, even if it has changed since the start."),
]
Debug = Annotated[bool, arg(help="Show the traceback of an error.")]


@dataclass(frozen=True)
class Where:
    """Where runs are computed."""

    engine: Literal["local", "ray"] = "local"
    """Compute in this process, or on a Ray cluster."""
    address: Annotated[str, arg(metavar="HOST:PORT")] = ""
    """The head of the Ray cluster. Without it, Ray uses this machine's cores."""
    cpus_per_chunk: float = 1.0
    """CPU cores for each chunk of runs (Ray only)."""
    gpus_per_chunk: float = -1.0
    """GPUs for each chunk of runs (Ray only). -1: one, if the cluster has any and --device is not cpu."""
    device: Device = "auto"


def engine_of(where: Where) -> Any:
    """The engine that the options name, with JAX set up for it."""
    from baddr.lab.device import prepare

    if where.engine == "local":
        if where.address:
            raise UserError("--address names a Ray cluster: it needs --engine ray.")
        prepare(where.device)
        from baddr.lab.engine import Local

        return Local()
    if where.cpus_per_chunk < 0 or where.cpus_per_chunk + max(0, where.gpus_per_chunk) == 0:
        raise UserError("--cpus-per-chunk must be positive, or 0 with --gpus-per-chunk.")
    # This process computes little: it need not have the device that the cluster has. Where it has, it trains
    # the prior there, and leaves the memory to the workers.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    prepare("cpu" if where.device == "cpu" else "auto")
    from baddr.lab.engine import Ray

    return Ray(where.address, where.device, where.cpus_per_chunk, where.gpus_per_chunk)
