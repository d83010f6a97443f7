"""The parts of a reproduction: an experiment each, run or only timed, and what it takes."""

import json
import shutil
import time
from dataclasses import replace
from typing import Any

from baddr.agents.kinds import agent_class
from baddr.files.store import Folder, load_results
from baddr.files.writing import write
from baddr.lab.asked import kept_as_asked
from baddr.lab.experiment import AnyExperiment, to_config
from baddr.paper.costs import FEWEST_STEPS
from baddr.paper.figures import parts
from baddr.paper.folder import AGAIN, Reproduction, Request

TIMED_SECONDS = 10.0  # that a part of the run-time comparison times steps for
TIMED_STEPS = 40  # at most


def compute(
    folder: Reproduction,
    name: str,
    experiment: AnyExperiment,
    timed: bool,
    progress: Any,
    engine: Any,
    listeners: Any,
) -> None:
    if timed:
        write(folder.part(name).config, to_config(experiment))
        write(folder.timing(name), json.dumps(time_steps(experiment, progress)).encode())
        return
    _run(experiment, folder.part(name), progress, engine, listeners)


def _run(experiment: AnyExperiment, folder: Folder, progress: Any, engine: Any, listeners: Any = ()) -> None:
    """Start an experiment, or resume it; what a kill left before it started is thrown away."""
    from baddr.lab import runner
    from baddr.lab.plots import plot_curves

    how = {"engine": engine or runner.LOCAL, "listeners": listeners}
    if folder.has_experiment:
        runner.resume(kept_as_asked(folder, experiment, AGAIN), folder, progress, **how)
    else:
        shutil.rmtree(folder.path, ignore_errors=True)
        runner.start(experiment, folder, progress, **how)
    results = load_results(folder.path)
    if len(results["run"]):
        paths = [folder.path / "curve.png", folder.path / "curve.svg"]
        plot_curves({experiment.title: results}, experiment.title, paths)


def time_steps(experiment: AnyExperiment, progress: Any) -> dict[str, Any]:
    """The seconds of each of some real steps of one run, compiled before."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from baddr import prng
    from baddr.core.agent import Agent
    from baddr.fast.runs import advance, start
    from baddr.lab.runner import resolve

    experiment, domain, agent, _ = resolve(experiment, progress)
    assert isinstance(agent, Agent)
    world = domain.pomdp
    runs = start(jr.split(prng.key(experiment.seed), 1), agent, world)
    step = lambda runs: jax.block_until_ready(advance(runs, agent, world, jnp.int32(2**30), 1)[0])
    runs = step(step(runs))
    started, seconds = time.monotonic(), []
    while len(seconds) < FEWEST_STEPS or (
        time.monotonic() - started < TIMED_SECONDS and len(seconds) < TIMED_STEPS
    ):
        before = time.perf_counter()
        runs = step(runs)
        seconds.append(time.perf_counter() - before)
        progress("steps", len(seconds), TIMED_STEPS, seconds[-1])
    return {
        "seconds": seconds,
        "device": jax.devices()[0].device_kind,
        "in_flight": experiment.settings.planner.in_flight,
    }


# Measured: seconds to train and compile, then milliseconds of one core: a step of BADDr at so many particles
# and nodes, a step of the other Bayesian agents, an update of a DPFRL learner (80 steps); and the steps of an
# episode of a planner and of a learner.
COSTS = {
    "tiger": (8.0, (14.0, 1024, 32), 2.8, 136.0, 4.5, 15.0),
    "road-racing": (40.0, (77.0, 1024, 32), 1.5, 84.0, 20.0, 20.0),
    "collision-avoidance": (25.0, (23.0, 128, 64), 1.0, 142.0, 4.0, 4.0),
    "gridverse": (60.0, (90.0, 8, 256), 1.0, 683.0, 9.0, 25.0),
}


def seconds(experiment: AnyExperiment, timed: bool = False) -> float:
    """About what a part takes on two cores of a CPU: for the progress display and --dry-run."""
    if timed:
        return 40.0
    first, (step, particles, hidden), other, update, length, learners_length = COSTS[experiment.name]
    episodes = experiment.runs * experiment.episodes
    variant = agent_class(experiment.agent).variant
    if variant == "learner":
        return 30 + 0.5e-3 * update * episodes * learners_length / 80
    if variant != "network":
        return 10 + 0.5e-3 * other * episodes * length
    settings = experiment.settings
    larger = settings.filter.num_particles / particles * (settings.network.hidden / hidden) ** 1.5
    larger *= getattr(experiment.domain, "lanes", 3) / 3
    return first + 0.5e-3 * step * larger * episodes * length


def estimates(request: Request, engine: Any = None) -> list[dict[str, Any]]:
    """What each part would take. Neither the seed nor the number of networks changes the memory of a run."""
    from baddr.lab import runner

    rows, needs = [], {}
    for name, (experiment, timed) in parts(request.chosen, request.sizes).items():
        alike = replace(experiment, seed=0)
        if pretrain := experiment.settings.groups().get("pretrain"):
            alike = alike.changed(pretrain=replace(pretrain, num_networks=1, max_gap=1e9))
        if alike not in needs:
            needs[alike] = runner.estimate(alike, engine or runner.LOCAL)["memory_bytes"]
        row = {"part": name, "runs": experiment.runs, "episodes": experiment.episodes}
        rows.append({**row, "memory_bytes": needs[alike], "seconds": seconds(experiment, timed)})
    return rows
