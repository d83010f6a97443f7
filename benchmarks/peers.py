"""Simulations a second of POMCP on the true, continuing tiger, side by side with other libraries.

    python benchmarks/peers.py [--simulations 4096] [--rounds 3] [--install pomdp-py POMDPPlanners]

Opening a door redraws the tiger and the search goes on: every simulation takes 30 steps, in the tree and
then by uniformly random actions. pomdp-py and POMDPPlanners, both from PyPI, run in environments of their
own, which `--install` makes (the second takes 7 GB and minutes); one that is not there is passed over. All
run on one core; each round times every program, so that a change of the machine's load meets all of them.
CPU seconds; medians.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEPTH, DISCOUNT, EXPLORATION, NOISE = 30, 0.95, 100.0, 0.15
PACKAGES = {"pomdp-py": "pomdp-py", "pomdp-py, cython": "pomdp-py", "POMDPPlanners": "POMDPPlanners"}


def pomdp_py(simulations: int, particles: int) -> Callable[[], Any]:
    import pomdp_py
    from pomdp_py.problems.tiger.tiger_problem import TigerProblem, TigerState

    states = [TigerState("tiger-left"), TigerState("tiger-right")]
    belief = pomdp_py.Particles([random.choice(states) for _ in range(particles)])
    return pouct(TigerProblem(NOISE, states[0], belief), simulations)


def pomdp_py_cython(simulations: int, particles: int) -> Callable[[], Any]:
    import pomdp_py
    from pomdp_py.problems.tiger.cythonize import tiger_problem as tiger

    doors, actions = ("tiger-left", "tiger-right"), ("open-left", "open-right", "listen")
    either = dict.fromkeys(doors, 0.5)
    certain = lambda door, p: {other: p if other == door else 1 - p for other in doors}
    row = lambda door, p: {a: certain(door, p) if a == "listen" else either for a in actions}
    setting = tiger.build_setting(
        {
            "obs_probs": {door: row(door, 1 - NOISE) for door in doors},
            "trans_probs": {door: row(door, 1.0) for door in doors},
        }
    )
    states = [tiger.TigerState(door) for door in doors]
    belief = pomdp_py.Particles([random.choice(states) for _ in range(particles)])
    return pouct(
        tiger.TigerProblem(setting["obs_probs"], setting["trans_probs"], states[0], belief), simulations
    )


def pouct(problem: Any, simulations: int) -> Callable[[], Any]:
    import pomdp_py

    def plan() -> Any:
        problem.agent.tree = None
        planner = pomdp_py.POUCT(
            max_depth=DEPTH,
            discount_factor=DISCOUNT,
            num_sims=simulations,
            exploration_const=EXPLORATION,
            rollout_policy=problem.agent.policy_model,
        )
        return planner.plan(problem.agent)

    return plan


def pomdp_planners(simulations: int, particles: int) -> Callable[[], Any]:
    from POMDPPlanners.core.belief import get_initial_belief
    from POMDPPlanners.environments.tiger_pomdp import TigerPOMDP
    from POMDPPlanners.planners.mcts_planners.pomcp import POMCP

    tiger = TigerPOMDP(discount_factor=DISCOUNT)
    belief = get_initial_belief(tiger, n_particles=particles)
    planner = POMCP(
        environment=tiger,
        discount_factor=DISCOUNT,
        depth=DEPTH - 1,  # its levels count from 0
        exploration_constant=EXPLORATION,
        name="POMCP",
        n_simulations=simulations,
    )
    return lambda: planner.action(belief)


THEIRS = {"pomdp-py": pomdp_py, "pomdp-py, cython": pomdp_py_cython, "POMDPPlanners": pomdp_planners}


def measure(peer: str, simulations: int, particles: int, repeats: int) -> None:
    """Runs in a peer's environment: CPU seconds of some plans, as JSON in the last line."""
    plan, times = THEIRS[peer](simulations, particles), []
    for _ in range(repeats):
        started = time.process_time()
        plan()
        times.append(time.process_time() - started)
    print(json.dumps(times))


def environment(folder: Path, package: str, install: bool) -> Path | None:
    """The Python of a package's own environment, made where it is missing and `install` says so."""
    python = folder / package / "bin" / "python"
    if not python.exists() and install:
        print(f"installing {package} in {python.parents[1]}: minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=False)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        if subprocess.run(pip, check=False).returncode:
            print(f"{package} could not be installed: it is passed over.")
    return python if python.exists() else None


def time_peer(python: Path, peer: str, options: argparse.Namespace) -> list[float]:
    command = [python, __file__, "--measure", peer, "--simulations", str(options.simulations)]
    command += ["--particles", str(options.particles), "--repeats", str(options.repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{peer} failed, so it is passed over: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return []
    return json.loads(done.stdout.splitlines()[-1])


def ours(simulations: int, particles: int, runs: int, in_flight: int) -> Callable[[], Any]:
    """A compiled plan of `runs` runs, `in_flight` simulations of a tree at a time."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from baddr import prng
    from baddr.core.belief_update import initial_belief
    from baddr.core.gba_pomdp import GBAPOMDP
    from baddr.domains.tiger import Tiger, dynamics
    from baddr.fast.choose import fast_planner
    from baddr.planners.tree_search import TreeSearch
    from baddr.posteriors import Known

    class Continuing(Tiger):
        def is_terminal(self, s, a, s_next):
            return jnp.array(False)

    D = dynamics(1 - NOISE)
    pomdp = GBAPOMDP(Continuing(dynamics=D, discount=DISCOUNT), Known(D))
    keys = jr.split(prng.key(0), runs)
    belief = jax.vmap(lambda key: initial_belief(key, pomdp, particles))(keys)

    planner = fast_planner(TreeSearch(simulations, EXPLORATION, DEPTH, in_flight), pomdp)
    left, active = jnp.full((runs,), DEPTH, jnp.int32), jnp.ones((runs,), bool)

    def plan(keys, belief):
        return planner.plan(keys, pomdp, belief, left, active)

    compiled = jax.jit(plan).lower(keys, belief).compile()
    found = jax.block_until_ready(compiled(keys, belief))
    assert int(found.num_steps.sum()) == runs * simulations * DEPTH, "every simulation takes all steps"
    return lambda: jax.block_until_ready(compiled(keys, belief))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--simulations", type=int, default=4096)
    parser.add_argument("--particles", type=int, default=1024)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="plans in each round")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "baddr-peers"
    parser.add_argument("--environments", type=Path, default=default)
    packages = sorted(set(PACKAGES.values()))
    parser.add_argument("--install", nargs="*", choices=packages, default=[], help="make their environments")
    parser.add_argument("--measure", choices=THEIRS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.simulations, options.particles, options.repeats)
        return

    from timing import about, clock, pin

    pin()
    print("POMCP on the true, continuing tiger: ", end="")
    print(f"{options.simulations} simulations of {DEPTH} steps, {options.particles} particles")
    print(about(), flush=True)
    environments = {}
    for peer in THEIRS:
        python = environment(options.environments, PACKAGES[peer], PACKAGES[peer] in options.install)
        if python is None:
            print(f"{peer} is not installed (--install does it): it is passed over.")
        else:
            environments[peer] = python
    plans = {
        (runs, in_flight): ours(options.simulations, options.particles, runs, in_flight)
        for runs in options.batches
        for in_flight in options.in_flight
    }
    now = clock()
    times: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for (runs, in_flight), plan in plans.items():
            for _ in range(options.repeats):
                started = now()
                plan()
                name = f"baddr, {runs} run{'s' * (runs > 1)}, {in_flight} in flight"
                times.setdefault(name, []).append((now() - started) / runs)
        for peer, python in environments.items():
            times.setdefault(peer, []).extend(time_peer(python, peer, options))
        print(f"round {number + 1} of {options.rounds}: load {os.getloadavg()[0]:.1f}", flush=True)
    report({name: found for name, found in times.items() if found}, options.simulations)


def report(times: dict[str, list[float]], simulations: int) -> None:
    """A row each: the median, the fastest, simulations a second, and ratios of the medians to each peer."""
    peers = [name for name in THEIRS if name in times]
    median = {name: statistics.median(found) for name, found in times.items()}
    ratios = " ".join(f"{'x ' + peer:>18s}" for peer in peers)
    print(
        f"{'per run':25s} {'ms a plan':>10s} {'fastest':>9s} {'simulations/s':>14s} {'us/step':>8s} {ratios}"
    )
    for name, found in times.items():
        ratios = " ".join(f"{median[peer] / median[name]:18.1f}" for peer in peers)
        print(
            f"{name:25s} {1e3 * median[name]:10.2f} {1e3 * min(found):9.2f} "
            f"{simulations / median[name]:14,.0f} {1e6 * median[name] / simulations / DEPTH:8.3f} {ratios}"
        )


if __name__ == "__main__":
    main()
