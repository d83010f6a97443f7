"""Episodes as they end, for other programs: JSON lines, and events that TensorBoard reads.

A tracker is told every episode; after an interruption some of them again. The episodes of a run end in their
order, so what a tracker's file holds already says what is new, and no episode is in it twice. Whatever a
killed program left half-written at a file's end is cut off first. Needs no JAX; only events need TensorBoard.
"""

import importlib.util
import io
import json
import struct
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.tables import Arrays
from baddr.files.writing import Log
from baddr.lab.columns import numbers
from baddr.lab.spans import spans_in

JSONL, TENSORBOARD = "metrics.jsonl", "tensorboard"


@contextmanager
def trackers(names: Sequence[str], folder: Folder) -> Iterator[list["JsonLines | Events"]]:
    """The trackers of these names ("jsonl", "tensorboard"), and those that the folder has already."""
    with ExitStack() as stack:
        chosen: list[JsonLines | Events] = []
        asked, names = names, [*names, *_before(folder)]
        if "jsonl" in names or (folder.path / JSONL).exists():
            chosen.append(JsonLines(folder))
        if _can_write_events("tensorboard" in asked, "tensorboard" in names, folder):
            chosen.append(Events(folder))
        for tracker in chosen:
            stack.callback(tracker.close)
        yield chosen


def _before(folder: Folder) -> list[str]:
    """The trackers that the experiment in a folder was started with."""
    if not folder.config.exists() or not folder.manifest.exists():
        return []
    return [name for name in folder.read_manifest().get("track", []) if isinstance(name, str)]


def _can_write_events(asked: bool, wanted: bool, folder: Folder) -> bool:
    """Where they are asked for, or the folder has some; without TensorBoard the latter wait for a resume that
    has it."""
    if not wanted and not (folder.path / TENSORBOARD).exists():
        return False
    if importlib.util.find_spec("tensorboard") is not None:
        return True
    if asked:
        raise UserError("--track tensorboard needs TensorBoard: pip install 'baddr[tensorboard]'.")
    warnings.warn("TensorBoard is not installed: its curves will not grow until it is.", stacklevel=2)
    return False


class JsonLines:
    """metrics.jsonl: a line per run and episode, with all columns of episodes.parquet, as they come."""

    name = "jsonl"

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
        for line in self.log.lines():
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

    name = "tensorboard"

    def __init__(self, folder: Folder):
        self.folder = folder
        self.curves: list[_Curve] = []

    def __call__(self, rows: Arrays) -> None:
        if not self.curves:
            spans = spans_in(self.folder.read_manifest().get("chunks"), self.folder.manifest)
            spans = dict.fromkeys([*spans, (0, spans.runs)])
            self.curves = [_Curve(self.folder.path / TENSORBOARD, *span) for span in spans]
        low, high = int(rows["run"].min()), int(rows["run"].max())
        for curve in self.curves:
            if curve.first <= high and low < curve.last:
                curve.add(rows)

    def close(self) -> None:
        """Their files are open only while they grow: there is one for each chunk."""


class _Curve:
    def __init__(self, path: Path, first: int, last: int):
        self.first, self.last = first, last
        self.log = Log(path / f"runs-{first}-{last - 1}" / "events.out.tfevents.baddr")
        content = self.log.read()
        lengths = list(_whole_records(content))
        self.length = lengths[-1] if lengths else 0
        if not lengths:
            self._append(_record(file_version="brain.Event:2"))
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
            events.append(_record(step=self.written, summary=_scalars(means)))
            self.written += 1
        if events:
            self._append(b"".join(events))

    def _append(self, records: bytes) -> None:
        self.log.open(self.length)
        try:
            self.log.append(records)
        finally:
            self.log.close()
        self.length += len(records)


# TensorBoard's files: its own events in its own frames, appended to one file that may end anywhere. (Its
# EventFileWriter starts another file at every resume, and knows nothing of a torn end.)


def _record(**values: Any) -> bytes:
    """An event in its frame."""
    from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.summary.writer.record_writer import RecordWriter

    frame = io.BytesIO()
    RecordWriter(frame).write(Event(wall_time=time.time(), **values).SerializeToString())
    return frame.getvalue()


def _scalars(values: dict[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    return Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])


def _whole_records(content: bytes) -> Iterator[int]:
    """Where each record (a length and its checksum, data and theirs) ends, up to the first not whole."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    of = lambda data: struct.pack("<I", masked_crc32c(data))
    at = 0
    while len(content) >= at + 12:
        length = content[at : at + 8]
        end = at + 12 + struct.unpack("<Q", length)[0]
        data, checksum = content[at + 12 : end], content[end : end + 4]
        if content[at + 8 : at + 12] != of(length) or checksum != of(data):
            return
        at = end + 4
        yield at
