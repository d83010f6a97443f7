"""Where chunks are computed: in this process on all its devices, or on a Ray cluster.

An engine is opened, says what it has (`place`), and computes chunks until all are finished or `Board.stop` is
set: each from its last checkpoint on, with a new one about every so many `seconds`. Checkpoints are kept in
the result folder, by this process alone: an experiment started with one engine is resumed with the other, and
comes out the same.
"""

import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

import jax
import numpy as np

from baddr.agents.kinds import own_sources
from baddr.agents.life import Failure
from baddr.domains.catalog import entry
from baddr.errors import ClusterError, UserError
from baddr.fast.backend import device_memory
from baddr.files.machine import num_cores
from baddr.files.rows import RowLog
from baddr.files.store import Folder, pack, unpack
from baddr.files.tables import Arrays, Frontier
from baddr.lab.chunk import (
    Chunk,
    Program,
    Schedule,
    Work,
    check_saved,
    compiled,
    left_by,
    note_of,
    told_in,
)

# What is done, how much, of how much, and its value: None where no episode has ended.
Progress = Callable[[str, int, int, float | None], None]
Listener = Callable[[Arrays], None]  # is told the episodes that ended, as columns
SECONDS_BETWEEN_LOOKS = 0.1  # at whether to stop, while the program compiles
RECENT = 200  # episodes per chunk in the mean that the progress shows


class Interrupted(Exception):
    """Stopped by Ctrl-C or a termination signal; everything is checkpointed."""


class Place(NamedTuple):
    """What an engine has: chunks are made to fit."""

    platform: str  # cpu or gpu
    memory: int  # bytes, of what computes one chunk
    workers: int  # chunks at the same time


class Left(NamedTuple):
    """What a chunk has left beside its rows: its failed runs, and the steps of a traced run."""

    failures: list[Failure]
    trace: list[dict[str, Any]]


class Board:
    """Where chunks post the episodes that ended; says when to stop."""

    def __init__(self, runs: int, episodes: int, progress: Progress, listeners: Sequence[Listener] = ()):
        self.total, self.progress, self.listeners = runs * episodes, progress, listeners
        self.log: RowLog | None = None  # the rows on disk
        self.frontier = Frontier()
        self.recent: dict[int, np.ndarray] = {}
        self.means: dict[int, float] = {}
        self.stop, self.lock = threading.Event(), threading.Lock()

    def keep(self, log: RowLog) -> None:
        """Rows go to this log from now on, before anybody else hears of them. Those that it has are told."""
        for rows in log.known():
            self.post(None, rows)
        self.log = log

    def post(self, chunk: int | None, rows: Arrays) -> None:
        """Episodes of a chunk. Those that are computed again, after a loss, are not told twice."""
        with self.lock:
            rows = self.frontier.take(rows)
            if len(rows["run"]):
                for listener in (*([self.log] if self.log else []), *self.listeners):
                    listener(rows)
                if chunk is not None:
                    values = [self.recent.get(chunk, np.zeros(0)), rows["discounted_return"]]
                    self.recent[chunk] = np.concatenate(values)[-RECENT:]
                    self.means[chunk] = float(self.recent[chunk].mean())
            recent = sum(self.means.values()) / len(self.means) if self.means else None
            self.progress("episodes", int(self.frontier.ended.sum()), self.total, recent)

    def usable(self, saved: Arrays | None, first: int, last: int, what: str) -> bool:
        """Whether the log has the rows that were told before a checkpoint, on which it relies."""
        if saved is None or self.log is None:
            return saved is not None
        with self.lock:
            if self.log.has(first, told_in(saved, last - first)):
                return True
        warnings.warn(f"{what}: rows that it had reported are lost; it is computed again.", stacklevel=2)
        return False

    def sync(self) -> None:
        """The rows that were posted are on disk, whatever happens to the machine."""
        if self.log is not None:
            with self.lock:
                self.log.sync()


class Local:
    """This process: one chunk per core of a CPU, one per accelerator."""

    resources: dict[str, Any] = {"name": "local"}  # noqa: RUF012
    program: Future[Program] | None = None

    @contextmanager
    def opened(self) -> Iterator["Local"]:
        yield Local()

    def compile(self, work: Work) -> None:
        """Begin to compile what `compute` will run, beside what the caller does next. Shapes will do where
        the agent has arrays. Several devices need a program each, which `compute` then compiles."""
        if len(set(self.devices)) == 1:
            pool = ThreadPoolExecutor(1, thread_name_prefix="compiling")
            self.program = pool.submit(compiled, work)
            pool.shutdown(wait=False)

    @property
    def devices(self) -> list[Any]:
        """One entry for each chunk that is computed at a time."""
        devices = jax.local_devices()
        if devices[0].platform != "cpu":
            return devices
        cores = num_cores()
        return (devices * cores)[: max(cores, len(devices))]

    def place(self) -> Place:
        devices = self.devices
        sharing = len(devices) if devices[0].platform == "cpu" else 1
        return Place(devices[0].platform, device_memory(devices[0]) // sharing, len(devices))

    def compute(
        self, work: Work, spans: Sequence[tuple[int, int]], folder: Folder, board: Board, seconds: float
    ) -> list[Left]:
        free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        devices = self.devices
        for device in devices:
            free.put(device)
        compilers = {device: _Compiler(self.program, board.stop) for device in devices}

        def one(number: int, first: int, last: int) -> Left:
            device = free.get()
            try:
                with jax.default_device(device) if len(compilers) > 1 else nullcontext():
                    return _compute(work, number, first, last, folder, board, seconds, compilers[device])
            except BaseException:
                board.stop.set()
                raise
            finally:
                free.put(device)

        with ThreadPoolExecutor(len(devices)) as pool:
            futures = [pool.submit(one, number, *span) for number, span in enumerate(spans)]
        return [future.result() for future in futures]


def _compute(
    work: Work,
    number: int,
    first: int,
    last: int,
    folder: Folder,
    board: Board,
    seconds: float,
    compiler: "_Compiler",
) -> Left:
    saved, what = folder.load(number), f"{folder.path}: the checkpoint of chunk {number}"
    if saved is not None:
        check_saved(work, (first, last), note_of(saved), what)
        saved = saved if board.usable(saved, first, last, what) else None
    with compiler.lock:
        chunk = Chunk(work, first, last, saved, compiler.program)
    board.post(number, chunk.tell())
    unsaved, schedule = saved is None, Schedule(seconds)
    while not chunk.finished and not board.stop.is_set():
        with compiler.once():
            new = chunk.advance()
        board.post(number, new)
        unsaved = True
        if schedule.due:
            with schedule.checkpoint():
                board.sync()
                folder.save(number, chunk.checkpoint(), chunk.over)
            unsaved = False
    if unsaved:
        board.sync()
        folder.save(number, chunk.checkpoint(), chunk.over)
    return Left(chunk.failures, chunk.trace)


class _Compiler:
    """Lets one chunk trace and compile the program that all share, while the others wait."""

    def __init__(self, program: Future[Program] | None, stop: threading.Event) -> None:
        self.program = None if program is None else partial(_unless, stop, program)  # compiled beforehand
        self.done, self.lock = program is not None, threading.Lock()

    @contextmanager
    def once(self) -> Iterator[None]:
        if self.done:
            yield
            return
        with self.lock:
            yield
            self.done = True


def _unless(stop: threading.Event, program: Future[Program]) -> Program:
    """What is being compiled. Nobody waits for it who is to stop: a resume compiles it again."""
    while not program.done() and not stop.is_set():
        wait([program], SECONDS_BETWEEN_LOOKS)
    if not program.done():
        raise Interrupted
    return program.result()


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: one that runs already, or this machine's cores where no address is given."""

    address: str = ""
    device: str = "auto"  # auto: GPUs where the cluster has some
    cpus: float = 1.0  # of each chunk
    gpus: float = -1.0  # of each chunk; -1: one where GPUs compute, none otherwise

    @contextmanager
    def opened(self) -> Iterator["Cluster"]:
        """The cluster's own process, beside this one.

        Ray ends the process that talks to it when it loses the head, without an exception. So it is another
        process that may end, and this one says what happened.
        """
        try:
            import ray  # noqa: F401
        except ImportError:
            raise UserError("--engine ray needs Ray: pip install 'baddr[ray]'.") from None
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "baddr.lab.cluster", str(theirs.fileno())]
        # In a session of its own: Ctrl-C is for this process, which then asks for checkpoints.
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            yield Cluster(ours, self)
        finally:
            ours.close()  # which ends it
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Cluster:
    """An open connection to a Ray cluster."""

    def __init__(self, connection: Connection, settings: Ray):
        self.connection = connection
        self._send(vars(settings))
        self._place, self.resources = self._receive("ready")

    def place(self) -> Place:
        return Place(*self._place)

    def compile(self, work: Work) -> None:
        """Its workers do, when they start."""

    def compute(
        self, work: Work, spans: Sequence[tuple[int, int]], folder: Folder, board: Board, seconds: float
    ) -> list[Left]:
        self._send((_portable(work), seconds, list(spans)))
        left: dict[int, Left] = {}
        stopping = False
        while len(left) < len(spans):
            if board.stop.is_set() and not stopping:
                stopping = True
                self._send("stop")
            if not self.connection.poll(0.2):
                continue
            kind, *content = self._receive()
            if kind == "load":
                self._send(_newest(work, folder, board, *content, *spans[content[0]]))
            elif kind == "block":
                number, rows, saved, finished = content
                board.post(number, rows)
                if saved is not None:
                    board.sync()
                    folder.keep(number, saved, finished and work.experiment.keep_beliefs == "no")
                if finished and saved is not None:
                    left[number] = _left(saved)
            elif kind == "warning":
                warnings.warn(*content, stacklevel=2)
            elif kind == "stopped":
                break
        for number, (first, last) in enumerate(spans):
            if number not in left:  # stopped before it was finished, or before it started
                saved = _newest(work, folder, board, number, first, last)
                left[number] = Left([], []) if saved is None else _left(saved)
        return [left[number] for number in range(len(spans))]

    def _send(self, message: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # what follows is not answered
            self.connection.send(message)

    def _receive(self, *expected: str) -> Any:
        try:
            kind, *content = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise ClusterError(
                "The Ray cluster was lost: its head or the node on this machine ended."
            ) from None
        if kind == "error":
            raise ClusterError(content[0])
        return content if expected else (kind, *content)


def _newest(work: Work, folder: Folder, board: Board, number: int, first: int, last: int) -> bytes | None:
    """A chunk's newest checkpoint; its first one where other machines could not make that themselves."""
    saved = folder.newest(number)
    if saved is not None:
        arrays, what = unpack(saved), f"{folder.path}: the checkpoint of chunk {number}"
        check_saved(work, (first, last), note_of(arrays), what)
        saved = saved if board.usable(arrays, first, last, what) else None
    if saved is None and work.experiment.prior:
        saved = pack(Chunk(work, first, last, None).checkpoint())
        folder.keep(number, saved)
    return saved


def _left(saved: bytes) -> Left:
    _, failures, trace = left_by(unpack(saved))
    return Left(failures, trace)


def _portable(work: Work) -> tuple[Any, bytes]:
    """The sources of the user's own domain, posterior, planner and filter, and all that a chunk needs."""
    from ray import cloudpickle

    experiment = work.experiment
    sources = [entry(experiment.name).source, *own_sources(experiment.settings)]
    own = [(str(source), source.read_bytes()) for source in sources if source is not None]
    # Settings may be of a class that only this process has; a chunk does not need them.
    portable = work._replace(experiment=replace(experiment, domain=None, settings=None))
    return own, cloudpickle.dumps(portable)  # type: ignore[attr-defined]
