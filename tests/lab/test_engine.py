"""Engines: the same results wherever chunks are computed, and whatever dies meanwhile."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr import load_results
from baddr.cli import main
from baddr.errors import ClusterError, UserError
from baddr.files.machine import num_cores
from baddr.lab.chunk import Schedule, Work
from baddr.lab.cluster import Worker
from baddr.lab.engine import Board, Place, Ray
from baddr.lab.experiment import preset
from baddr.lab.runner import choose_chunk_size, choose_keeping, resolve

SMALL = ["--planner.num-simulations", "64", "--filter.num-particles", "64", "--chunk-size", "2"]
RUN = ["run", "tiger", "--agent", "ba-pomcp", "--filter.no-rejuvenate", "--runs", "7", *SMALL]
EPISODES = 400
# Checkpoints all the time. Not in this process: the type checks of the tests stay at home.
CODE = """
import sys
from baddr.lab import runner
from baddr import load_results
from baddr.cli import main
runner.SECONDS_BETWEEN_CHECKPOINTS = 0.2
main(sys.argv[1:])
"""


def start(*arguments: object, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | environment, **pipes)


def finish(process: subprocess.Popen, seconds: float = 900) -> tuple[int, str]:
    """The exit code, and what was said on stderr."""
    _, error = process.communicate(timeout=seconds)
    return process.returncode, error


def until(holds: Callable[[], object], process: subprocess.Popen, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def checkpoints(folder: Path) -> int:
    """How many were written so far."""
    newest = {path.parent: int(path.stem) for path in sorted(folder.glob("checkpoints/*/*.ckpt"))}
    return sum(newest.values()) + len(newest)


def _keyed(rows: dict[str, np.ndarray]) -> list[list[float]]:
    return [rows[name].tolist() for name in ("run", "episode", "return")]


def same(folder: Path, other: Path) -> bool:
    return (folder / "episodes.parquet").read_bytes() == (other / "episodes.parquet").read_bytes()


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "local"
    code, error = finish(start(*RUN, "--episodes", EPISODES, "--out", folder))
    assert code == 0, error
    return folder


# --- a cluster: a head and two nodes, each of its own processes -------------------------------------------


def children(pid: int) -> list[int]:
    """Of a process and of its children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def named(pid: int, word: str) -> list[int]:
    """The children of a process that have this in their command line."""
    has = lambda child: word in Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
    return [child for child in children(pid) if os.path.exists(f"/proc/{child}/cmdline") and has(child)]


class Cluster:
    """Ray's own command line, on loopback, with a secret of its own."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # until a lost head is given up
        self.temporary = f"/tmp/baddr-ray-{os.getpid()}"  # the path of a socket must be short
        self.nodes: list[subprocess.Popen] = []

    def begin(self) -> None:
        port = self.address.partition(":")[2]
        head = ["--head", "--port", port, "--temp-dir", self.temporary, "--include-dashboard", "false"]
        self._add(*head, "--num-cpus", "0")
        for _ in range(2):  # one after the other: at the same time they choose the same ports
            self._add("--address", self.address, "--num-cpus", "1")

    def _add(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments]
        command += ["--disable-usage-stats", "--object-store-memory", "100000000"]
        node = subprocess.Popen(
            command, env=os.environ | self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.nodes.append(node)
        until(lambda: named(node.pid, "RuntimeEnvAgent"), node, 300)

    def run(self, *arguments: object) -> subprocess.Popen:
        return start(*arguments, "--engine", "ray", "--address", self.address, **self.environment)

    def workers(self, node: int) -> list[int]:
        return named(self.nodes[node].pid, "ray::Worker")

    def kill(self, node: int) -> None:
        """kill -9 of a node's processes."""
        for pid in [*children(self.nodes[node].pid), self.nodes[node].pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.nodes[node].wait()


@contextmanager
def running() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.begin()
        yield cluster
    finally:
        for node in reversed(range(len(cluster.nodes))):
            cluster.kill(node)
        shutil.rmtree(cluster.temporary, ignore_errors=True)


@pytest.mark.slow
def test_a_cluster_may_lose_a_worker_a_node_and_its_head(local, tmp_path):
    """The first two change nothing. Without its head it ends with a sentence, and goes on without Ray."""
    pytest.importorskip("ray")
    with running() as cluster:
        folder = tmp_path / "ray"
        process = cluster.run(*RUN, "--episodes", EPISODES, "--out", folder)
        until(lambda: cluster.workers(1) and checkpoints(folder) >= 2, process)
        os.kill(cluster.workers(1)[0], signal.SIGKILL)
        before = checkpoints(folder)
        until(lambda: checkpoints(folder) >= before + 3, process)
        cluster.kill(2)
        assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
        code, error = finish(process)
        assert code == 0 and "Traceback" not in error, error
        assert same(folder, local)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["engine"]["name"] == "ray" and manifest["engine"]["chunks_at_a_time"] == 2

        folder = tmp_path / "headless"
        process = cluster.run(*RUN, "--episodes", EPISODES, "--out", folder)
        until(lambda: checkpoints(folder) >= 2, process)
        cluster.kill(0)
        code, error = finish(process)
        assert code == 2 and "Traceback" not in error
        rows, whole = load_results(folder), load_results(local)
        known = {(run, episode): x for run, episode, x in zip(*_keyed(whole), strict=True)}
        assert len(rows["run"]) and all(known[run, e] == x for run, e, x in zip(*_keyed(rows), strict=True))
        last = error.splitlines()[-1]
        assert last.startswith("baddr: The Ray cluster was lost") and last.endswith(f"baddr resume {folder}")
    code, error = finish(start("resume", folder))
    assert code == 0, error
    assert same(folder, local)


@pytest.mark.slow
def test_ray_on_this_machine_stops_when_asked_and_survives_a_kill(local, tmp_path):
    """Begun with Ray and interrupted; gone on with it and killed; finished with it."""
    pytest.importorskip("ray")
    folder, ray = tmp_path / "alone", ("--engine", "ray")
    process = start(*RUN, "--episodes", EPISODES, "--out", folder, *ray)
    until(lambda: checkpoints(folder) >= 2, process)
    process.send_signal(signal.SIGINT)
    code, error = finish(process)
    assert code == 130 and f"baddr resume {folder}" in error
    process, before = start("resume", folder, *ray), checkpoints(folder)
    until(lambda: checkpoints(folder) >= before + 2, process)
    process.kill()
    process.communicate()
    code, error = finish(start("resume", folder, *ray))
    assert code == 0, error
    assert same(folder, local)


NETWORKS = ["--network.hidden", "8", "--pretrain.batches", "32", "--pretrain.max-gap", "9"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["tiger", *NETWORKS],
        ["examples/machine.pomdp", *NETWORKS],
        ["examples/maintenance.py", "--agent", "ba-pomcp"],
        ["tiger", "--agent", "ba-pomcp", "--prior", "LOCAL"],
        ["tiger", "--agent", "fba-pomcp", "--trace", "1"],
    ],
)
def test_what_an_experiment_needs_travels_to_the_workers(arguments, local, tmp_path, monkeypatch):
    """Networks, files and learned beliefs: the workers have neither the cache nor the folders."""
    pytest.importorskip("ray")
    monkeypatch.chdir(Path(__file__).parents[2])
    arguments = [str(local) if argument == "LOCAL" else argument for argument in arguments]
    for engine in ("local", "ray"):
        size = ["--runs", "3", "--episodes", "5", "--engine", engine, "--out", tmp_path / engine]
        code, error = finish(start("run", *arguments, *SMALL, *size))
        assert code == 0, error
    assert same(tmp_path / "ray", tmp_path / "local")
    if "--trace" in arguments:
        assert len({(tmp_path / e / "trace.jsonl").read_bytes() for e in ("ray", "local")}) == 1


# --- this machine -------------------------------------------------------------------------------------


def test_all_local_devices_compute(tmp_path):
    """Two CPU devices, each with a chunk: the same results as of one."""
    code = """
import sys, jax
from dataclasses import replace
from pathlib import Path
from baddr.lab import engine, runner
from baddr.lab.experiment import preset
from baddr.files.store import Folder
used, compute = set(), engine._compute
def spied(*arguments):
    used.add(jax.numpy.zeros(()).device)
    return compute(*arguments)
engine._compute = spied
experiment = replace(preset("tiger", "random"), runs=4, episodes=20, chunk_size=2)
runner.start(experiment, Folder(Path(sys.argv[1]) / "two"), lambda *_: None)
print(len(used), len(engine.Local().devices), engine.Local().place().workers)
jax.local_devices = lambda: jax.devices()[:1]
runner.start(experiment, Folder(Path(sys.argv[1]) / "one"), lambda *_: None)
"""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    slots = max(2, num_cores())
    assert done.stdout.split() == ["2", str(slots), str(slots)]
    assert same(tmp_path / "one", tmp_path / "two")


def test_chunks_are_made_to_fit_the_place():
    """As many as there are workers, unless they would not fit into the memory's share, or the limit."""
    experiment, _, life, _ = resolve(replace(preset("tiger", "pomcp"), runs=1000, chunk_size=1))
    one = life.bytes_per_run()
    size = lambda *place: choose_chunk_size(experiment, life.bytes_per_run(), Place(*place))
    assert size("gpu", 10**12, 4) == 250
    assert size("cpu", 10**12, 4) == 64
    assert size("gpu", 200 * one, 4) == 60
    assert size("cpu", 100 * one, 4) == 50
    assert size("gpu", 1, 4) == 1


def test_beliefs_are_kept_where_there_is_room():
    """Two checkpoints a run; those of 2 x 100 runs at a time must fit, those of all 1000 half of the disk."""
    experiment, _, life, _ = resolve(replace(preset("tiger", "ba-pomcp"), runs=1000, chunk_size=100))
    two, place = 2 * life.bytes_of_state(), Place("cpu", 10**12, 2)
    keeps = lambda disk, **changes: choose_keeping(replace(experiment, **changes), life, place, disk)
    assert keeps(2000 * two) == "yes" and keeps(2000 * two - 1) == "no"
    assert keeps(1000 * two, keep_beliefs="yes") == "yes" and keeps(10**15, keep_beliefs="no") == "no"
    assert keeps(200 * two) == "no" and keeps(2 * two, runs=1) == "yes"
    with pytest.raises(UserError, match=r"Checkpoints of 200 runs need .* a smaller --chunk-size"):
        keeps(200 * two - 1)
    with pytest.raises(UserError, match=r"Checkpoints of 1000 runs need .* --keep-beliefs no"):
        keeps(1000 * two - 1, keep_beliefs="yes")


def test_episodes_that_are_computed_again_are_told_once():
    told, shown = [], []
    board = Board(
        2, 3, lambda *values: shown.append(values), [lambda rows: told.append(rows["episode"].tolist())]
    )
    rows = lambda run, *episodes: {
        "run": np.full(len(episodes), run),
        "episode": np.array(episodes),
        "discounted_return": np.array(episodes, float),
    }
    board.post(0, rows(0, 0, 1))
    board.post(0, rows(0))
    board.post(1, rows(1, 0))
    board.post(0, rows(0, 1, 2))  # a worker was lost: it went on from the checkpoint after episode 0
    assert told == [[0, 1], [0], [2]]
    assert [done for _, done, _, _ in shown] == [2, 2, 3, 4]
    assert shown[-1] == ("episodes", 4, 6, 0.5)  # the mean of the chunks' means, 1 and 0


def test_a_worker_that_is_stopped_before_its_first_step_has_no_rows():
    """Who is told of them asks for their columns all the same: this was a raw exception."""
    random = preset("tiger", "random")
    few = random.changed(filter=replace(random.settings.filter, num_particles=4))
    resolved = resolve(replace(few, runs=1, episodes=1, chunk_size=1))
    worker = Worker()
    worker.work, worker.seconds = Work(resolved.experiment, resolved.life), 1.0
    worker.start(0, 1, None)
    rows, saved, finished = worker.advance(stop=True)
    assert len(rows["run"]) == 0 and saved is not None and not finished
    Board(1, 1, lambda *_: None).post(0, rows)


def test_ray_is_asked_for_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'baddr\[ray\]'"):
        with Ray().opened():
            pass


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--address", "127.0.0.1:1"], "needs --engine ray"),
        (["--engine", "ray", "--cpus-per-chunk", "0"], "--cpus-per-chunk must be"),
    ],
)
def test_wrong_engines_get_a_sentence(arguments, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", *arguments, "--out", str(tmp_path / "new")])
    assert exit.value.code == 2 and sentence in capsys.readouterr().err


def test_a_cluster_that_is_not_there_gets_a_sentence():
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=r"nothing answers at 127\.0\.0\.1:1"):
        with Ray("127.0.0.1:1").opened():
            pass


def test_checkpoints_take_a_tenth_of_the_time_at_most(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def interval(seconds: float, cost: float) -> float:
        schedule = Schedule(seconds)
        with schedule.checkpoint():
            now[0] += cost
        return schedule.interval

    assert [interval(30.0, cost) for cost in (0.0, 3.0, 20.0, 1e6)] == [30, 30, 180, 3000]
    assert interval(0.0, 5.0) == 0  # all the time, where that is asked for
    schedule = Schedule(30.0)
    assert not schedule.due
    now[0] += 31
    assert schedule.due
