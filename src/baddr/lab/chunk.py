"""A chunk of runs: the unit of work.

Chunks are independent, and a chunk's next block of steps is a pure function of its last checkpoint: whoever
goes on from there, in whatever process and on whatever machine of the same kind, computes the same.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from baddr.agents.learners import A2C, Episodes, Learner
from baddr.agents.learners import advance as advance_learners
from baddr.agents.learners import start as start_learners
from baddr.core import prng
from baddr.core.agent import Agent, Run, Step, one_step, start
from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP
from baddr.errors import UserError
from baddr.fast.compiler import LONGEST_SUM, jit, options
from baddr.files.store import Folder
from baddr.files.tables import Arrays
from baddr.lab.experiment import Experiment, of_folder

# How hard LLVM works on a CPU's programs. The first beliefs are made once; real steps are as fast as with
# higher levels, which take a fifth longer to compile; updates of learners gain 5 % by the highest.
START_LEVEL, STEP_LEVEL, LEARNER_LEVEL = 0, 1, 3
# Real steps between two looks at the clock: fewer until an episode has ended, and where steps take long, so
# that rows are told early.
STEPS_PER_BLOCK, SECONDS_PER_BLOCK = 8, 1.0


@dataclass(frozen=True)
class Failure:
    """A run whose belief became NaN: its rows end before this step."""

    run: int
    episode: int
    step: int


class Work(NamedTuple):
    """What all chunks of an experiment share. Pickled, it travels to other machines."""

    experiment: Experiment[Any]
    world: POMDP
    agent: Agent | A2C


class Program(NamedTuple):
    """What the chunks of an experiment run, once they have begun."""

    advance: Callable[..., Any]  # by one step, or a learner by a block of updates; takes its runs for good
    no_rows: Arrays  # the columns of a table without rows


def jitted(work: Work) -> Program:
    """Compiled when it is first called."""
    return Program(jit(_advance, *_effort(work)), no_rows(work))


def compiled(work: Work) -> Program:
    """Compiled now: shapes will do where the agent has arrays. It runs agents of these shapes."""
    (experiment, world, agent), number = work, jax.ShapeDtypeStruct((), jnp.int32)
    keys = jax.eval_shape(lambda: jr.split(prng.key(0), experiment.chunk_size))
    runs = eqx.filter_eval_shape(_start, keys, agent, world)
    effort = options(*_effort(work))
    advance, (_, steps) = _compile(_advance, effort, (runs,), agent, world, number)
    return Program(advance, _rows_like(steps))


def _effort(work: Work) -> tuple[int, bool]:
    """LLVM's level for the steps, and whether they are small programs: they go from one part to the next that
    fits the cache, and cores have other chunks."""
    if isinstance(work.agent, A2C):
        return LEARNER_LEVEL, False
    return STEP_LEVEL, work.agent.filter.num_particles <= LONGEST_SUM


def _compile(
    function: Callable[..., Any], effort: dict[str, Any] | None, taken: tuple[PyTree, ...], *given: PyTree
) -> tuple[Callable[..., Any], PyTree]:
    """`function` for arguments like these, and the shapes of its results. The arrays that are `taken` are not
    to be used again: their memory is the results'."""
    leaves, structure = jax.tree.flatten((*taken, *given))
    places = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array | jax.ShapeDtypeStruct)]
    count = sum(i < len(jax.tree.leaves(taken)) for i in places)

    @wraps(function)
    def of_arrays(taken: list[Array], given: list[Array]) -> PyTree:
        new = dict(zip(places, [*taken, *given], strict=True))
        return function(*jax.tree.unflatten(structure, [new.get(i, x) for i, x in enumerate(leaves)]))

    arrays = [leaves[i] for i in places]
    lowered = jax.jit(of_arrays, donate_argnums=0).lower(arrays[:count], arrays[count:])
    program = lowered.compile(effort)

    def run(*arguments: PyTree) -> PyTree:
        leaves = jax.tree.leaves(arguments)
        arrays = [leaves[i] for i in places]
        return program(arrays[:count], arrays[count:])

    return run, lowered.out_info


class Chunk:
    """Runs first, ..., last - 1: where they stand, and what they have left so far."""

    runs: Any  # None where a checkpoint did not keep where they stood
    rows: Arrays
    failures: list[Failure]
    trace: list[dict[str, Any]]

    def __init__(
        self,
        work: Work,
        first: int,
        last: int,
        saved: Arrays | None,
        program: Callable[[], Program] | None = None,
    ):
        """`program` is asked for what is being compiled beside the first beliefs."""
        self.work, self.first, self.last = work, first, last
        if saved is not None and not _has_state(saved):
            self.runs, (self.rows, self.failures, self.trace) = None, left_by(saved)
            return
        experiment, world, agent = work
        begin = jit(_begin, START_LEVEL, small=True)
        runs = begin(np.int32(first), experiment.seed, experiment.chunk_size, agent, world)
        if isinstance(agent, Agent) and isinstance(runs, Run) and experiment.prior and saved is None:
            runs = runs._replace(belief=_learned_beliefs(experiment, agent, runs.key, first))
        # A last, smaller chunk has idle lanes, so that all chunks share one compiled program.
        idle = np.arange(experiment.chunk_size) >= last - first
        self.runs = runs._replace(failed=jax.device_put(np.asarray(runs.failed) | idle))
        self.program, self.block = jitted(work) if program is None else program(), 1
        self.rows = self.program.no_rows
        self.failures, self.trace = [], []
        if saved is not None:
            self.runs, self.rows, self.failures, self.trace = _unpack(saved, self.runs)

    @property
    def finished(self) -> bool:
        if self.runs is None:
            return True
        going_on = np.asarray(self.runs.episode) < self.work.experiment.episodes
        return not np.any(going_on & ~np.asarray(self.runs.failed))

    @property
    def over(self) -> bool:
        """Finished for good: where these runs stand is not kept."""
        return self.work.experiment.keep_beliefs == "no" and self.finished

    def advance(self) -> Arrays:
        """A block of steps of every run; the episodes that ended in it."""
        experiment, world, agent = self.work
        episodes = jax.device_put(np.int32(experiment.episodes))
        failed, steps, started = np.array(self.runs.failed), [], time.monotonic()
        for _ in range(1 if isinstance(agent, A2C) else self.block):
            self.runs, step = self.program.advance(self.runs, agent, world, episodes)
            steps.append(step)
        steps = jax.tree.map(lambda *x: np.concatenate(x), *jax.device_get(steps))
        new = rows_of(steps, self.first)
        if time.monotonic() - started > SECONDS_PER_BLOCK:
            self.block = max(1, self.block // 2)
        elif len(new["run"]):
            self.block = min(2 * self.block, STEPS_PER_BLOCK)
        self.rows = {name: np.concatenate([self.rows[name], new[name]]) for name in self.rows}
        self.failures += _failures_of(failed, self.runs, steps, self.first)
        if isinstance(steps, Step) and self.first <= experiment.trace < self.last:
            self.trace += _trace_of(steps, experiment.trace - self.first)
        return within(new, experiment.episodes)

    def checkpoint(self) -> Arrays:
        """All of it as plain arrays; of finished runs, where beliefs are not kept, what they have left."""
        state = {}
        if not self.over:
            raw = self.runs._replace(key=jr.key_data(self.runs.key))
            state = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(raw))}
        failures = [vars(failure) for failure in self.failures]
        note = json.dumps({"failures": failures, "trace": self.trace}).encode()
        columns = {f"rows/{name}": column for name, column in self.rows.items()}
        return {**state, **columns, "note": np.frombuffer(note, np.uint8)}


class Schedule:
    """When checkpoints are due: every so many seconds; farther apart where they would take over a tenth
    of the time, as those of large networks on a GPU do."""

    def __init__(self, seconds: float):
        self.seconds, self.interval, self.last = seconds, seconds, time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last > self.interval

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.last = time.monotonic()
        self.interval = max(self.seconds, min(9 * (self.last - began), 100 * self.seconds))


def no_rows(work: Work) -> Arrays:
    """The columns of a table without rows."""

    def one_step(keys: Array) -> Step | Episodes:
        runs = _start(keys, work.agent, work.world)
        return _advance(runs, work.agent, work.world, jnp.int32(1))[1]

    return _rows_like(jax.eval_shape(one_step, prng.key(0)[None]))


def _rows_like(steps: PyTree) -> Arrays:
    return rows_of(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), steps), 0)


def left_by(saved: Arrays) -> tuple[Arrays, list[Failure], list[dict[str, Any]]]:
    """The rows, failures and trace in a checkpoint."""
    rows = {name.removeprefix("rows/"): x for name, x in saved.items() if name.startswith("rows/")}
    note = json.loads(saved["note"].tobytes())
    return rows, [Failure(**values) for values in note["failures"]], note["trace"]


def _has_state(saved: Arrays) -> bool:
    """Whether a checkpoint says where the runs stand."""
    return "state/0" in saved


def _unpack(saved: Arrays, like: Any) -> tuple[Any, Arrays, list[Failure], list[dict[str, Any]]]:
    structure = jax.tree.structure(like)
    leaves = [jnp.asarray(saved[f"state/{i}"]) for i in range(structure.num_leaves)]
    runs = jax.tree.unflatten(structure, leaves)
    runs = runs._replace(key=jr.wrap_key_data(runs.key, impl=prng.IMPL))
    return runs, *left_by(saved)


def _begin(first: Int[Array, ""], seed: int, size: int, agent: Agent | A2C, world: POMDP) -> Run | Learner:
    """Runs number `first`, ... A run's stream of random numbers depends on the seed and its own number."""
    runs = first + jnp.arange(size, dtype=jnp.int32)
    return _start(jax.vmap(jr.fold_in, in_axes=(None, 0))(prng.key(seed), runs), agent, world)


def _start(keys: Array, agent: Agent | A2C, world: POMDP) -> Run | Learner:
    return start_learners(keys, agent) if isinstance(agent, A2C) else start(keys, agent, world)


def _advance(
    runs: Any, agent: Agent | A2C, world: POMDP, episodes: Int[Array, ""]
) -> tuple[Run | Learner, Step | Episodes]:
    """A step (its record has an axis for steps), or a block of updates where the agent is a learner. Learners
    of a chunk go on together until the last of them has its episodes, and what the others have too many is
    kept for an extension."""
    if isinstance(agent, A2C):
        return advance_learners(runs, agent, STEPS_PER_BLOCK)
    runs, step = one_step(runs, agent, world, episodes)
    return runs, jax.tree.map(lambda x: x[None], step)


def within(rows: Arrays, episodes: int) -> Arrays:
    """Learners of a chunk go on until the last has its episodes; what others have too many is left out."""
    return {name: column[rows["episode"] < episodes] for name, column in rows.items()}


def rows_of(steps: Step | Episodes, first: int) -> Arrays:
    """The episodes that ended in this block, as columns."""
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
    before: Bool[np.ndarray, " runs"], after: Run | Learner, steps: Step | Episodes, first: int
) -> list[Failure]:
    if isinstance(steps, Episodes):
        lanes = np.flatnonzero(np.asarray(after.failed) & ~before)
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
