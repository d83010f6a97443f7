"""Planning and belief updates at the paper's settings, for every domain: time, its shares, and memory.

    python benchmarks/domains.py [--runs 1] [--cases tiger/baddr ...] [--batches 256]

The time of a real step has four parts: `roots` draws where the simulations start (and tabulates the networks
where they have few inputs), `search` simulates, `proposals` steps the particles and weighs or rejects them,
`U` learns. Networks are trained on a few batches only: that hardly changes the cost of anything but the
number of rounds of proposals of rejection sampling, which is given. Memory: what a run is computed to need
(`bytes_per_run`), and what the process grew by, compiled programs included. One core of a CPU, or the
accelerator that JAX finds; CPU seconds on a CPU; medians.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from timing import about, pin

CASES = {
    "tiger/ba-pomcp": {},
    "tiger/baddr": {},
    "tiger/latent": {},
    "road-racing-3/fba-pomcp": {"lanes": 3},
    "road-racing-3/baddr": {"lanes": 3},
    "road-racing-9/baddr": {"lanes": 9},
    "road-racing-9/latent": {"lanes": 9},
    "collision-avoidance/fba-pomcp": {},
    "collision-avoidance/baddr": {},
    "collision-avoidance/latent": {},
    "gridverse-8/baddr": {"size": 8},
    "gridverse-32/baddr": {"size": 32},
    "factored-tiger/fba-pomcp": {},
}


def experiment_of(name: str) -> Any:
    from dataclasses import replace

    from baddr.lab.catalog import DOMAINS
    from baddr.lab.experiment import preset

    domain, agent = name.split("/")
    domain = domain.rstrip("-0123456789")
    return preset(domain, agent, "paper", replace(DOMAINS[domain].settings, **CASES[name]))


def resident() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(name: str, runs: int, batches: int) -> None:
    """Runs in a process of its own, so that memory is its own: the numbers as JSON in the last line."""
    import jax
    from cases import case, time_learning, time_plan, time_roots, time_update

    from baddr.agents.life import BayesianLife

    jax.block_until_ready(jax.numpy.zeros(1))
    before = resident() if jax.default_backend() == "cpu" else 0.0
    some = case(experiment_of(name), runs, batches)
    (plan, steps), roots = time_plan(some), time_roots(some)
    (update, rounds), learning = time_update(some), time_learning(some)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if jax.default_backend() != "cpu":
        peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
    found = {
        "plan": plan,
        "update": update,
        "steps": steps,
        "roots": min(roots, plan),
        "learning": min(learning, update),
        "rounds": rounds,
        "in_flight": some.experiment.settings.planner.in_flight,
        "bytes": BayesianLife(some.agent, some.agent.gba.pomdp).bytes_per_run(),
        "grown": (peak - before) / runs,
    }
    print(json.dumps(found))


def row(name: str, runs: int, found: dict[str, float]) -> str:
    plan, update = (1e3 * found[x] / runs for x in ("plan", "update"))
    whole = found["plan"] + found["update"]
    parts = (
        found["roots"],
        found["plan"] - found["roots"],
        found["update"] - found["learning"],
        found["learning"],
    )
    shares = " ".join(f"{100 * part / whole:8.0f} %" for part in parts)
    return (
        f"{name:30s} {found['in_flight']:9.0f} {plan:9.2f} {1e6 * found['plan'] / found['steps']:8.3f} "
        f"{found['steps'] / runs:8.0f} {update:10.2f} {found['rounds']:7.1f} {shares} "
        f"{found['bytes'] / 2**20:8.1f} {found['grown']:8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--batches", type=int, default=256, help="that the networks are trained on")
    parser.add_argument("--measure", choices=list(CASES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    pin()
    if options.measure:
        measure(options.measure, options.runs, options.batches)
        return
    print(f"A plan and a belief update at the paper's settings, per run of {options.runs}\n{about()}")
    print(f"{'':30s} {'in flight':>9s} {'ms/plan':>9s} {'us/step':>8s} {'steps':>8s} ", end="")
    print(f"{'ms/update':>10s} {'rounds':>7s} {'roots':>10s} {'search':>10s} ", end="")
    print(f"{'proposals':>10s} {'U':>10s} {'MiB/run':>8s} grown")
    from cases import fresh_cache

    with fresh_cache() as folder:
        for name in options.cases:
            command = [sys.executable, __file__, "--measure", name, "--runs", str(options.runs)]
            command += ["--batches", str(options.batches)]
            environment = os.environ | {"BADDR_CACHE": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name:30s} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
                continue
            print(row(name, options.runs, json.loads(done.stdout.splitlines()[-1])), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
