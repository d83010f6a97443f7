"""Tables of episodes: columns by name, an entry per run and episode. On disk they are Parquet."""

import io
from pathlib import Path

import numpy as np

from baddr.errors import StorageError, UserError
from baddr.files.writing import write

Arrays = dict[str, np.ndarray]


def write_table(path: Path, columns: Arrays) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    write(path, buffer.getvalue())


def read_table(path: Path, columns: list[str] | None = None) -> Arrays:
    """All columns, or some."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=columns)
    except FileNotFoundError:
        raise UserError(f"There is no {path.name} in {path.parent}: no run has left results there.") from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read as Parquet: {error}.") from error
    return {name: table[name].to_numpy() for name in table.column_names}


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
