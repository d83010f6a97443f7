"""The rows of an experiment that runs, on disk as its episodes end.

episodes.log names the columns in a line of JSON; records follow, each of the rows that came together: their
length in bytes, a checksum, and the rows, with 8 bytes for each column. A record that is not whole ends the
file for its readers. Once episodes.parquet has the rows, the log is removed.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from baddr.errors import StorageError
from baddr.files.tables import Arrays, Frontier, check_columns, joined, read_table
from baddr.files.writing import Log

FRAME = struct.Struct("<II")


class RowLog:
    """Is told the episodes that end, and appends those that are neither in the log nor in the table."""

    def __init__(self, path: Path, table: Path):
        self.log, self.table, self.frontier = Log(path), table, Frontier()

    def __call__(self, rows: Arrays) -> None:
        if self.log.file is None:
            self._open(rows)
        new = self.frontier.take(rows)
        if len(new["run"]):
            self.log.append(_record(new))

    def close(self) -> None:
        self.log.close()

    def remove(self) -> None:
        """The table has all rows."""
        self.close()
        with suppress(OSError):
            self.log.path.unlink()

    def _open(self, rows: Arrays) -> None:
        """Resume after the last whole record of a file with these columns."""
        if self.table.exists():
            self.frontier.take(read_table(self.table, ["run", "episode"]))
        content, header = self.log.read(), _header(rows)
        if not content.startswith(header):
            self.log.open(0)
            self.log.append(header)
            return
        kind, whole = _kind(rows), len(header)
        for payload in _payloads(content, whole, kind.itemsize):
            self.frontier.take(_columns(payload, kind))
            whole += FRAME.size + len(payload)
        self.log.open(whole)


def read_rows(path: Path) -> Arrays | None:
    """The rows of a log up to the first that is not whole; None where there is no log, or it names no column.
    Reads a log that is being written, too."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from error
    line, newline, _ = content.partition(b"\n")
    try:
        kind = np.dtype([(name, kind) for name, kind in json.loads(line)["columns"]])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if kind.hasobject or not kind.itemsize:
        return None
    start = len(line) + len(newline)
    return check_columns(_columns(b"".join(_payloads(content, start, kind.itemsize)), kind), path)


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


def _header(rows: Arrays) -> bytes:
    kind = _kind(rows)
    columns = [[name, kind[name].str] for name in rows]
    return json.dumps({"columns": columns}).encode() + b"\n"


def _record(rows: Arrays) -> bytes:
    packed = np.empty(len(rows["run"]), _kind(rows))
    for name, column in rows.items():
        packed[name] = column
    payload = packed.tobytes()
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _columns(payload: bytes, kind: np.dtype) -> Arrays:
    packed = np.frombuffer(payload, kind)
    return {name: packed[name].astype(packed[name].dtype.newbyteorder("=")) for name in kind.names or ()}


def _payloads(content: bytes, at: int, row: int) -> Iterator[bytes]:
    """The rows of each record, up to the first that is not whole."""
    while len(content) >= at + FRAME.size:
        length, checksum = FRAME.unpack_from(content, at)
        payload = content[at + FRAME.size : at + FRAME.size + length]
        # Zeros, which a power failure may leave, have the checksum of nothing.
        if not length or length % row or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload
        at += FRAME.size + length
