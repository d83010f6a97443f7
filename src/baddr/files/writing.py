"""Two ways to write a file that survive a kill: whole or not at all, and record after record."""

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from baddr.errors import StorageError

SHORT = 50  # characters of a name that a temporary one starts with: a name has 255 bytes at most
LONGEST_NAME = 170  # bytes of a file's name that is made of other names
_asking = threading.Lock()


def file_name(text: str) -> str:
    """A text as the name of a file, or the start of it: short enough, and in this folder."""
    text = "".join("-" if c in "/\\" or not c.isprintable() else c for c in text)
    whole = text.encode(errors="replace")
    if len(whole) <= LONGEST_NAME:
        return text
    return f"{whole[: LONGEST_NAME - 10].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:8]}"


def _umask() -> int:
    """What new files may not be: the user's choice. It can only be read by setting it; meanwhile others
    would make files that nobody else can read."""
    with _asking:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


def write(path: Path, data: bytes) -> None:
    """All of `data`, or the file as it was; after a power failure too."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """What is written to this file is the file at the path, at once, where nothing goes wrong."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=path.name[:SHORT], suffix=".part", dir=path.parent)
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
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

    def lines(self) -> Iterator[bytes]:
        """With their ends, one at a time."""
        if self.path.exists():
            with self._told(), open(self.path, "rb") as file:
                yield from file

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

    def sync(self) -> None:
        """What was appended is on disk, not in memory only."""
        if self.file is not None:
            with self._told():
                os.fsync(self.file.fileno())

    @property
    def descriptor(self) -> int:
        assert self.file is not None
        return self.file.fileno()

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
