"""What the benchmarks share: a core to run on, a line about the machine, and medians of repeats.

Times are CPU seconds of the process on a CPU (other work on the machine then counts little, though it still
takes cache and memory bandwidth) and wall seconds on an accelerator.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def pin(cores: int = 1, first: int = 0) -> None:
    """Run on these cores only, with small loops compiled, as `baddr run` does; call it before JAX starts
    its threads."""
    from baddr.fast.compiler import compile_small_loops

    compile_small_loops()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + cores])


def about() -> str:
    """The device, the cores this process may use, and how busy the machine is."""
    import jax

    device = jax.devices()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kind = processor() if device.platform == "cpu" else device.device_kind
    return f"{kind}, {cores} core(s), load {os.getloadavg()[0]:.1f}, jax {jax.__version__}"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def clock() -> Callable[[], float]:
    import jax

    return time.process_time if jax.default_backend() == "cpu" else time.perf_counter


def seconds(function: Callable[..., Any], *arguments: Any, repeats: int = 5, most: float = 20.0) -> float:
    """The median of some calls of a compiled function; fewer where they would take over `most` seconds."""
    return time_and_result(function, *arguments, repeats=repeats, most=most)[0]


def time_and_result(
    function: Callable[..., Any], *arguments: Any, repeats: int = 5, most: float = 20.0
) -> tuple[float, Any]:
    import jax

    now, result = clock(), jax.block_until_ready(function(*arguments))  # compiles
    times: list[float] = []
    while len(times) < repeats and (not times or sum(times) + times[-1] < most):
        started = now()
        result = jax.block_until_ready(function(*arguments))
        times.append(now() - started)
    return statistics.median(times), result
