"""Rows on disk as episodes end: each once, in order, whatever was left half-written."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baddr import load_results
from baddr.errors import StorageError, UserError
from baddr.files.rows import FRAME, RowLog, read_rows
from baddr.files.store import Folder
from baddr.files.tables import Arrays, Frontier, write_table
from baddr.files.writing import Log


def rows(*episodes: tuple[int, int]) -> Arrays:
    """(run, episode): its return is 10 * run + episode."""
    run, episode = (np.array(column, np.int64) for column in zip(*episodes, strict=True))
    return {"run": run, "episode": episode, "return": 10.0 * run + episode}


def told(folder: Folder, *tables: Arrays) -> None:
    log = RowLog(folder.rows, folder.episodes)
    for table in tables:
        log(table)
    log.close()


def episodes(table: Arrays) -> list[tuple[int, int]]:
    np.testing.assert_array_equal(table["return"], 10.0 * table["run"] + table["episode"])
    return list(zip(table["run"].tolist(), table["episode"].tolist(), strict=True))


FIRST, SECOND = rows((1, 0), (0, 0), (1, 1)), rows((0, 1), (1, 2))
ALL = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_rows_come_back_by_run_and_episode_bit_for_bit(tmp_path):
    folder = Folder(tmp_path)
    strange = {"run": np.array([0, 0]), "episode": np.array([1, 2]), "return": np.array([-np.inf, -0.0])}
    told(folder, {name: column[:1] for name, column in FIRST.items()}, rows((0, 0)), strange)
    found = load_results(tmp_path)
    assert found["run"].tolist() == [0, 0, 0, 1] and found["episode"].tolist() == [0, 1, 2, 0]
    assert found["return"].tobytes() == np.array([0.0, -np.inf, -0.0, 10.0]).tobytes()
    assert [column.dtype for column in found.values()] == [np.int64, np.int64, np.float64]


def test_rows_that_are_told_again_are_there_once(tmp_path):
    folder = Folder(tmp_path)
    told(folder, FIRST)
    told(folder, FIRST, rows((1, 1), (0, 1), (1, 2)), SECOND)
    assert episodes(load_results(tmp_path)) == ALL
    logged = read_rows(folder.rows)
    assert logged is not None and len(logged["run"]) == len(ALL)


def test_a_record_that_is_not_whole_is_ignored_and_then_replaced(tmp_path):
    """The second record is cut at every byte, has a wrong bit at every place, or is followed by zeros."""
    folder = Folder(tmp_path)
    told(folder, FIRST)
    first = folder.rows.stat().st_size
    told(folder, FIRST, SECOND)
    whole = folder.rows.read_bytes()
    damaged = [whole[:end] for end in range(first, len(whole))]
    for i in range(first, len(whole), 5):
        flipped = bytearray(whole)
        flipped[i] ^= 4
        damaged.append(bytes(flipped))
    damaged.append(whole[:first] + bytes(64))
    for content in damaged:
        folder.rows.write_bytes(content)
        assert episodes(load_results(tmp_path)) == [(0, 0), (1, 0), (1, 1)]
        told(folder, FIRST, SECOND)
        assert folder.rows.read_bytes() == whole
    folder.rows.write_bytes(whole + bytes(FRAME.size))
    assert episodes(load_results(tmp_path)) == ALL


@pytest.mark.parametrize("content", [b"", b"{", b'{"columns": 3}\n', b"\0\0\n\0", b'{"columns": [["run"'])
def test_a_log_that_names_no_columns_is_started_anew(tmp_path, content):
    folder = Folder(tmp_path)
    folder.rows.write_bytes(content)
    with pytest.raises(UserError, match="no run has written results"):
        load_results(tmp_path)
    told(folder, FIRST)
    assert len(episodes(load_results(tmp_path))) == 3


def test_what_the_table_has_is_not_logged_again(tmp_path):
    folder = Folder(tmp_path)
    write_table(folder.episodes, rows((0, 0), (1, 0), (1, 1)))
    told(folder, FIRST, SECOND)
    logged = read_rows(folder.rows)
    assert logged is not None and episodes(logged) == [(0, 1), (1, 2)]
    assert episodes(load_results(tmp_path)) == ALL


def test_a_table_and_a_log_with_the_same_rows_are_one(tmp_path):
    """As a program leaves them that is killed before it removes the log."""
    folder = Folder(tmp_path)
    told(folder, FIRST)
    write_table(folder.episodes, rows((0, 0), (1, 0), (1, 1)))
    assert episodes(load_results(tmp_path)) == [(0, 0), (1, 0), (1, 1)]


def test_a_full_disk_leaves_the_log_as_it_was_and_gets_a_sentence(tmp_path, monkeypatch):
    folder = Folder(tmp_path)
    log = RowLog(folder.rows, folder.episodes)
    log(FIRST)
    before = folder.rows.read_bytes()
    full = FullAfter(log.log, 10)
    log.log.file = full  # type: ignore[assignment]
    with pytest.raises(StorageError, match=r"Cannot write .*episodes\.log: no space left on device\."):
        log(SECOND)
    assert full.room == 0 and folder.rows.read_bytes() == before
    log.close()
    told(folder, FIRST, SECOND)
    assert episodes(load_results(tmp_path)) == ALL


class FullAfter:
    """A log's file on a disk with little room."""

    def __init__(self, log: Log, room: int):
        assert log.file is not None
        self.file, self.room = log.file, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_the_frontier_lets_an_episode_pass_once():
    frontier = Frontier()
    assert episodes(frontier.take(rows((2, 0), (0, 0), (2, 1)))) == [(2, 0), (0, 0), (2, 1)]
    assert frontier.ended.tolist() == [1, 0, 2]
    assert episodes(frontier.take(rows((2, 1), (0, 1), (5, 0), (0, 0)))) == [(0, 1), (5, 0)]
    assert frontier.ended.tolist() == [2, 0, 2, 0, 0, 1]
    nothing = {name: column[:0] for name, column in FIRST.items()}
    assert frontier.take(nothing) == nothing


def test_a_folder_without_rows_gets_a_sentence(tmp_path):
    with pytest.raises(UserError, match="no run has written results"):
        load_results(Path(tmp_path))
