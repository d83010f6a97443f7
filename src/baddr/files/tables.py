"""Tables of episodes: columns by name, an entry per run and episode. On disk they are Parquet."""

import io
from pathlib import Path

import numpy as np

from baddr.errors import StorageError, UserError, shown
from baddr.files.writing import write

Arrays = dict[str, np.ndarray]
KEYS = ("run", "episode")
SPARSEST = 1000  # numbers of runs for each row


def write_table(path: Path, columns: Arrays) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    write(path, buffer.getvalue())


def read_table(path: Path, columns: list[str] | None = None, words: tuple[str, ...] = ()) -> Arrays:
    """All columns, or some. They hold numbers, but for those that may hold words."""
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(columns=columns)  # this file: a folder's name says nothing
        names = [*dict.fromkeys(table.column_names)]
        found = {name: table.column(name).to_numpy() for name in names}
    except FileNotFoundError:
        raise UserError(f"There is no {path.name} in {path.parent}: no run has left results there.") from None
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise StorageError(f"{path} cannot be read as Parquet: {reason}.") from error
    return check_columns(found, path, words)


def check_columns(columns: Arrays, path: Path, words: tuple[str, ...] = ()) -> Arrays:
    """The columns, if they are those of episodes: numbers, and whole ones that say which run and episode."""
    for name in KEYS:
        if name not in columns:
            raise StorageError(f"{path} is no table of episodes: it has no column {name!r}.")
        # Runs that failed at once have no row; but of so many there would be a sign.
        keys, most = columns[name], SPARSEST * (len(columns[name]) + SPARSEST)
        whole = np.issubdtype(keys.dtype, np.integer)
        if not whole or (len(keys) and not 0 <= keys.min() <= keys.max() < most):
            raise StorageError(f"{path} is no table of episodes: its column {name!r} does not count them.")
    for name, column in columns.items():
        if column.dtype.kind not in "iufb" and name not in words:
            raise StorageError(f"{path} is no table of episodes: its column {shown(name)} has no numbers.")
    return columns


def joined(tables: list[Arrays]) -> Arrays:
    """All rows of some tables, sorted by run and episode."""
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
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
