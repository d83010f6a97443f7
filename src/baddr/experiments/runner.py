"""Runs an experiment chunk by chunk, and goes on where an interrupted one stopped.

The unit of work is a chunk of runs. Chunks are independent, and a chunk's next block of steps is a pure
function of its last checkpoint; so a killed, interrupted or extended experiment computes exactly what an
uninterrupted one would have.
"""

import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

from baddr import __version__, prng
from baddr.agent import Agent, Run, Step, advance, start
from baddr.baselines import A2C, Episodes, Learner
from baddr.baselines import advance as advance_learners
from baddr.baselines import start as start_learners
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.experiments.build import (
    build_agent,
    build_domain,
    build_learner,
    build_posterior,
    bytes_per_run,
    device_memory,
)
from baddr.experiments.catalog import LEARNERS
from baddr.experiments.experiment import Experiment, of_folder, to_config
from baddr.experiments.store import Arrays, Folder, write, write_table
from baddr.particles import Particles
from baddr.pomdp import POMDP
from baddr.prior import Fit

STEPS_PER_BLOCK = 8  # real steps between two looks at the clock
SECONDS_BETWEEN_CHECKPOINTS = 30.0
LARGEST_CHUNK = {"cpu": 64, "gpu": 4096}
# Lanes, over all runs of a chunk, that fill the device: about where more stopped paying in docs/results.md.
WIDTH = {"cpu": 16, "gpu": 4096}
SIMULATIONS_PER_LANE = 1024  # fewer cost return: see docs/results.md
MEMORY_SHARE = 0.5  # of the device's memory that one chunk may take
MICROSECONDS_PER_STEP = {"cpu": 0.5, "gpu": 0.01}  # of planning, at a full chunk: see benchmarks/
MICROSECONDS_PER_PARTICLE = {"cpu": 45.0}  # and actor's step of a learner: see benchmarks/dpfrl.py

Progress = Callable[[str, int, int, float], None]  # what is done, how much, of how much, and its value


class Interrupted(Exception):
    """Stopped by Ctrl-C or a termination signal; everything is checkpointed."""


@dataclass(frozen=True)
class Failure:
    """A run whose belief became NaN: its rows end before this step."""

    run: int
    episode: int
    step: int


def chunks(experiment: Experiment[Any], done: list[list[int]]) -> list[list[int]]:
    """[first, last + 1) runs of each chunk; those of `done` stay as they are."""
    plan = list(done)
    first = plan[-1][1] if plan else 0
    while first < experiment.runs:
        last = min(first + experiment.chunk_size, experiment.runs)
        plan.append([first, last])
        first = last
    return plan


def choose_chunk_size(experiment: Experiment[Any], agent: Agent | A2C) -> int:
    """As many runs as fit, in as many chunks as there are cores to work on them."""
    device = jax.devices()[0]
    limit = int(MEMORY_SHARE * device_memory(device) / workers() / bytes_per_run(experiment, agent))
    share = -(-experiment.runs // workers())
    return max(1, min(share, limit, LARGEST_CHUNK.get(device.platform, 4096)))


def choose_lanes(experiment: Experiment[Any]) -> int:
    """Simulations of a tree in flight: what few runs need to fill the device, while it costs no return."""
    width = WIDTH.get(jax.default_backend(), 4096) // experiment.chunk_size
    return max(1, min(width, experiment.planner.num_simulations // SIMULATIONS_PER_LANE))


def workers() -> int:
    """Chunks computed at the same time: one per core of a CPU, one on an accelerator."""
    return len(os.sched_getaffinity(0)) if jax.default_backend() == "cpu" else 1


class Resolved(NamedTuple):
    """An experiment with nothing left open."""

    experiment: Experiment[Any]
    domain: Domain
    agent: Agent | A2C
    fit: Fit | None  # of the prior's networks


def resolve(experiment: Experiment[Any], progress: Progress | None = None) -> Resolved:
    """Build the domain, train (or find) the prior, and choose what was left open."""
    experiment.check()
    domain = build_domain(experiment)
    if experiment.agent in LEARNERS:
        learner = build_learner(experiment, domain)
        size = experiment.chunk_size or choose_chunk_size(experiment, learner)
        return Resolved(replace(experiment, chunk_size=size), domain, learner, None)
    told = None if progress is None else partial(progress, "pretraining")
    posterior, fit = build_posterior(experiment, domain, told)
    agent = build_agent(experiment, domain, posterior)
    if experiment.chunk_size == 0:
        experiment = replace(experiment, chunk_size=choose_chunk_size(experiment, agent))
    if experiment.planner.lanes == 0:
        experiment = replace(experiment, planner=replace(experiment.planner, lanes=choose_lanes(experiment)))
        agent = build_agent(experiment, domain, posterior)
    return Resolved(experiment, domain, agent, fit)


def estimate(experiment: Experiment[Any]) -> dict[str, Any]:
    """What `run` would do, and about what it would take."""
    experiment = replace(experiment, pretrain=replace(experiment.pretrain, batches=0))  # its size is enough
    experiment, domain, agent, _ = resolve(experiment)
    plan = chunks(experiment, [])
    backend = jax.default_backend()
    simulated = 0 if experiment.agent in ("random", *LEARNERS) else 3 * experiment.planner.num_simulations
    steps = experiment.runs * experiment.episodes * min(5, domain.pomdp.horizon)
    seconds = 1e-6 * MICROSECONDS_PER_STEP.get(backend, 0.01) * simulated * steps
    if isinstance(agent, A2C):
        particles = agent.settings.num_particles if agent.particles else 3  # about what the GRU costs
        seconds = 1e-6 * MICROSECONDS_PER_PARTICLE.get(backend, 1.0) * particles * steps
    return {
        "device": backend,
        "chunks": len(plan),
        "runs_per_chunk": experiment.chunk_size,
        "memory_bytes": bytes_per_run(experiment, agent) * experiment.chunk_size * workers(),
        "seconds": seconds / min(workers(), len(plan)),
    }


def begin(experiment: Experiment[Any], folder: Folder, progress: Progress) -> list[Failure]:
    """Run a new experiment in an empty folder."""
    experiment, domain, agent, fit = resolve(experiment, progress)
    folder.check_new()
    with folder.owned():
        write(folder.config, to_config(experiment))
        manifest = {
            "status": "running",
            "domain": domain.name,  # with a hash of its content, where a file holds it
            "seeds": {"seed": experiment.seed, "runs": [0, experiment.runs]},
            "chunks": chunks(experiment, []),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": 0.0,
            "failures": [],
            "prior": None if fit is None else {k: v.tolist() for k, v in fit._asdict().items()},
            **environment(),
        }
        folder.write_manifest(manifest)
        return _run(experiment, domain, agent, folder, manifest, progress)


def go_on(experiment: Experiment[Any], folder: Folder, progress: Progress) -> list[Failure]:
    """Go on with the experiment in `folder`, which `experiment` may extend."""
    experiment, domain, agent, _ = resolve(experiment, progress)
    with folder.owned():
        manifest = folder.read_manifest()
        if manifest.get("domain", domain.name) != domain.name:
            raise UserError(f"{experiment.name} has changed since the experiment in {folder.path} began.")
        manifest["chunks"] = chunks(experiment, manifest["chunks"])
        manifest["seeds"]["runs"] = [0, experiment.runs]
        manifest["status"] = "running"
        manifest["resumed_with"] = environment()
        write(folder.config, to_config(experiment))
        folder.write_manifest(manifest)
        return _run(experiment, domain, agent, folder, manifest, progress)


def environment() -> dict[str, Any]:
    return {
        "baddr": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit of the source tree that runs, where there is one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _run(
    experiment: Experiment[Any],
    domain: Domain,
    agent: Agent | A2C,
    folder: Folder,
    manifest: dict[str, Any],
    progress: Progress,
) -> list[Failure]:
    began = time.monotonic()
    board = _Board(experiment, progress)
    with _stop_on_signals(board.stop), ThreadPoolExecutor(workers()) as pool:
        work = [
            pool.submit(_run_chunk, experiment, domain, agent, folder, number, first, last, board)
            for number, (first, last) in enumerate(manifest["chunks"])
        ]
        try:
            results = [future.result() for future in work]
        except BaseException:
            board.stop.set()
            raise
        finally:
            manifest["wall_seconds"] += round(time.monotonic() - began, 3)
    rows = [rows for rows, _ in results]
    failures = [failure for _, chunk_failures in results for failure in chunk_failures]
    _write_rows(folder, rows)
    stopped = board.stop.is_set()
    manifest["status"] = "running" if stopped else "complete"
    manifest["failures"] = [vars(failure) for failure in failures]
    folder.write_manifest(manifest)
    if stopped:
        raise Interrupted
    return failures


def _write_rows(folder: Folder, tables: list[Arrays]) -> None:
    """episodes.parquet, sorted by run and episode."""
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    order = np.lexsort((columns["episode"], columns["run"]))
    write_table(folder.episodes, {name: column[order] for name, column in columns.items()})


class _Board:
    """What the chunks have done so far, for the progress display."""

    def __init__(self, experiment: Experiment[Any], progress: Progress):
        self.total, self.progress = experiment.runs * experiment.episodes, progress
        self.done: dict[int, int] = {}
        self.recent: dict[int, float] = {}
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.compiled, self.compile_lock = False, threading.Lock()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Let one chunk compile the program that all share, while the others wait."""
        if self.compiled:
            yield
            return
        with self.compile_lock:
            yield
            self.compiled = True

    def post(self, chunk: int, returns: np.ndarray) -> None:
        with self.lock:
            self.done[chunk] = len(returns)
            if len(returns):
                self.recent[chunk] = float(returns[-200:].mean())
            recent = np.mean(list(self.recent.values())) if self.recent else float("nan")
            self.progress("episodes", sum(self.done.values()), self.total, float(recent))


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the chunks to checkpoint and end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _run_chunk(
    experiment: Experiment[Any],
    domain: Domain,
    agent: Agent | A2C,
    folder: Folder,
    number: int,
    first: int,
    last: int,
    board: _Board,
) -> tuple[Arrays, list[Failure]]:
    world = domain.pomdp
    keys = jax.vmap(jr.fold_in, in_axes=(None, 0))(
        prng.key(experiment.seed), first + jnp.arange(experiment.chunk_size)
    )
    runs = _start(keys, agent, world)
    if isinstance(agent, Agent) and isinstance(runs, Run) and experiment.prior:
        runs = runs._replace(belief=_learned_beliefs(experiment, agent, keys, first))
    # A last, smaller chunk has idle lanes, so that all chunks share one compiled program.
    idle = jnp.arange(experiment.chunk_size) >= last - first
    runs = runs._replace(failed=runs.failed | idle)
    rows = _rows_of(jax.eval_shape(lambda r: _advance(r, agent, world, 1, 1)[1], runs), first)
    failures: list[Failure] = []
    trace: list[dict[str, Any]] = []
    saved = folder.load(number)
    if saved is not None:
        runs, rows, failures, trace = _unpack(saved, runs)
    unsaved = saved is None
    checkpointed = time.monotonic()
    while _unfinished(runs, experiment.episodes) and not board.stop.is_set():
        with board.compiling():
            before = runs
            runs, steps = _advance(runs, agent, world, experiment.episodes, STEPS_PER_BLOCK)
        steps = jax.device_get(steps)
        new = _rows_of(steps, first)
        rows = {name: np.concatenate([rows[name], new[name]]) for name in rows}
        failures += _failures_of(before, runs, steps, first)
        if isinstance(steps, Step) and first <= experiment.trace < last:
            trace += _trace_of(steps, experiment.trace - first)
        unsaved = True
        board.post(number, _within(rows, experiment.episodes)["discounted_return"])
        if time.monotonic() - checkpointed > SECONDS_BETWEEN_CHECKPOINTS:
            folder.save(number, _pack(runs, rows, failures, trace))
            unsaved, checkpointed = False, time.monotonic()
    if unsaved:
        folder.save(number, _pack(runs, rows, failures, trace))
    rows = _within(rows, experiment.episodes)
    board.post(number, rows["discounted_return"])
    if trace:
        write(folder.path / "trace.jsonl", "".join(json.dumps(step) + "\n" for step in trace).encode())
    return rows, failures


def _start(keys: Array, agent: Agent | A2C, world: POMDP) -> Run | Learner:
    return start_learners(keys, agent) if isinstance(agent, A2C) else start(keys, agent, world)


def _advance(
    runs: Any, agent: Agent | A2C, world: POMDP, episodes: int, block: int
) -> tuple[Run | Learner, Step | Episodes]:
    """A block of steps; of updates where the agent is a learner. Learners of a chunk go on together until the
    last of them has its episodes, and what the others have too many is kept for an extension."""
    if isinstance(agent, A2C):
        return advance_learners(runs, agent, block)
    return advance(runs, agent, world, jnp.int32(episodes), block)


def _within(rows: Arrays, episodes: int) -> Arrays:
    return {name: column[rows["episode"] < episodes] for name, column in rows.items()}


def _unfinished(runs: Run | Learner, episodes: int) -> bool:
    return bool(np.any((np.asarray(runs.episode) < episodes) & ~np.asarray(runs.failed)))


def _rows_of(steps: Step | Episodes, first: int) -> Arrays:
    """The episodes that ended in this block, as columns."""
    if isinstance(steps.ended, jax.ShapeDtypeStruct):  # the columns, without rows
        steps = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), steps)
    ended = np.asarray(steps.ended)
    if isinstance(steps, Episodes):
        names = ("episode", "return", "discounted_return", "length")
        columns = {name: np.asarray(value)[ended] for name, value in zip(names, steps[1:], strict=True)}
        return {name: _plain(x) for name, x in ({"run": first + np.nonzero(ended)[0]} | columns).items()}
    values = steps.tally._asdict()
    columns = {
        "run": first + np.nonzero(ended)[1],
        "episode": steps.episode[ended],
        "return": values.pop("return_")[ended],
        "discounted_return": values.pop("discounted_return")[ended],
        "length": steps.t[ended] + 1,
    }
    columns |= {name: value[ended] for name, value in values.items()}
    for name, value in steps.summary.items():
        value = value[ended]
        if value.ndim == 1:
            columns[name] = value
        else:
            columns |= {f"{name}_{i}": value[:, i] for i in range(value.shape[1])}
    return {name: _plain(np.asarray(value)) for name, value in columns.items()}


def _plain(column: np.ndarray) -> np.ndarray:
    return column.astype(np.int64 if np.issubdtype(column.dtype, np.integer) else np.float64)


def _failures_of(
    before: Run | Learner, after: Run | Learner, steps: Step | Episodes, first: int
) -> list[Failure]:
    if isinstance(steps, Episodes):
        lanes = np.flatnonzero(np.asarray(after.failed) & ~np.asarray(before.failed))
        return [Failure(first + int(i), int(after.episode[i]), 0) for i in lanes]
    when, lane = np.nonzero(np.asarray(steps.failed))
    episode, t = np.asarray(steps.episode)[when, lane], np.asarray(steps.t)[when, lane]
    return [Failure(first + int(i), int(e), int(t)) for i, e, t in zip(lane, episode, t, strict=True)]


def _trace_of(steps: Step, lane: int) -> list[dict[str, Any]]:
    """The steps of one run in this block, as plain values."""
    return [
        {
            "episode": int(steps.episode[i, lane]),
            "step": int(steps.t[i, lane]),
            "Q": steps.root.Q[i, lane].tolist(),
            "visits": steps.root.N[i, lane].astype(int).tolist(),
            "state": steps.world[0][i, lane].tolist(),
            "next_state": steps.world[1][i, lane].tolist(),
            "action": int(steps.a[i, lane]),
            "observation": steps.o[i, lane].tolist(),
            "reward": float(steps.r[i, lane]),
            "ended": bool(steps.ended[i, lane]),
            "belief": {
                "effective_sample_size": float(steps.effective_sample_size[i, lane]),
                "state": {"features": [p[i, lane].tolist() for p in steps.state]},
                "model": {name: value[i, lane].tolist() for name, value in steps.summary.items()},
            },
        }
        for i in np.flatnonzero(steps.active[:, lane])
    ]


def _learned_beliefs(experiment: Experiment[Any], agent: Agent, keys: Array, first: int) -> Particles:
    """The model beliefs that another experiment's runs ended with, states redrawn."""
    source = Folder(Path(experiment.prior))
    theirs = of_folder(source)
    beliefs = []
    for number, (low, high) in enumerate(source.read_manifest()["chunks"]):
        arrays = source.load(number)
        if arrays is None:
            raise UserError(f"--prior {source.path}: its chunk {number} has no checkpoint.")
        like = jax.eval_shape(start, keys[jnp.zeros((theirs.chunk_size,), jnp.int32)], agent, agent.gba.pomdp)
        belief = _unpack(arrays, like)[0].belief
        beliefs.append(jax.tree.map(lambda x: x[: high - low], belief))  # noqa: B023
    all_beliefs = jax.tree.map(lambda *x: jnp.concatenate(x), *beliefs)
    chosen = (first + jnp.arange(len(keys))) % theirs.runs
    belief = jax.tree.map(lambda x: x[chosen], all_beliefs)
    return jax.vmap(agent.next_episode)(keys, belief)


def _pack(runs: Run | Learner, rows: Arrays, failures: list[Failure], trace: list[dict[str, Any]]) -> Arrays:
    """A chunk's state, rows, failures and trace as plain arrays."""
    state = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(_raw(runs)))}
    note = json.dumps({"failures": [vars(failure) for failure in failures], "trace": trace}).encode()
    columns = {f"rows/{name}": column for name, column in rows.items()}
    return {**state, **columns, "note": np.frombuffer(note, np.uint8)}


def _unpack(arrays: Arrays, like: Any) -> tuple[Any, Arrays, list[Failure], list[dict[str, Any]]]:
    structure = jax.tree.structure(like)
    leaves = [jnp.asarray(arrays[f"state/{i}"]) for i in range(structure.num_leaves)]
    runs = jax.tree.unflatten(structure, leaves)
    runs = runs._replace(key=jr.wrap_key_data(runs.key, impl=prng.IMPL))
    rows = {name.removeprefix("rows/"): x for name, x in arrays.items() if name.startswith("rows/")}
    note = json.loads(arrays["note"].tobytes())
    return runs, rows, [Failure(**values) for values in note["failures"]], note["trace"]


def _raw(runs: Run | Learner) -> PyTree[Array]:
    return runs._replace(key=jr.key_data(runs.key))
