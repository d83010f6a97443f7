"""Tables of episodes: columns by name, an entry per run and episode. On disk they are Parquet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from baddr.errors import StorageError, UserError, shown
from baddr.files.writing import replacing

Arrays = dict[str, np.ndarray]
KEYS = ("run", "episode")
ROWS_PER_GROUP = 1 << 20  # of a Parquet file: what is compressed together
ROWS_PER_PIECE = 1 << 16  # that are read at a time
SPARSEST = 1000  # numbers of runs for each row
LARGEST_UNASKED = 1 << 28  # bytes that a file may stand for, however small it is
MOST_SQUEEZED = 1000  # times its own size, for larger ones: those of runs are squeezed to a hundredth


def write_table(path: Path, columns: Arrays) -> None:
    with replacing(path) as file:
        write_pieces(file, iter([columns]))


def write_pieces(file: IO[bytes], pieces: Iterator[Arrays]) -> None:
    """A table in pieces, all but the last of ROWS_PER_GROUP rows: the file is that of the whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = pa.table(next(pieces))
    with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(pa.table(piece))


def pieces_of(path: Path) -> Iterator[Arrays]:
    """The rows of a table of numbers, some at a time."""
    import pyarrow.parquet as pq

    with _told(path), path.open("rb") as file, pq.ParquetFile(file) as table:
        _check_size(table, path)
        if not table.metadata.num_rows:
            yield check_columns(_plain(table.read()), path)
        for batch in table.iter_batches(ROWS_PER_PIECE):
            yield check_columns(_plain(batch), path)


def read_table(path: Path, columns: list[str] | None = None, words: tuple[str, ...] = ()) -> Arrays:
    """All columns, or some. They hold numbers, but for those that may hold words."""
    import pyarrow.parquet as pq

    # This file: a folder's name says nothing, and need not be UTF-8.
    with _told(path), path.open("rb") as file:
        there = [name for name in words if name in pq.read_schema(file).names]
        with pq.ParquetFile(file, read_dictionary=there) as table:
            _check_size(table, path, words)
            found = _plain(table.read(columns=columns))
    return check_columns(found, path, words)


def _check_size(table: Any, path: Path, words: tuple[str, ...] = ()) -> None:
    """Refuse what a stranger may have written: few bytes can stand for billions of equal rows. Words are kept
    once for all rows that have them."""
    import pyarrow.types as kinds

    for name, kind in zip(table.schema_arrow.names, table.schema_arrow.types, strict=True):
        number = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
        if not number and not (name in words and kinds.is_dictionary(kind)):
            raise StorageError(f"{path} is no table of episodes: its column {shown(name)} has no numbers.")
    size = 8 * table.metadata.num_rows * table.metadata.num_columns
    if size > max(LARGEST_UNASKED, MOST_SQUEEZED * path.stat().st_size):
        rows = f"{table.metadata.num_rows:,} rows of {table.metadata.num_columns:,} columns"
        raise StorageError(f"{path} is no table of episodes: it says that it has {rows}.")


def _plain(table: Any) -> Arrays:
    """As NumPy's arrays."""
    names, options = [*dict.fromkeys(table.schema.names)], {}
    if hasattr(table, "to_struct_array"):  # a batch says when it copies
        options = {"zero_copy_only": False}
    return {name: _array(table.column(name), options) for name in names}


def _array(column: Any, options: dict[str, bool]) -> np.ndarray:
    if not hasattr(column.type, "index_type"):
        return column.to_numpy(**options)
    whole = column.unify_dictionaries().combine_chunks()  # words
    return whole.dictionary.to_numpy(zero_copy_only=False)[whole.indices.to_numpy(zero_copy_only=False)]


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What is no table is a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(
            f"There is no {path.name} in {path.parent}: no run has written results there."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise StorageError(f"{path} cannot be read as Parquet: {reason}.") from error


def check_columns(columns: Arrays, path: Path, words: tuple[str, ...] = ()) -> Arrays:
    """The columns, if they are those of episodes: numbers, and whole ones that say which run and episode."""
    for name in KEYS:
        if name not in columns:
            raise StorageError(f"{path} is not a table of episodes: it has no column {name!r}.")
        # Runs that failed at once have no row; but of so many there would be a sign.
        keys, most = columns[name], SPARSEST * (len(columns[name]) + SPARSEST)
        whole = np.issubdtype(keys.dtype, np.integer)
        if not whole or (len(keys) and not 0 <= keys.min() <= keys.max() < most):
            raise StorageError(f"{path} is not a table of episodes: its column {name!r} does not count them.")
    for name, column in columns.items():
        if column.dtype.kind not in "iufb" and name not in words:
            raise StorageError(
                f"{path} is not a table of episodes: its column {shown(name)} does not hold numbers."
            )
    return columns


def joined(tables: list[Arrays]) -> Arrays:
    """All rows of some tables, sorted by run and episode."""
    common = [name for name in tables[0] if all(name in table for table in tables)]  # older ones have fewer
    columns = {name: np.concatenate([table[name] for table in tables]) for name in common}
    order = np.lexsort((columns["episode"], columns["run"]))
    return {name: column[order] for name, column in columns.items()}


class Frontier:
    """How many episodes of each run are known. The episodes of a run end in their order, so those that are
    told again, after an interruption or a loss, are told from the new ones."""

    def __init__(self) -> None:
        self.ended = np.zeros(0, np.int64)  # by run

    def take(self, rows: Arrays) -> Arrays:
        """The rows that are new. From now on they are known."""
        if not len(rows["run"]):
            return rows
        more = int(rows["run"].max()) + 1 - len(self.ended)
        self.ended = np.pad(self.ended, (0, max(0, more)))
        new = rows["episode"] >= self.ended[rows["run"]]
        np.maximum.at(self.ended, rows["run"][new], rows["episode"][new] + 1)
        return rows if new.all() else {name: column[new] for name, column in rows.items()}
