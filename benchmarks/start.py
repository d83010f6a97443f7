"""How long `baddr run tiger` takes to its first finished episode, and where the time goes.

    python benchmarks/start.py [--cores 2] [--repeats 1] [--imports]

Cold: nothing is trained or compiled yet (an empty BADDR_CACHE). Warm: the same once more. Wall seconds, and
CPU seconds of all cores beside them, since wall time is worth little on a busy machine. Phases are wall
seconds and overlap: one thread traces and compiles the real steps while another trains. `--imports` lists
the modules that take longest to import (`python -X importtime`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import pin, processor

BOUNDS = {"cold": 12.0, "warm": 5.0}
PHASES = ("imports", "training", "tracing", "compiling")  # the last two: over all programs


def child(out: str) -> None:
    """`baddr run tiger` that stops at its first finished episode and says when it got where."""
    import jax.monitoring

    import baddr.cli
    from baddr.agents import networks
    from baddr.lab import engine, runner  # noqa: F401 - all that a run imports

    born = float(os.environ["BADDR_BENCHMARK_BORN"])
    found = {"imports": time.time() - born, "training": 0.0, "tracing": 0.0, "compiling": 0.0}
    programs: list[float] = []
    names = {"jaxpr_trace": "tracing", "jaxpr_to_mlir": "tracing", "backend_compile": "compiling"}

    def note(event: str, duration: float, **_) -> None:
        for part, phase in names.items():
            if part in event:
                found[phase] += duration
        if "backend_compile" in event:
            programs.append(duration)

    def train(*arguments, **options):
        started = time.time()
        result = trained(*arguments, **options)
        found["training"] += time.time() - started
        return result

    def post(board, chunk, rows) -> None:
        if len(rows["run"]):
            found.update(first_episode=time.time() - born, cpu=time.process_time())
            found.update(programs=len(programs), largest=max(programs, default=0.0))
            print(json.dumps(found), flush=True)
            os._exit(0)
        posted(board, chunk, rows)

    trained, networks.train = networks.train, train
    posted, engine.Board.post = engine.Board.post, post
    jax.monitoring.register_event_duration_secs_listener(note)
    sys.argv = ["baddr", "run", "tiger", "--out", out]
    baddr.cli.main()


def start(folder: Path, number: int) -> dict[str, float]:
    environment = os.environ | {
        "BADDR_CACHE": str(folder / "cache"),
        "BADDR_BENCHMARK_BORN": str(time.time()),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, __file__, "--child", str(folder / f"results-{number}")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"baddr run tiger failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def slowest_imports(count: int = 12) -> list[tuple[float, str]]:
    """(seconds with all that it imports, module), the longest first."""
    code = "import baddr.cli, baddr.lab.runner"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    lines = [line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2]
    found = [(1e-6 * float(both), name.strip()) for _, both, name in lines if both.strip().isdigit()]
    return sorted(found, reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--imports", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    pin(options.cores)
    print("`baddr run tiger` to its first finished episode")
    print(f"{processor()}, {options.cores} core(s), load {os.getloadavg()[0]:.1f}")
    print(f"{'seconds':8s} {'first episode':>13s} {'bound':>6s} {'CPU':>6s}   ", end="")
    print(
        f"{'imports':>8s} {'training':>8s} {'tracing':>8s} {'compiling':>9s} {'programs':>9s} {'largest':>8s}"
    )
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory(prefix="baddr-benchmark-") as folder:
            for number, kind in enumerate(found):
                found[kind].append(start(Path(folder), number))
    for kind, times in found.items():
        of = lambda name: statistics.median(one[name] for one in times)  # noqa: B023
        print(f"{kind:8s} {of('first_episode'):13.1f} {BOUNDS[kind]:6.1f} {of('cpu'):6.1f}   ", end="")
        print(" ".join(f"{of(name):8.1f}" for name in PHASES), end="  ")
        print(f"{of('programs'):9.0f} {of('largest'):8.1f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.imports:
        print("seconds to import, with all that it imports")
        for seconds, name in slowest_imports():
            print(f"{seconds:8.2f} {name}")


if __name__ == "__main__":
    main()
