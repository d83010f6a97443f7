"""A result folder: written beside and renamed into place, checked when read, owned by one program."""

import hashlib
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from baddr.errors import StorageError, UserError
from baddr.files import machine
from baddr.files.manifest import check_types, check_whole
from baddr.files.rows import read_results
from baddr.files.tables import Arrays, write_pieces
from baddr.files.writing import replacing, write

LARGEST_JSON = 1 << 25  # bytes; a run that failed is 100
KEPT = 2  # checkpoints per chunk: the newest, and one to fall back to


# Checkpoints: a line with the SHA-256 of the rest, then an .npz archive without pickles.


def pack(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    with buffer.getbuffer() as payload:  # not a copy: it may be many GB
        return b"".join([hashlib.sha256(payload).hexdigest().encode(), b"\n", payload])


def is_whole(packed: bytes) -> bool:
    """Whether the data are what was written."""
    digest, _, payload = packed.partition(b"\n")
    return hashlib.sha256(payload).hexdigest().encode() == digest


def unpack(packed: bytes) -> Arrays:
    _, _, payload = packed.partition(b"\n")
    with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _digest(file: IO[bytes]) -> str:
    """Of all that a file holds."""
    file.seek(0)
    found = hashlib.sha256()
    while piece := file.read(1 << 20):
        found.update(piece)
    return found.hexdigest()


def _is_of_value(path: Path) -> bool:
    """Not what a program leaves that was killed before its experiment started: config.toml comes last."""
    return path.name not in (".lock", "manifest.json", "prior") and path.suffix != ".part"


def read_json(path: Path) -> Any:
    """What a JSON file holds; whatever lies there instead is one sentence."""
    try:
        if path.stat().st_size > LARGEST_JSON:  # a parser takes thirty times as much
            raise StorageError(f"{path} cannot be read: it has more than {LARGEST_JSON >> 20} MiB.")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from error
    except RecursionError:
        raise StorageError(f"{path} cannot be read: it is nested too deeply.") from None
    except ValueError as error:
        raise StorageError(f"{path} cannot be read: {error}.") from error


class Folder:
    """One experiment's results."""

    def __init__(self, path: Path):
        self.path, self.is_owned = path, False

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes.parquet"

    @property
    def rows(self) -> Path:
        """What episodes.parquet does not have yet."""
        return self.path / "episodes.log"

    @property
    def prior(self) -> "Folder":
        """What was copied of the experiment whose beliefs are the prior."""
        return Folder(self.path / "prior")

    @property
    def free(self) -> int:
        """Bytes, of the disk that it lies or will lie on."""
        path = self.path.absolute()
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free

    def check_new(self) -> None:
        """Refuse to start an experiment where something else lies."""
        if self.config.exists():
            raise UserError(
                f"{self.path} already holds an experiment; resume it with `baddr resume {self.path}`, "
                "or choose another folder with --out."
            )
        if self.path.exists() and (not self.path.is_dir() or any(map(_is_of_value, self.path.iterdir()))):
            raise UserError(
                f"{self.path} exists and is not an empty folder; choose another folder with --out."
            )

    @property
    def has_experiment(self) -> bool:
        """Not what a program leaves that was killed before its experiment started."""
        return self.config.exists() and self.manifest.exists()

    def check_existing(self) -> None:
        if not self.has_experiment:
            raise UserError(f"{self.path} holds no experiment: it has no config.toml and manifest.json.")

    @contextmanager
    def owned(self):
        """Hold the folder's lock: a second program is refused; a killed one leaves no trace."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "w")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"Cannot write to {self.path}: {reason}.") from error
        with lock:
            try:
                machine.lock(lock)
            except OSError:
                raise UserError(f"Another program is working in {self.path}; wait until it ends.") from None
            # Of a program that was killed while it wrote.
            for part in [*self.path.glob("*.part"), *self.path.glob("checkpoints/*/*.part")]:
                with suppress(OSError):
                    part.unlink()
            self.is_owned = True
            try:
                yield self
            finally:
                self.is_owned = False

    def write_manifest(self, values: dict[str, Any]) -> None:
        write(self.manifest, (json.dumps(values, indent=2) + "\n").encode())

    def read_manifest(self) -> dict[str, Any]:
        return check_types(read_json(self.manifest), self.manifest)

    def read_experiment_manifest(self) -> dict[str, Any]:
        """One that has all that a resume needs."""
        return check_whole(self.read_manifest(), self.manifest)

    def write_table(self, pieces: Iterator[Arrays], manifest: dict[str, Any]) -> None:
        """episodes.parquet. The manifest has its checksum first, beside that of the table before it."""
        old = manifest.get("table", [])
        with replacing(self.episodes) as file:
            write_pieces(file, pieces)
            new = _digest(file)
            manifest["table"] = [*old, new]
            self.write_manifest(manifest)
        manifest["table"] = [new]

    def drop_damaged_table(self, manifest: dict[str, Any]) -> None:
        """Its runs are then computed again."""
        if not self.has_written(manifest):
            warnings.warn(f"{self.episodes} is damaged (its checksum differs); it was rebuilt.", stacklevel=2)
            self.episodes.unlink(missing_ok=True)

    @property
    def is_whole(self) -> bool:
        """Whether an experiment has ended, and its table is the one that was written."""
        if not self.manifest.exists():
            return False
        manifest = self.read_manifest()
        return manifest.get("status") == "complete" and self.episodes.exists() and self.has_written(manifest)

    def has_written(self, manifest: dict[str, Any]) -> bool:
        """Whether the table, if there is one, is the one that was written. Older manifests do not say."""
        if not manifest.get("table") or not self.episodes.exists():
            return True
        try:
            with open(self.episodes, "rb") as file:
                return _digest(file) in manifest["table"]
        except OSError as error:
            raise StorageError(f"Cannot read {self.episodes}: {error.strerror}.") from error

    def _checkpoints(self, chunk: int) -> list[Path]:
        """Oldest first."""
        return sorted((self.path / "checkpoints" / f"chunk-{chunk:05d}").glob("*.ckpt"))

    def note(self, chunk: int) -> dict[str, Any] | None:
        """What the newest checkpoint notes, without reading all of it; None where it cannot be read."""
        for path in self._checkpoints(chunk)[-1:]:
            with suppress(Exception):  # what damaged archives raise is not foreseen; `newest` looks at it all
                with zipfile.ZipFile(path) as archive, archive.open("note.npy") as file:
                    note = np.lib.format.read_array(file, allow_pickle=False)  # type: ignore[arg-type]
                return json.loads(note.tobytes())
        return None

    def save(self, chunk: int, arrays: Arrays, over: bool = False) -> None:
        self.keep(chunk, pack(arrays), over)

    def keep(self, chunk: int, packed: bytes, over: bool = False) -> None:
        """Add a checkpoint and drop those that are no longer needed; all others if the chunk is `over`."""
        old = self._checkpoints(chunk)
        number = int(old[-1].stem) + 1 if old else 0
        write(self.path / "checkpoints" / f"chunk-{chunk:05d}" / f"{number:08d}.ckpt", packed)
        for path in old[: len(old) + 1 - (1 if over else KEPT)]:
            with suppress(OSError):
                path.unlink()

    def load(self, chunk: int) -> Arrays | None:
        packed = self.newest(chunk)
        return None if packed is None else unpack(packed)

    def newest(self, chunk: int) -> bytes | None:
        """The newest checkpoint that is whole."""
        for path in reversed(self._checkpoints(chunk)):
            try:
                packed = path.read_bytes()
            except OSError as error:
                raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
            if is_whole(packed):
                return packed
            warnings.warn(
                f"{path} is damaged (its checksum differs); the one before it is used.", stacklevel=3
            )
            if self.is_owned:  # nothing is deleted in another experiment's folder
                path.unlink(missing_ok=True)
        return None


def load_results(path: str | Path) -> Arrays:
    """The episodes of a result folder, also while it runs or after it was killed: one array per column, one
    entry per run and episode, in this order."""
    folder = Folder(Path(path))
    results, manifest = read_results(folder.rows, folder.episodes), {}
    with suppress(StorageError):  # a manifest that cannot be read says nothing about the table
        manifest = folder.read_manifest()
    if not folder.has_written(manifest):
        raise StorageError(
            f"{folder.episodes} is damaged: its checksum is not the one in manifest.json; "
            f"`baddr resume {folder.path}` rebuilds it."
        )
    return results
