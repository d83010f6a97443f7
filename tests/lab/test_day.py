"""A long run: what it keeps in memory, and how many files it has open, does not grow with its episodes."""

import gc
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baddr.errors import StorageError
from baddr.files import rows as files_rows
from baddr.files import tables
from baddr.files.rows import RowLog
from baddr.files.store import Folder, load_results
from baddr.files.tables import write_table
from baddr.lab import runner
from baddr.lab.engine import Board
from baddr.lab.experiment import extend, of_folder, preset
from baddr.lab.track import trackers

RANDOM = preset("tiger", "random")
FEW = RANDOM.changed(filter=replace(RANDOM.settings.filter, num_particles=4))
EXPERIMENT = replace(FEW, runs=2, episodes=400, chunk_size=2, keep_beliefs="yes")


def quiet(*_: object) -> None:
    pass


class Meter:
    """Bytes of the arrays of NumPy that somebody holds, now and then, and the size of checkpoints."""

    def __init__(self, folder: Folder):
        self.folder, self.held, self.checkpoints, self.ended = folder, [], [], 0

    def __call__(self, rows: dict[str, np.ndarray]) -> None:
        before, self.ended = self.ended, self.ended + len(rows["run"])
        if self.ended // 100 > before // 100:
            arrays = [x for x in gc.get_objects() if isinstance(x, dict) and "discounted_return" in x]
            self.held.append(sum(len(x["run"]) for x in arrays if isinstance(x.get("run"), np.ndarray)))
            sizes = [path.stat().st_size for path in self.folder.path.rglob("*.ckpt")]
            self.checkpoints.append(max(sizes, default=0))


def test_rows_do_not_pile_up(tmp_path, monkeypatch):
    """Neither in memory nor in checkpoints, which would grow with them; yet the table has them all."""
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    folder = Folder(tmp_path / "run")
    meter = Meter(folder)
    runner.start(EXPERIMENT, folder, quiet, listeners=[meter])
    assert len(meter.held) == 8 and max(meter.held) < 100
    early, late = meter.checkpoints[1], meter.checkpoints[-1]
    assert late <= early + 64  # the numbers of episodes that were told have more digits
    results = load_results(folder.path)
    assert results["episode"].tolist() == [*range(400)] * 2 and results["run"].sum() == 400


def test_lost_rows_are_computed_again(tmp_path, monkeypatch):
    """A log that ends before what a checkpoint has told, or a table that is not the one that was written."""
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    small, folder = replace(EXPERIMENT, runs=3, episodes=9), Folder(tmp_path / "run")
    runner.start(small, folder, quiet)
    whole = folder.episodes.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 1
    folder.episodes.write_bytes(bytes(damaged))
    assert not folder.is_whole
    with pytest.raises(StorageError, match=r"is damaged|cannot be read as Parquet"):
        load_results(folder.path)
    with pytest.warns(UserWarning, match=r"damaged|computed again"):
        runner.resume(of_folder(folder), folder, quiet)
    assert folder.episodes.read_bytes() == whole
    folder.episodes.unlink()
    assert not folder.is_whole
    with pytest.warns(UserWarning, match=r"chunk [01]: rows that it had reported are lost"):
        runner.resume(of_folder(folder), folder, quiet)
    assert folder.episodes.read_bytes() == whole


def test_a_tracker_that_comes_later_hears_of_all_episodes(tmp_path):
    folder = Folder(tmp_path / "run")
    small = replace(EXPERIMENT, episodes=6)
    runner.start(small, folder, quiet)
    with trackers(("jsonl",), folder) as listeners:
        runner.resume(extend(of_folder(folder), 3, 8), folder, quiet, listeners=listeners)
    assert len((folder.path / "metrics.jsonl").read_text().splitlines()) == 24


def test_a_table_in_pieces_is_the_whole_one(tmp_path, monkeypatch):
    """Byte for byte, however many records and pieces there are, and whatever was told twice."""
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 50)
    monkeypatch.setattr(files_rows, "ROWS_PER_GROUP", 50)
    monkeypatch.setattr(files_rows, "PIECE", 200)
    monkeypatch.setattr(tables, "ROWS_PER_PIECE", 7)
    run, episode = np.divmod(np.arange(120), 40)
    whole = {"run": run, "episode": episode, "discounted_return": np.sin(np.arange(120.0))}
    pq.write_table(pa.table(whole), tmp_path / "whole", compression="zstd", row_group_size=50)
    part = lambda i: {name: column[i] for name, column in whole.items()}
    write_table(tmp_path / "table", part(episode < 11))
    log = RowLog(tmp_path / "log", tmp_path / "table")
    for start in range(0, 40, 3):
        log(part((episode >= start) & (episode < start + 5)))
    folder = Folder(tmp_path / "folder")
    folder.write_table(log.table(dict), {})
    log.close()
    assert folder.episodes.read_bytes() == (tmp_path / "whole").read_bytes()


def test_files_of_many_chunks_are_not_open_together(tmp_path):
    """TensorBoard has one for each chunk."""
    pytest.importorskip("tensorboard")
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    folder = Folder(tmp_path / "run")
    most, before = [], len(os.listdir("/proc/self/fd"))
    with trackers(("tensorboard",), folder) as listeners:
        look = lambda rows: most.append(len(os.listdir("/proc/self/fd")))
        many = replace(EXPERIMENT, runs=30, episodes=2, chunk_size=1)
        runner.start(many, folder, quiet, listeners=[*listeners, look])
    assert len(list(folder.path.glob("tensorboard/*/*"))) == 31
    assert max(most) - before < 15


def test_the_board_keeps_few_returns_of_a_chunk():
    board = Board(1, 10**6, quiet)
    for i in range(0, 5000, 100):
        episode = np.arange(i, i + 100)
        board.post(0, {"run": 0 * episode, "episode": episode, "discounted_return": episode / 1.0})
    assert len(board.recent[0]) == 200 and board.means[0] == np.mean(np.arange(4800, 5000))


@pytest.mark.slow
def test_memory_is_flat_over_many_episodes(tmp_path):
    """At most 16 bytes an episode over the second half of 40,000 episodes; rows alone would be 100."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import day  # pyright: ignore[reportMissingImports]

    meter = day.measure(day.cheapest(10, 4000, 0))
    assert meter.bytes_per_episode() < 16
    assert max(moment[2] for moment in meter.moments) < 64
