"""Two ways to write a file that survive a kill: whole or not at all, and record after record."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from baddr.errors import StorageError


def write(path: Path, data: bytes) -> None:
    """All of `data`, or the file as it was; after a power failure too."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
        _flush(path.parent)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        reason = error.strerror or str(error)
        raise StorageError(f"Cannot write {path}: {reason.lower()}; nothing was overwritten.") from error


def _flush(folder: Path) -> None:
    """Have the names in a folder on disk, not in memory only; some file systems know no such thing."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Log:
    """A file that only grows, by whole records. Each is with the system at once, so a kill does not lose it;
    after a power failure the end may be torn, which its reader cuts off."""

    def __init__(self, path: Path):
        self.path = path
        self.file: IO[bytes] | None = None

    def read(self) -> bytes:
        with self._told():
            return self.path.read_bytes() if self.path.exists() else b""

    def open(self, whole: int) -> None:
        """Resume after the first so many bytes; what follows them is cut off."""
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(self.path, "ab", buffering=0)
            self.file.truncate(whole)

    def append(self, records: bytes) -> None:
        """All of the records; where the disk has no room for them, the file as it was."""
        assert self.file is not None
        with self._told():
            end = os.lseek(self.file.fileno(), 0, os.SEEK_END)
            try:
                while records:  # a disk that fills up may take a part
                    records = records[self.file.write(records) :]
            except OSError:
                with suppress(OSError):
                    self.file.truncate(end)
                raise

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"Cannot write {self.path}: {reason}.") from error
