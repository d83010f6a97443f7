"""How long a plan and a belief update take, and what a simulated step costs.

    python benchmarks/planner.py [--batches 1 64] [--simulations 4096] [--particles 1024]

Tiger at the paper's settings, or factored tiger (`--domain factored-tiger`); the median of several repeats on
whatever device JAX finds. For one CPU core, run it under `taskset -c 0`.
"""

import argparse
import os
import statistics
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from cases import compiled

from baddr import prng
from baddr.fast.compiler import compile_small_loops
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset


def median_seconds(function, *arguments, repeats: int = 7) -> tuple[float, Any]:
    result = jax.block_until_ready(function(*arguments))  # compiles
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - started)
    return statistics.median(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--simulations", type=int, default=4096)
    parser.add_argument("--particles", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--domain", choices=["tiger", "factored-tiger"], default="tiger")
    parser.add_argument("--agents", nargs="+", default=["pomcp", "ba-pomcp", "fba-pomcp", "baddr"])
    parser.add_argument("--structure", choices=["true", "uncertain", "matched", "full"], default="true")
    options = parser.parse_args()
    compile_small_loops()  # as the command line does
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{jax.devices()[0].device_kind}, {cores} core(s), load {load:.1f}, jax {jax.__version__}")
    print(f"{'agent':10s} {'runs':>5s} {'ms/plan':>9s} {'us/step':>8s} {'steps/plan':>10s} {'ms/update':>9s}")
    for name in options.agents:
        experiment = preset(options.domain, name, "paper")  # simulations: PO-UCT
        groups = experiment.settings.groups()
        sizes = {"num_simulations": options.simulations, "in_flight": options.in_flight}
        changed = {"planner": replace(groups["planner"], **sizes)}
        changed["filter"] = replace(groups["filter"], num_particles=options.particles)
        if "factored" in groups:
            changed["factored"] = replace(groups["factored"], structure=options.structure)
        experiment = experiment.changed(**changed)
        domain = build_domain(experiment)
        agent = build_agent(experiment, domain)
        for runs in options.batches:
            keys = jr.split(prng.key(0), runs)
            beliefs = jax.vmap(agent.initial_belief)(keys)
            plan = compiled(lambda agent, k, b: agent.plan(k, b, jnp.full(k.shape, 30)))
            update = compiled(lambda agent, k, b, a, o: jax.vmap(agent.update)(k, b, a, o))
            seconds, found = median_seconds(plan, agent, keys, beliefs)
            listen, heard = jnp.full((runs,), 2, jnp.int32), jnp.zeros((runs, 1), jnp.int32)
            learning, _ = median_seconds(update, agent, keys, beliefs, listen, heard)
            steps = int(found.num_steps.sum())
            print(
                f"{name:10s} {runs:5d} {1e3 * seconds / runs:9.3f} {1e6 * seconds / steps:8.3f} "
                f"{steps / runs:10.0f} {1e3 * learning / runs:9.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
