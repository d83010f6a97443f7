"""A chunk of runs: the unit of work.

Chunks are independent, and a chunk's next block of steps is a pure function of its last checkpoint: whoever
goes on from there, in whatever process and on whatever machine of the same kind, computes the same.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PyTree

from baddr import prng
from baddr.agents.life import Arrays, BayesianLife, Failure, Life, run_keys
from baddr.errors import UserError
from baddr.fast.compiler import jit, options
from baddr.files.store import Folder
from baddr.files.toml import read_toml
from baddr.lab.experiment import AnyExperiment
from baddr.lab.spans import spans_in
from baddr.lab.ties import Tie, check_tie
from baddr.life.record import own_roots
from baddr.life.run import Mind, Run

START_LEVEL = 0  # of LLVM: the first beliefs are made once
# Real steps between two looks at the clock: fewer until an episode has ended, and where steps take long, so
# that rows are told early.
STEPS_PER_BLOCK, SECONDS_PER_BLOCK = 8, 1.0


class Work(NamedTuple):
    """What all chunks of an experiment share. Pickled, it travels to other machines."""

    experiment: AnyExperiment
    life: Life
    tie: Tie = {}  # noqa: RUF012  # what every checkpoint carries
    prior: Path | None = None  # a copy of the experiment whose beliefs are the prior


class Program(NamedTuple):
    """What the chunks of an experiment run, once they have started."""

    advance: Callable[..., Any]  # by one step, or a learner by a block of updates; takes its runs for good
    no_rows: Arrays  # the columns of a table without rows


def jitted(work: Work) -> Program:
    """Compiled when it is first called."""
    return Program(jit(_advance, *work.life.effort), no_rows(work))


def compiled(work: Work) -> Program:
    """Compiled now: shapes will do where the agent has arrays. It runs agents of these shapes."""
    experiment, life, number = work.experiment, work.life, jax.ShapeDtypeStruct((), jnp.int32)
    keys = jax.eval_shape(lambda: jr.split(prng.key(0), experiment.chunk_size))
    runs = eqx.filter_eval_shape(lambda life, keys: life.start(keys), life, keys)
    advance, (_, steps) = _compile(_advance, options(*life.effort), (runs,), life, number)
    return Program(advance, _rows_like(life, steps))


def _advance(runs: Any, life: Life, num_episodes: Int[Array, ""]) -> tuple[Any, Any]:
    return life.advance(runs, num_episodes)


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
    """Runs first, ..., last - 1: where they stand, and what they have left so far, but for the rows: those
    are told, and on disk, as episodes end."""

    runs: Any  # None where a checkpoint did not keep where they stood
    rows: Arrays  # that were not told: of episodes that the experiment does not ask for (yet)
    told: np.ndarray  # how many episodes of each run were
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
        self.told = np.zeros(last - first, np.int64) if saved is None else told_in(saved, last - first)
        if saved is not None and not _has_state(saved):
            self.runs, (self.rows, self.failures, self.trace) = None, left_by(saved)
            return
        experiment, life = work.experiment, work.life
        start = jit(_start, START_LEVEL, small=True)
        runs = start(np.int32(first), experiment.seed, experiment.chunk_size, life)
        if isinstance(life, BayesianLife) and experiment.prior and saved is None:
            belief, memory = _learned_beliefs(work, life, runs.key, first)
            runs = runs._replace(belief=belief, memory=memory)
        # A last, smaller chunk has idle places, so that all chunks share one compiled program.
        idle = np.arange(experiment.chunk_size) >= last - first
        self.runs = runs._replace(failed=jax.device_put(np.asarray(runs.failed) | idle))
        self.program, self.block = jitted(work) if program is None else program(), 1
        self.rows = self.program.no_rows
        self.failures, self.trace = [], []
        if saved is not None:
            self.runs, rows, self.failures, self.trace = _unpack(saved, self.runs)
            self.rows = _with_columns(rows, self.rows)

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
        experiment, life = self.work.experiment, self.work.life
        episodes = jax.device_put(np.int32(experiment.episodes))
        failed, steps, started = np.array(self.runs.failed), [], time.monotonic()
        for _ in range(self.block if life.blocks_are_short else 1):
            self.runs, step = self.program.advance(self.runs, life, episodes)
            steps.append(step)
        steps = jax.tree.map(lambda *x: np.concatenate(x), *jax.device_get(steps))
        new = life.rows(steps, self.first)
        if time.monotonic() - started > SECONDS_PER_BLOCK:
            self.block = max(1, self.block // 2)
        elif len(new["run"]):
            self.block = min(2 * self.block, STEPS_PER_BLOCK)
        self.failures += life.failures(failed, self.runs, steps, self.first)
        if self.first <= experiment.trace < self.last:
            self.trace += life.trace(steps, experiment.trace - self.first)
        return self.tell(new)

    def tell(self, new: Arrays | None = None) -> Arrays:
        """The rows that the experiment asks for, of those that were left and of new ones; each once."""
        rows = self.rows
        if new is not None:
            rows = {name: np.concatenate([rows[name], new[name]]) for name in rows}
        wanted = rows["episode"] < self.work.experiment.episodes
        self.rows = {name: column[~wanted] for name, column in rows.items()}
        told = {name: column[wanted] for name, column in rows.items()}
        np.maximum.at(self.told, told["run"] - self.first, told["episode"] + 1)
        return told

    def checkpoint(self) -> Arrays:
        """All of it as plain arrays; of finished runs, where beliefs are not kept, what they have left."""
        state = {}
        if not self.over:
            raw = self.runs._replace(key=jr.key_data(self.runs.key))
            state = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(raw))}
        failures = [vars(failure) for failure in self.failures]
        tie = {**self.work.tie, "runs": [self.first, self.last]}
        told = self.told.tolist()
        note = json.dumps({"failures": failures, "trace": self.trace, "tie": tie, "told": told}).encode()
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
        started = time.monotonic()
        yield
        self.last = time.monotonic()
        self.interval = max(self.seconds, min(9 * (self.last - started), 100 * self.seconds))


def no_rows(work: Work) -> Arrays:
    """The columns of a table without rows."""

    def one_step(life: Life, keys: Array) -> Any:
        return life.advance(life.start(keys), jnp.int32(1))[1]

    keys = jax.eval_shape(lambda: prng.key(0)[None])
    return _rows_like(work.life, eqx.filter_eval_shape(one_step, work.life, keys))


def _rows_like(life: Life, steps: PyTree) -> Arrays:
    return life.rows(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), steps), 0)


def left_by(saved: Arrays) -> tuple[Arrays, list[Failure], list[dict[str, Any]]]:
    """The rows that were not told, the failures and the trace in a checkpoint."""
    rows = {name.removeprefix("rows/"): x for name, x in saved.items() if name.startswith("rows/")}
    note = note_of(saved)
    return rows, [Failure(**values) for values in note["failures"]], note["trace"]


def told_in(saved: Arrays, runs: int) -> np.ndarray:
    """How many episodes of each run were told before a checkpoint. Older versions kept their rows in it."""
    told = np.asarray(note_of(saved).get("told", [0] * runs))
    if told.shape != (runs,) or not np.issubdtype(told.dtype, np.integer):
        raise UserError("A checkpoint has other sizes than this experiment's.")
    return told.astype(np.int64)


def check_saved(work: Work, span: tuple[int, int], note: Any, what: str) -> None:
    """Refuse a checkpoint of another experiment, or of other runs."""
    if work.tie:
        tie = note.get("tie") if isinstance(note, dict) else None
        check_tie({**work.tie, "runs": list(span)}, tie, what)


def note_of(saved: Arrays) -> Any:
    return json.loads(saved["note"].tobytes())


def _has_state(saved: Arrays) -> bool:
    """Whether a checkpoint says where the runs stand."""
    return "state/0" in saved


def _added(like: Any) -> list[Array]:
    """Leaves of runs that checkpoints of older versions lack, the last ones; as they are at a run's start."""
    new = jax.tree.leaves((like.memory.roots, like.sights)) if isinstance(like, Run) else []
    return [x if isinstance(x, jax.Array) else jnp.zeros(x.shape, x.dtype) for x in new]


def _with_columns(rows: Arrays, wanted: Arrays) -> Arrays:
    """Rows of an older version have no value for newer columns: -1, or not a number."""
    nothing = lambda x: np.full(
        len(rows["run"]), -1 if np.issubdtype(x.dtype, np.integer) else np.nan, x.dtype
    )
    return {name: rows[name] if name in rows else nothing(x) for name, x in wanted.items()}


def _unpack(
    saved: Arrays, like: Any, what: str = "A checkpoint"
) -> tuple[Any, Arrays, list[Failure], list[dict[str, Any]]]:
    structure = jax.tree.structure(like)
    raw = jax.tree.leaves(like._replace(key=jax.eval_shape(jr.key_data, like.key)))
    states: list[Any] = [saved.get(f"state/{i}") for i in range(structure.num_leaves)]
    added = _added(like)
    if added and sum(name.startswith("state/") for name in saved) == len(states) - len(added):
        states[-len(added) :] = added
    for x, y in zip(states, raw, strict=True):
        if x is None or x.shape != y.shape or x.dtype != y.dtype:
            raise UserError(f"{what} has other sizes than this experiment's.")
    runs = jax.tree.unflatten(structure, [jnp.asarray(x) for x in states])
    runs = runs._replace(key=jr.wrap_key_data(runs.key, impl=prng.IMPL))
    return runs, *left_by(saved)


def _start(first: Int[Array, ""], seed: int, size: int, life: Life) -> Any:
    """Runs number `first`, ..."""
    return life.start(run_keys(first, seed, size))


def _learned_beliefs(work: Work, life: BayesianLife, keys: Array, first: int) -> Mind:
    """The model beliefs that another experiment's runs ended with, states redrawn; and what they remember."""
    source = Folder(work.prior or Path(work.experiment.prior))
    theirs = read_toml(source.config)
    beliefs = []
    for number, (low, high) in enumerate(spans_in(source.read_manifest().get("chunks"), source.manifest)):
        arrays = source.load(number)
        if arrays is None:
            raise UserError(f"--prior {source.path}: its chunk {number} has no checkpoint.")
        theirs_like = keys[jnp.zeros((theirs["chunk_size"],), jnp.int32)]
        like = eqx.filter_eval_shape(lambda life, keys: life.start(keys), life, theirs_like)
        runs = _unpack(arrays, like, f"--prior {source.path}: chunk {number}")[0]
        beliefs.append(jax.tree.map(lambda x: x[: high - low], (runs.belief, runs.memory)))  # noqa: B023
    all_beliefs = jax.tree.map(lambda *x: jnp.concatenate(x), *beliefs)
    chosen = (first + jnp.arange(len(keys))) % theirs["runs"]
    belief, memory = jax.tree.map(lambda x: x[chosen], all_beliefs)
    roots = jax.vmap(lambda _: own_roots(life.agent))(keys)  # as if these were draws of the prior
    return jax.vmap(life.agent.next_episode)(keys, belief), memory._replace(roots=roots)
