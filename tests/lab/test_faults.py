"""Nothing is lost: a fault at every write, and kills at any time, then resume."""

import errno
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from baddr.errors import StorageError, UserError
from baddr.files.store import Folder, load_results
from baddr.files.writing import Log
from baddr.lab import runner
from baddr.lab.experiment import Experiment, extend, of_folder, preset
from baddr.lab.track import trackers

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

RANDOM = preset("tiger", "random")
FEW = RANDOM.changed(filter=replace(RANDOM.settings.filter, num_particles=8))
EXPERIMENT = replace(FEW, runs=3, episodes=6, chunk_size=2, keep_beliefs="yes")


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


def test_the_campaign_knows_what_it_makes_small():
    """`make faults` puts small presets in the place of the suite's: they must take what the suite gives."""
    program = (
        "import faults; faults.prepare()\n"
        "from baddr.bench.suite import Request, parts\n"
        "of = parts(Request(domains=('sysadmin',)))\n"
        "print(*(part.experiment.settings.planner.num_simulations for part in of))"
    )
    here = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"16"}


def carry_on(folder: Folder) -> None:
    """What a user does, also after a fault: begin, or go on with what is not complete; then extend it."""

    def run(how, wanted: Experiment) -> None:
        with trackers(("jsonl", "tensorboard"), folder) as listeners:
            how(wanted, folder, lambda *_: None, listeners=listeners)

    if not folder.config.exists():
        run(runner.start, EXPERIMENT)
    for wanted in (EXPERIMENT, extend(EXPERIMENT, 4, 8)):
        there = of_folder(folder)
        if there.runs > wanted.runs:
            continue
        if there != wanted or folder.read_manifest()["status"] != "complete":
            run(runner.resume, wanted)


class Disk:
    """Counts the operations on files, and fails the n-th."""

    def __init__(self, patch: pytest.MonkeyPatch, fault: str, n: int):
        self.fault, self.n, self.count = fault, n, 0
        self.replace, self.fsync, self.mkstemp, self.append = (
            os.replace,
            os.fsync,
            tempfile.mkstemp,
            Log.append,
        )
        if fault in ("no space", "partial file"):
            patch.setattr(os, "fsync", self.on_fsync)
        elif fault == "torn record":
            patch.setattr(Log, "append", lambda log, records: self.on_append(log, records))
        elif fault == "no permission":
            patch.setattr(tempfile, "mkstemp", self.on_mkstemp)
        else:
            patch.setattr(os, "replace", self.on_replace)

    def _now(self) -> bool:
        self.count += 1
        return self.count == self.n

    def on_fsync(self, descriptor: int) -> None:
        if not os.path.isdir(f"/proc/self/fd/{descriptor}") and self._now():
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            if self.fault == "partial file":
                raise Killed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.fsync(descriptor)

    def on_append(self, log: Log, records: bytes) -> None:
        if log.path.name == "episodes.log" and self._now():
            self.append(log, records[: len(records) // 2])
            raise Killed
        self.append(log, records)

    def on_mkstemp(self, *arguments, **options):
        if self._now():
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return self.mkstemp(*arguments, **options)

    def on_replace(self, source: str, target: Path) -> None:
        if self.fault == "killed before" and self._now():
            raise Killed
        self.replace(source, target)
        if self.fault == "killed after" and self._now():
            raise Killed


def left(folder: Folder) -> list[object]:
    """All that an experiment leaves, but for times and versions; lines come in some order."""
    manifest = folder.read_manifest()
    for name in ("started", "wall_seconds", "commit", "resumed_with"):
        del manifest[name]
    lines = sorted((folder.path / "metrics.jsonl").read_bytes().splitlines())
    events = {path.parent.name: path.stat().st_size for path in folder.path.glob("tensorboard/*/*")}
    return [folder.episodes.read_bytes(), folder.config.read_bytes(), manifest, lines, events]


FAULTS = ["no space", "no permission", "partial file", "torn record", "killed before", "killed after"]


@pytest.mark.filterwarnings("ignore:.*it is computed again")  # half of a file is gone
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_write_costs_nothing(fault, tmp_path, monkeypatch, pytestconfig):
    """The n-th write fails, for every n: going on gives what an undisturbed run gives. (By default for some
    n: they are different ones for each fault.)"""
    first, stride = (1, 1) if pytestconfig.getoption("--slow") else (1 + FAULTS.index(fault), 12)
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    _, domain, agent, _ = runner.resolve(EXPERIMENT)  # once: it is compiled once then
    monkeypatch.setattr(runner, "resolve", lambda e, *_: runner.Resolved(e, domain, agent, None))
    whole = Folder(tmp_path / "whole")
    with monkeypatch.context() as patch:
        disk = Disk(patch, fault, 0)
        carry_on(whole)
    assert disk.count >= 15
    for n in range(first, disk.count + 1, stride):
        folder = Folder(tmp_path / str(n))
        with monkeypatch.context() as patch:
            disk = Disk(patch, fault, n)
            try:
                carry_on(folder)
            except (StorageError, Killed):
                pass
            else:  # on a busy machine, more rows may go into one write, and there are fewer of these
                assert disk.count < n
        assert lines_of(folder) <= lines_of(whole), n
        carry_on(folder)
        assert left(folder) == left(whole), n
        assert not list(folder.path.rglob("*.part")) and not folder.rows.exists(), n


def lines_of(folder: Folder) -> set[tuple[float, ...]]:
    """The rows so far, each once and in order."""
    try:
        rows = list(zip(*load_results(folder.path).values(), strict=True))
    except UserError as error:
        assert "no run has written results" in str(error)
        return set()
    keys = [row[:2] for row in rows]
    assert keys == sorted(set(keys))
    return set(rows)


def test_rows_are_on_disk_as_soon_as_episodes_end(tmp_path):
    """A running experiment is read at every news of it, and killed at the tenth: nothing of it is lost."""
    whole, folder, told = Folder(tmp_path / "whole"), Folder(tmp_path / "killed"), []
    runner.start(EXPERIMENT, whole, lambda *_: None)

    def listen(rows) -> None:
        told.extend(zip(*rows.values(), strict=True))
        assert lines_of(folder) == set(told)
        if len(told) >= 10:
            raise Killed

    with pytest.raises(Killed):
        runner.start(EXPERIMENT, folder, lambda *_: None, listeners=[listen])
    assert not folder.episodes.exists()
    assert set(told) <= lines_of(folder) <= lines_of(whole)
    runner.resume(EXPERIMENT, folder, lambda *_: None)
    assert folder.episodes.read_bytes() == whole.episodes.read_bytes() and not folder.rows.exists()


def test_a_folder_that_never_began_is_no_obstacle(tmp_path):
    """Killed before config.toml was there, a program may be started again; other files are in the way."""
    folder = Folder(tmp_path)
    for name in (".lock", "manifest.json", "config.toml1234.part"):
        (tmp_path / name).write_text("")
    folder.check_new()
    (tmp_path / "episodes.parquet").write_text("")
    with pytest.raises(UserError, match="not an empty folder"):
        folder.check_new()


CODE = """
import sys
from baddr.lab import runner
from baddr.cli import main
runner.SECONDS_BETWEEN_CHECKPOINTS = 0
main(sys.argv[1:])
"""


def start(*arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_ten_kills_at_random_moments(tmp_path):
    """kill -9, ten times: while it compiles, computes or writes. Then the data of an undisturbed run."""
    small = ["--planner.num-simulations", "64", "--filter.num-particles", "64", "--chunk-size", "2"]
    run = ["run", "tiger", "--agent", "ba-pomcp", "--runs", "5", "--episodes", "400", *small]
    run += ["--track", "jsonl", "tensorboard"]
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    assert start(*run, "--out", whole).wait(timeout=300) == 0
    moments = random.Random(0)
    for _ in range(10):
        process = (
            start("resume", folder) if (folder / "config.toml").exists() else start(*run, "--out", folder)
        )
        if moments.random() < 0.7:  # not before it has done something new
            before = newest(folder)
            while newest(folder) == before and process.poll() is None:
                time.sleep(0.01)
        time.sleep(moments.uniform(0, 1))
        process.kill()
        process.communicate()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
    assert start("resume", folder).wait(timeout=300) == 0
    for name in ("episodes.parquet", "metrics.jsonl"):
        lines = [sorted((path / name).read_bytes().splitlines()) for path in (folder, whole)]
        assert lines[0] == lines[1]


def newest(folder: Path) -> set[str]:
    """The checkpoints that there are."""
    return {str(path) for path in folder.glob("checkpoints/*/*.ckpt")}
