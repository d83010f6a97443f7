"""Runs an experiment chunk by chunk, and continues where an interrupted one stopped.

As a chunk's next block of steps is a pure function of its last checkpoint, a killed, interrupted or extended
experiment computes exactly what an uninterrupted one would have.
"""

import json
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from baddr import __version__
from baddr.agents.base import Built, Test
from baddr.agents.kinds import own_digests
from baddr.agents.life import BayesianLife, Failure, Life
from baddr.core.agent import Agent
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.fast.choose import fast_agent
from baddr.fast.pretrain import Fit
from baddr.fast.pretrain_latent import LatentFit
from baddr.files.rows import RowLog
from baddr.files.store import KEPT, Folder
from baddr.files.writing import write
from baddr.lab.build import build, build_domain, seconds
from baddr.lab.chunk import Work, no_rows
from baddr.lab.engine import Board, Cluster, Interrupted, Listener, Local, Place, Progress, Ray
from baddr.lab.experiment import AnyExperiment, to_config
from baddr.lab.limits import refuse_disk, refuse_memory, refuse_time
from baddr.lab.measure import pace
from baddr.lab.prior import copy_prior, prior_of, with_absolute_prior
from baddr.lab.same import check_grown, check_same, check_streams
from baddr.lab.sources import sources_of
from baddr.lab.spans import Spans, spans_in
from baddr.lab.ties import settings_hash, tie_of
from baddr.prng import STREAMS

SECONDS_BETWEEN_CHECKPOINTS = 30.0
LARGEST_CHUNK = {"cpu": 64, "gpu": 4096}
# Simulations in flight, over all runs of a chunk, that fill the device: about where more stop paying.
WIDTH = 4096
MOST_ALONE = 2  # runs of a chunk whose searches a CPU computes by themselves
FEWEST_IN_FLIGHT = 3  # two are no faster than one, whose search is simpler
MOST_IN_FLIGHT = 64  # of a tree: so many cost no return (docs/po-uct.md)
# Of the device's memory that a chunk may be computed to need. A GPU has all runs in flight at once, and was
# seen to need twice as much.
MEMORY_SHARE = {"cpu": 0.5, "gpu": 0.3}
DISK_SHARE = 0.5  # of what is free, that beliefs may take which are kept unasked

LOCAL = Local()


def choose_chunk_size(experiment: AnyExperiment, bytes_per_run: int, place: Place) -> int:
    """As many runs as fit, in as many chunks as are computed at the same time."""
    limit = int(MEMORY_SHARE.get(place.platform, 0.3) * place.memory / bytes_per_run)
    share = -(-experiment.runs // place.workers)
    return max(1, min(share, limit, LARGEST_CHUNK.get(place.platform, 4096)))


def choose_in_flight(experiment: AnyExperiment, life: Life, place: Place) -> int:
    """Simulations of a tree in flight: what few runs need to fill a GPU; one where tables are searched. A CPU
    computes those of few runs one after the other (0), and those of many side by side, one of each (1)."""
    if life.method.get("search") == "tables":
        return 1
    if place.platform == "cpu":
        return 0 if experiment.chunk_size <= MOST_ALONE else 1
    width = WIDTH // experiment.chunk_size
    width = min(width, MOST_IN_FLIGHT, experiment.settings.planner.num_simulations)
    return width if width >= FEWEST_IN_FLIGHT else 1


def choose_keeping(experiment: AnyExperiment, life: Life, place: Place, disk: int) -> Literal["yes", "no"]:
    """Whether the beliefs that runs end with stay on a disk of which so many bytes are free. Checkpoints of
    the runs that are computed at a time must fit it in any case."""
    each, keep, runs = KEPT * life.bytes_of_state(), experiment.keep_beliefs, experiment.runs
    if keep == "auto":
        keep = "yes" if each * runs <= DISK_SHARE * disk else "no"
    at_a_time = min(runs, experiment.chunk_size * place.workers)
    needed, instead = (runs, "--keep-beliefs no") if keep == "yes" else (at_a_time, "a smaller --chunk-size")
    if each * needed > disk:
        raise UserError(
            f"Checkpoints of {needed} runs need {each * needed / 2**30:.1f} GiB, and the disk has "
            f"{disk / 2**30:.1f} GiB free; choose another disk with --out, or {instead}."
        )
    return keep


class Resolved(NamedTuple):
    """An experiment with nothing left open."""

    experiment: AnyExperiment
    domain: Domain
    life: Life
    test: Test | None  # of the prior's networks


def sized(experiment: AnyExperiment, domain: Domain, place: Place) -> tuple[AnyExperiment, Built]:
    """What was left open chosen to suit the place, and the agent's life; networks are shapes."""
    built, memory = build(experiment, domain), place.memory * place.workers
    bytes_of = lambda other: build(other, domain).life.bytes_per_run() if other != experiment else each
    each = built.life.bytes_per_run()
    refuse_memory(experiment, bytes_of, memory, experiment.chunk_size or 1)
    if built.bytes > memory:
        refuse_memory(experiment, lambda other: build(other, domain).bytes, memory, 1, "Training")
    refuse_time(seconds(experiment, domain.pomdp.horizon, place.platform) / place.workers, experiment.runs)
    if experiment.chunk_size == 0:
        experiment = replace(experiment, chunk_size=choose_chunk_size(experiment, each, place))
    planner = experiment.settings.groups().get("planner")
    if getattr(planner, "in_flight", None) == 0:
        in_flight = choose_in_flight(experiment, built.life, place)
        experiment = experiment.changed(planner=replace(planner, in_flight=in_flight))
        built = build(experiment, domain)
    return experiment, built


def resolve(
    experiment: AnyExperiment,
    progress: Progress | None = None,
    place: Place | None = None,
    compile: Callable[[Work], None] = lambda work: None,
    disk: int | None = None,
    check: Callable[[AnyExperiment, Domain, Life], None] = lambda *_: None,
) -> Resolved:
    """Build the domain, choose what was left open to suit the place, and train (or find) the prior.

    `compile` is told what will be computed before the prior is trained, which may take as long. `disk` is how
    much of it is free for a new experiment. `check` may refuse what is known by then.
    """
    experiment.check_values()
    domain, place = build_domain(experiment), place or LOCAL.place()
    experiment, built = sized(experiment, domain, place)
    if disk is not None:
        experiment = _fitted(experiment, built.life, place, disk)
    check(experiment, domain, built.life)
    compile(Work(experiment, built.life))
    life, test = built.train(None if progress is None else partial(progress, "pretraining"))
    return Resolved(experiment, domain, life, test)


def _fitted(experiment: AnyExperiment, life: Life, place: Place, disk: int) -> AnyExperiment:
    """The experiment, if its rows and its checkpoints fit the disk; whether beliefs are kept is settled."""
    refuse_disk(experiment.runs, experiment.episodes, disk)
    return replace(experiment, keep_beliefs=choose_keeping(experiment, life, place, disk))


def given(experiment: AnyExperiment, agent: Agent, place: Place) -> Resolved:
    """An experiment whose agent is a value: nothing is left to train, and nobody can resume it."""
    experiment.check()
    domain = build_domain(experiment)
    sizes = lambda pomdp: (pomdp.num_actions, pomdp.observation_sizes)
    if sizes(agent.gba) != sizes(domain.pomdp):
        raise UserError(f"The agent was built for other actions or observations than those of {domain.name}.")
    life = BayesianLife(fast_agent(agent), domain.pomdp)
    size = experiment.chunk_size or choose_chunk_size(experiment, life.bytes_per_run(), place)
    return Resolved(replace(experiment, chunk_size=size, keep_beliefs="no"), domain, life, None)


def estimate(
    experiment: AnyExperiment, engine: Local | Ray = LOCAL, disk: int | None = None, measured: bool = False
) -> dict[str, Any]:
    """What `run` would do, and about what it would take. Refuses what does not fit the memory, or a `disk`
    with so many bytes free. `measured`: a few steps are computed and timed; otherwise, and on a cluster, the
    time is a rule of thumb."""
    experiment.check()
    with engine.opened() as opened:
        place, resources = opened.place(), opened.resources
    domain = build_domain(experiment)
    experiment, built = sized(experiment, domain, place)
    if disk is not None:
        experiment = _fitted(experiment, built.life, place, disk)
    plan = Spans().grown(experiment.runs, experiment.chunk_size)
    at_a_time = experiment.chunk_size * min(place.workers, len(plan))
    kept = at_a_time if experiment.keep_beliefs == "no" else experiment.runs
    together, horizon = min(place.workers, len(plan)), domain.pomdp.horizon
    takes, how, longest = seconds(experiment, horizon, place.platform) / together, "", False
    if measured and isinstance(engine, Local):
        found = pace(experiment, built, horizon, together)
        size = experiment.episodes, -(-len(plan) // together)
        takes, how, longest = found.seconds(*size), found.text(*size), not found.known
        refuse_time(takes, experiment.runs)
    return {
        "device": place.platform,
        "chunks": len(plan),
        "runs_per_chunk": experiment.chunk_size,
        "memory_bytes": built.life.bytes_per_run() * at_a_time,
        "disk_bytes": KEPT * built.life.bytes_of_state() * kept,
        "seconds": takes,
        "measured": how,
        "longest": longest,  # the time is that of episodes that last until the horizon
        "engine": resources,
    }


def start(
    experiment: AnyExperiment,
    folder: Folder,
    progress: Progress,
    *,
    engine: Local | Ray = LOCAL,
    listeners: Sequence[Listener] = (),
    agent: Agent | None = None,
) -> list[Failure]:
    """Run a new experiment in an empty folder; with this `agent`, if one is given."""
    experiment = with_absolute_prior(experiment)
    experiment.check()
    with engine.opened() as opened:
        how = opened.place(), opened.compile, folder.free
        resolved = resolve(experiment, progress, *how) if agent is None else given(experiment, agent, how[0])
        experiment, domain, life, test = resolved
        folder.check_new()
        with folder.owned():
            manifest = {
                "status": "running",
                "domain": domain.name,  # with a hash of its content, where a file holds it
                "method": life.method,  # what else random streams depend on
                "own": own_digests(experiment.settings),  # a hash of each planner, filter and posterior
                "sources": sources_of(experiment),  # path and hash of each file of the user's own
                "settings": settings_hash(experiment),
                "seeds": {"seed": experiment.seed, "runs": [0, experiment.runs], "streams": STREAMS},
                "episodes": experiment.episodes,
                "chunks": Spans().grown(experiment.runs, experiment.chunk_size).listed(),
                "track": _tracked(listeners),
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "wall_seconds": 0.0,
                "failures": [],
                "prior": None,  # how well it fits, which is measured later
                **environment(opened),
            }
            folder.write_manifest(manifest)
            if experiment.prior:
                copy_prior(Folder(Path(experiment.prior)), folder.prior)
            write(folder.config, to_config(experiment))  # last: where it is, there is an experiment
            work = Work(experiment, life, tie_of(manifest), prior_of(experiment, folder))
            return _run(work, test, folder, manifest, opened, Board(*_size(experiment), progress, listeners))


def resume(
    experiment: AnyExperiment,
    folder: Folder,
    progress: Progress,
    *,
    engine: Local | Ray = LOCAL,
    listeners: Sequence[Listener] = (),
    trust: bool = False,
) -> list[Failure]:
    """Go on with the experiment in `folder`, which `experiment` may extend. `trust`: also with files of the
    user's own that have changed."""
    check_streams(folder)
    with engine.opened() as opened, folder.owned():
        manifest = folder.read_experiment_manifest()
        check_grown(manifest, experiment, folder)
        refuse = partial(check_same, manifest, folder, trust)
        how = opened.place(), opened.compile, None, refuse
        experiment, _, life, test = resolve(experiment, progress, *how)
        # Wherever this is killed, the folder is not complete, and its chunks are the config's or fewer.
        folder.write_manifest(manifest | {"status": "running"})
        write(folder.config, to_config(experiment))
        spans = spans_in(manifest["chunks"], folder.manifest).grown(experiment.runs, experiment.chunk_size)
        manifest["seeds"]["runs"] = [0, experiment.runs]
        manifest |= {"status": "running", "resumed_with": environment(opened), "chunks": spans.listed()}
        manifest |= {"track": sorted({*manifest.get("track", []), *_tracked(listeners)})}
        if "episodes" in manifest:
            manifest["episodes"] = experiment.episodes
        folder.write_manifest(manifest)
        work = Work(experiment, life, tie_of(manifest), prior_of(experiment, folder))
        return _run(work, test, folder, manifest, opened, Board(*_size(experiment), progress, listeners))


def _tracked(listeners: Sequence[Listener]) -> list[str]:
    """The trackers among them: a resume keeps them, also where no episode had ended before."""
    return sorted({name for x in listeners if (name := getattr(x, "name", None))})


def _size(experiment: AnyExperiment) -> tuple[int, int]:
    return experiment.runs, experiment.episodes


def environment(engine: Local | Cluster = LOCAL) -> dict[str, Any]:
    return {
        "engine": engine.resources,
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
    work: Work,
    test: Test | None,
    folder: Folder,
    manifest: dict[str, Any],
    engine: Local | Cluster,
    board: Board,
) -> list[Failure]:
    started = time.monotonic()
    folder.drop_damaged_table(manifest)
    with _stop_on_signals(board.stop), _measured(test, board) as measured:
        with closing(RowLog(folder.rows, folder.episodes)) as rows:
            board.keep(rows)
            spans = spans_in(manifest["chunks"], folder.manifest)
            left = engine.compute(work, spans, folder, board, float(SECONDS_BETWEEN_CHECKPOINTS))
            manifest["wall_seconds"] += round(time.monotonic() - started, 3)
            folder.write_table(rows.table(lambda: no_rows(work)), manifest)
            rows.remove()
    failures = [failure for chunk in left for failure in chunk.failures]
    trace = [step for chunk in left for step in chunk.trace]
    if trace:
        write(folder.path / "trace.jsonl", "".join(json.dumps(step) + "\n" for step in trace).encode())
    if fit := measured.result():
        manifest["prior"] = {name: value.tolist() for name, value in fit._asdict().items()}
    stopped = board.stop.is_set()
    manifest["status"] = "running" if stopped else "complete"
    manifest["failures"] = [vars(failure) for failure in failures]
    folder.write_manifest(manifest)
    if stopped:
        raise Interrupted
    return failures


@contextmanager
def _measured(test: Test | None, board: Board) -> Iterator[Future[Fit | LatentFit | None]]:
    """How well the prior fits, measured beside the runs once the first episodes have ended: it would hold up
    that news. Where they are stopped before, whoever goes on measures it."""
    started = threading.Event()

    def fit() -> Fit | LatentFit | None:
        started.wait()
        return None if test is None or board.stop.is_set() else test()

    board.listeners = (*board.listeners, lambda rows: started.set())
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(fit)
        finally:
            started.set()


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
