"""The rows of an experiment that runs, on disk as its episodes end.

episodes.log names the columns in a line of JSON; records follow, each of the rows that came together: their
length in bytes, a checksum, and the rows, with 8 bytes for each column. A record that is not whole ends the
file for its readers. Once episodes.parquet has the rows, the log is removed. Nobody holds all rows while an
experiment runs: they are read a piece at a time.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from baddr.errors import StorageError
from baddr.files.tables import ROWS_PER_GROUP, Arrays, Frontier, check_columns, joined, pieces_of, read_table
from baddr.files.writing import Log

FRAME = struct.Struct("<II")
LONGEST_HEADER = 1 << 20  # bytes
PIECE = 1 << 20  # bytes of records that are read at a time


class RowLog:
    """Is told the episodes that end, and appends those that are neither in the log nor in the table."""

    def __init__(self, path: Path, table: Path):
        self.log, self.before, self.frontier = Log(path), table, Frontier()
        self.kind: np.dtype | None = None  # of a row

    def known(self) -> Iterator[Arrays]:
        """The rows in the table and in the log, a piece at a time. New ones then follow the last whole
        record."""
        assert self.log.file is None
        whole = 0
        for rows, end in self._pieces():
            self.kind, whole = self.kind or _kind(rows), end
            yield self.frontier.take(rows)
        self.log.open(whole)

    def __call__(self, rows: Arrays) -> None:
        if self.log.file is None:
            for _ in self.known():
                pass
        if self.kind is not None and self.kind != _kind(rows):
            raise StorageError(f"{self.log.path} has other columns than this version of baddr writes.")
        self.kind = _kind(rows)
        new = self.frontier.take(rows)
        if len(new["run"]):
            header = b"" if os.fstat(self.log.descriptor).st_size else _header(self.kind)
            self.log.append(header + _record(new))

    def has(self, first: int, told: np.ndarray) -> bool:
        """Whether so many episodes of runs first, first + 1, ... are known."""
        ended = self.frontier.ended[first : first + len(told)]
        return bool((np.pad(ended, (0, len(told) - len(ended))) >= told).all())

    def sync(self) -> None:
        """What was appended is on disk, after a power failure too."""
        self.log.sync()

    def table(self, no_rows: Callable[[], Arrays]) -> Iterator[Arrays]:
        """All rows by run and episode, in pieces; `no_rows` has the columns where there are none."""
        ended = self.frontier.ended
        starts, there = np.cumsum(ended) - ended, np.zeros(int(ended.sum()), bool)
        kind = _kind(no_rows()) if self.kind is None else self.kind
        packed = np.empty(len(there), kind)
        for rows, _ in self._pieces():
            at = starts[rows["run"]] + rows["episode"]
            there[at] = True
            for name, column in rows.items():
                packed[name][at] = column
        packed = packed if there.all() else packed[there]
        for i in range(0, max(1, len(packed)), ROWS_PER_GROUP):
            yield _columns(packed[i : i + ROWS_PER_GROUP])

    def close(self) -> None:
        self.log.close()

    def remove(self) -> None:
        """The table has all rows."""
        self.close()
        with suppress(OSError):
            self.log.path.unlink()

    def _pieces(self) -> Iterator[tuple[Arrays, int]]:
        """Rows of the table, then of the log, and how far the log has been read."""
        if self.before.exists():
            for rows in pieces_of(self.before):
                yield rows, 0
        for payload, end in _payloads(self.log.path):
            yield check_columns(_columns(payload), self.log.path), end


def read_rows(path: Path) -> Arrays | None:
    """The rows of a log up to the first that is not whole; None where there is no log, or it names no column.
    Reads a log that is being written, too."""
    found = [payload for payload, _ in _payloads(path)]
    if not found:
        return None
    return check_columns(_columns(np.concatenate(found)), path)


def read_results(log: Path, table: Path) -> Arrays:
    """All rows so far, by run and episode, each once."""
    logged = read_rows(log)  # first: it is removed as soon as the table has its rows
    if logged is None or (table.exists() and not len(logged["run"])):
        return read_table(table)
    frontier, tables = Frontier(), [read_table(table)] if table.exists() else []
    return joined([frontier.take(rows) for rows in [*tables, logged]])


def _kind(rows: Arrays) -> np.dtype:
    """Of a row: little-endian, whatever the machine."""
    return np.dtype([(name, column.dtype.newbyteorder("<")) for name, column in rows.items()])


def _header(kind: np.dtype) -> bytes:
    columns = [[name, kind[name].str] for name in kind.names or ()]
    return json.dumps({"columns": columns, "checksum": _checksum(columns)}).encode() + b"\n"


def _checksum(columns: object) -> int:
    return zlib.crc32(json.dumps(columns).encode())


def _kind_in(line: bytes) -> np.dtype | None:
    """Of the rows that follow a header; None where it is none."""
    try:
        header = json.loads(line)
        columns = header["columns"]
        kind = np.dtype([(name, kind) for name, kind in columns])
        whole = header.get("checksum", _checksum(columns)) == _checksum(columns)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return kind if whole and kind.itemsize and not kind.hasobject else None


def _record(rows: Arrays) -> bytes:
    packed = np.empty(len(rows["run"]), _kind(rows))
    for name, column in rows.items():
        packed[name] = column
    payload = packed.tobytes()
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _columns(packed: np.ndarray) -> Arrays:
    names = packed.dtype.names or ()
    return {name: packed[name].astype(packed[name].dtype.newbyteorder("=")) for name in names}


def _payloads(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """The rows of a log, packed, some records at a time and up to the first that is not whole; and where
    these end. Nothing where there is no log; no rows first, where there is one."""
    try:
        with open(path, "rb") as file:
            line = file.readline(LONGEST_HEADER)
            kind = _kind_in(line)
            if kind is None or not line.endswith(b"\n"):
                return
            yield np.zeros(0, kind), len(line)
            yield from _records(file, kind)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from error


def _records(file: IO[bytes], kind: np.dtype) -> Iterator[tuple[np.ndarray, int]]:
    found, size, end = [], 0, os.fstat(file.fileno()).st_size
    while len(frame := file.read(FRAME.size)) == FRAME.size:
        length, checksum = FRAME.unpack(frame)
        # Zeros, which a power failure may leave, have the checksum of nothing.
        if not length or length % kind.itemsize or length > end - file.tell():
            file.seek(-FRAME.size, os.SEEK_CUR)
            break
        payload = file.read(length)
        if zlib.crc32(payload) != checksum:
            file.seek(-FRAME.size - len(payload), os.SEEK_CUR)
            break
        found.append(payload)
        size += length
        if size >= PIECE:
            yield np.frombuffer(b"".join(found), kind), file.tell()
            found, size = [], 0
    if found:
        whole = file.tell() if len(frame) in (0, FRAME.size) else file.tell() - len(frame)
        yield np.frombuffer(b"".join(found), kind), whole
