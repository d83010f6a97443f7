"""Episodes as they end, for other programs: JSON lines, and events that TensorBoard reads.

A tracker is told every episode; after an interruption some of them again. The episodes of a run end in their
order, so what a tracker's file holds already says what is new, and no episode is in it twice. Whatever a
killed program left half-written at a file's end is cut off first. Needs neither JAX nor TensorBoard.
"""

import json
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from baddr.files.store import Folder
from baddr.files.tables import Arrays
from baddr.files.writing import Log
from baddr.lab.columns import numbers

JSONL, TENSORBOARD = "metrics.jsonl", "tensorboard"


@contextmanager
def trackers(names: Sequence[str], folder: Folder) -> Iterator[list["JsonLines | Events"]]:
    """The trackers of these names ("jsonl", "tensorboard"), and those that the folder has already."""
    with ExitStack() as stack:
        chosen: list[JsonLines | Events] = []
        if "jsonl" in names or (folder.path / JSONL).exists():
            chosen.append(JsonLines(folder))
        if "tensorboard" in names or (folder.path / TENSORBOARD).exists():
            chosen.append(Events(folder))
        for tracker in chosen:
            stack.callback(tracker.close)
        yield chosen


class JsonLines:
    """metrics.jsonl: a line per run and episode, with all columns of episodes.parquet, as they come."""

    def __init__(self, folder: Folder):
        self.log = Log(folder.path / JSONL)
        self.ended: dict[int, int] = {}  # episodes in the file, by run

    def __call__(self, rows: Arrays) -> None:
        if self.log.file is None:  # not before: a new experiment begins in an empty folder
            self.log.open(self._read())
        lines = []
        for values in zip(*(column.tolist() for column in rows.values()), strict=True):
            row = dict(zip(rows, values, strict=True))
            if self._is_next(row):
                lines.append(json.dumps(row) + "\n")
        self.log.append("".join(lines).encode())

    def close(self) -> None:
        self.log.close()

    def _is_next(self, row: dict[str, Any]) -> bool:
        run, episode = int(row["run"]), int(row["episode"])
        if episode != self.ended.get(run, 0):
            return False
        self.ended[run] = episode + 1
        return True

    def _read(self) -> int:
        """Take note of the episodes in the file; the length of its whole lines."""
        length = 0
        for line in self.log.read().splitlines(keepends=True):
            try:
                known = line.endswith(b"\n") and self._is_next(json.loads(line))
            except (ValueError, KeyError, TypeError):
                known = False
            if not known:
                break
            length += len(line)
        return length


class Events:
    """tensorboard/runs-A-B/: the mean over runs A to B of each column, an event per episode.

    A curve for each chunk, as far as all of its runs have come, and one for all runs. A curve ends where one
    of its runs has failed.
    """

    def __init__(self, folder: Folder):
        self.folder = folder
        self.curves: list[_Curve] = []

    def __call__(self, rows: Arrays) -> None:
        if not self.curves:
            spans = self.folder.read_manifest()["chunks"]
            spans = dict.fromkeys([*map(tuple, spans), (0, spans[-1][1])])
            self.curves = [_Curve(self.folder.path / TENSORBOARD, *span) for span in spans]
        for curve in self.curves:
            curve.add(rows)

    def close(self) -> None:
        for curve in self.curves:
            curve.log.close()


class _Curve:
    def __init__(self, path: Path, first: int, last: int):
        self.first, self.last = first, last
        self.log = Log(path / f"runs-{first}-{last - 1}" / "events.out.tfevents.baddr")
        content = self.log.read()
        lengths = list(_whole_records(content))
        self.log.open(lengths[-1] if lengths else 0)
        if not lengths:
            self.log.append(_record(_event(file_version="brain.Event:2")))
        self.written = max(0, len(lengths) - 1)  # episodes in the file
        self.sums: dict[int, dict[str, float]] = {}
        self.counts: dict[int, int] = {}

    def add(self, rows: Arrays) -> None:
        mine = (rows["run"] >= self.first) & (rows["run"] < self.last) & (rows["episode"] >= self.written)
        shown = numbers(rows)
        for i in np.flatnonzero(mine):
            episode = int(rows["episode"][i])
            sums = self.sums.setdefault(episode, dict.fromkeys(shown, 0.0))
            for name in shown:
                sums[name] += float(rows[name][i])
            self.counts[episode] = self.counts.get(episode, 0) + 1
        events = []
        while self.counts.get(self.written) == self.last - self.first:
            sums = self.sums.pop(self.written)
            means = {name: total / (self.last - self.first) for name, total in sums.items()}
            events.append(_record(_event(step=self.written, scalars=means)))
            self.written += 1
        if events:
            self.log.append(b"".join(events))


# TensorBoard's files: records in TFRecord's frames, each an Event in protocol buffers.


def _event(file_version: str = "", step: int = 0, scalars: dict[str, float] | None = None) -> bytes:
    """Event: wall_time (field 1), step (2), file_version (3) or summary (5)."""
    event = b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step)
    if file_version:
        return event + b"\x1a" + _sized(file_version.encode())
    summary = b""
    for tag, value in (scalars or {}).items():  # Summary.Value: tag (1), simple_value (2)
        summary += b"\x0a" + _sized(b"\x0a" + _sized(tag.encode()) + b"\x15" + struct.pack("<f", value))
    return event + b"\x2a" + _sized(summary)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def _record(data: bytes) -> bytes:
    """A frame: the length and its checksum, the data and theirs."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _whole_records(content: bytes) -> Iterator[int]:
    """Where each record ends, up to the first that is not whole."""
    at = 0
    while len(content) >= at + 12:
        length = content[at : at + 8]
        end = at + 12 + struct.unpack("<Q", length)[0]
        data, checksum = content[at + 12 : end], content[end : end + 4]
        if content[at + 8 : at + 12] != _checksum(length) or checksum != _checksum(data):
            return
        at = end + 4
        yield at


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC = [_crc_of_byte(byte) for byte in range(256)]
