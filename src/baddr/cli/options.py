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
DryRun = Annotated[bool, arg(help="Say what would run, and what memory and time it takes.")]
Out = Annotated[Path | None, arg(metavar="DIR", help="The folder to write. By default a new one in results.")]
Config = Annotated[
    Path | None, arg(help="A TOML file with settings. They replace the preset's, and flags replace them.")
]
Level = Annotated[
    float | None, arg(help="Also say after how many episodes the mean return reaches this level.")
]
History = Annotated[
    Path | None,
    arg(help='A JSON file: {"episodes": [{"actions": [2], "observations": [[0]]}]}. Required.'),
]
Reference = Annotated[
    Literal["none", "optimum", "all"],
    arg(
        help="optimum: also show the optimal value of the true model (`baddr solve`; kept on disk). all: "
        "and what planning with the prior only and on the truth are worth."
    ),
]
Watch = Annotated[bool, arg(help="Show the learning curve in the terminal while it grows.")]
Track = Annotated[
    tuple[Literal["jsonl", "tensorboard"], ...],
    arg(
        help="Also write each episode when it ends, to metrics.jsonl or to TensorBoard's event files. "
        "A resumed folder keeps the trackers it has."
    ),
]
Trust = Annotated[
    bool,
    arg(help="Execute the FILE.py that the folder names, also where it is not the one it was started with."),
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
    """CPU cores that Ray gives to each chunk of runs."""
    gpus_per_chunk: float = -1.0
    """GPUs that Ray gives to each chunk of runs. -1: one if the cluster has any and --device is not cpu."""
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
        raise UserError("--cpus-per-chunk must not be negative, nor zero without --gpus-per-chunk.")
    # This process computes little: it need not have the device that the cluster has. Where it has, it trains
    # the prior there, and leaves the memory to the workers.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    prepare("cpu" if where.device == "cpu" else "auto")
    from baddr.lab.engine import Ray

    return Ray(where.address, where.device, where.cpus_per_chunk, where.gpus_per_chunk)
