"""Cassandra's .pomdp files: a finite POMDP as text. Reads the whole format, and writes it. Needs no JAX.

A file is a sequence of entries, each a key word, a colon and what follows until the next key word; line
breaks mean nothing, and `#` starts a comment. Entries of T, O and R that come later overwrite earlier
ones. docs/cassandra.md has the grammar.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64
from scipy.sparse import csr_array

from baddr.domains.cassandra.header import Header, preamble
from baddr.domains.cassandra.pomdpx import read_pomdpx, read_pomdpx_header
from baddr.domains.cassandra.tables import Rewards, SparseTables, model_of
from baddr.domains.cassandra.tokens import PREAMBLE, RESERVED, Entry, entries, read_text
from baddr.errors import UserError
from baddr.files import store

__all__ = [
    "RESERVED",
    "Header",
    "Model",
    "SparseTables",
    "parse",
    "parse_sparse",
    "read",
    "read_header",
    "read_sparse",
    "to_text",
    "write",
]

FIRST_BYTES = 2**12  # of a file, which say whether it is XML
BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # marks of an encoding, and blanks
LARGEST_TABLE = 2**25  # numbers: a quarter of a gigabyte


@dataclass(frozen=True, eq=False)
class Model(Header):
    """A finite POMDP: p(s' | s, a), p(o | a, s'), R(s, a, s') and p(s_0), with their names."""

    T: Float64[np.ndarray, "A S S"]
    O: Float64[np.ndarray, "A S Z"]  # rows by action and *next* state
    R: Float64[np.ndarray, "A S S"]
    start: Float64[np.ndarray, " S"]
    ends: Bool[np.ndarray, " S"] | None = None  # the states that end an episode

    def sparse(self) -> SparseTables:
        """With its zeros left out; of a row's rewards the most frequent one is its own."""
        rows = lambda tables: tuple(csr_array(table) for table in tables)
        names = self.states, self.actions, self.observations
        R = _sparse_rewards(self.R)
        return SparseTables(
            *names, self.discount, T=rows(self.T), O=rows(self.O), R=R, start=self.start, ends=self.ends
        )


def read(path: str | Path) -> Model | SparseTables:
    """The model in a .pomdp or .pomdpx file; as sparse tables where others would be too large."""
    model = read_sparse(path)
    A, S, Z = model.sizes
    return model if max(A * S * S, A * S * Z) > LARGEST_TABLE else dense(model)


def read_sparse(path: str | Path) -> SparseTables:
    """The model in a .pomdp or .pomdpx file, as sparse tables."""
    if is_pomdpx(path):
        return read_pomdpx(path)
    return parse_sparse(read_text(Path(path)), str(path))


def is_pomdpx(path: str | Path) -> bool:
    """By the content: XML starts with `<`, and no other file does. What cannot be read is told later."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(FIRST_BYTES).lstrip(BEFORE_XML).startswith(b"<")
    return False


def read_header(path: str | Path) -> Header:
    """The names and the discount of a file; its tables are not looked at."""
    if is_pomdpx(path):
        return read_pomdpx_header(path)
    found = entries(read_text(Path(path)), str(path))
    return preamble(_until_tables(found), str(path)).header


def write(model: Model | SparseTables, path: str | Path) -> None:
    """The model as a .pomdp file that reads back to the same tables, bit for bit."""
    store.write(Path(path), to_text(model).encode())


def parse(text: str, source: str = "<text>") -> Model:
    """The model in the text of a .pomdp file; `source` is what error messages call it."""
    return dense(parse_sparse(text, source), source)


def parse_sparse(text: str, source: str = "<text>") -> SparseTables:
    """The same, as sparse tables."""
    found = entries(text, source)
    first, rest = _split(found)
    return model_of(preamble(first, source), rest, source)


def dense(model: SparseTables, source: str = "This model") -> Model:
    """All numbers of the tables, where they are not too many."""
    A, S, Z = model.sizes
    if max(A * S * S, A * S * Z) > LARGEST_TABLE:
        sizes = f"{A} actions, {S} states and {Z} observations"
        raise UserError(f"{source}: tables for {sizes} are too large.")
    tables = lambda found: np.stack([table.toarray() for table in found])
    names = model.states, model.actions, model.observations
    T, O, R = tables(model.T), tables(model.O), model.R.dense()
    return Model(*names, model.discount, T=T, O=O, R=R, start=model.start, ends=model.ends)


def _split(found: Iterator[Entry]) -> tuple[list[Entry], Iterator[Entry]]:
    """The preamble's entries, and the others."""
    first, others = [], []
    for entry in found:
        if entry.words[0] in PREAMBLE:
            first.append(entry)
        else:
            others.append(entry)
            if entry.words[0] != "E":
                break
    return first, itertools.chain(others, found)


def _until_tables(found: Iterator[Entry]) -> Iterator[Entry]:
    return (entry for entry in _split(found)[0])


def _sparse_rewards(R: Float64[np.ndarray, "A S S"]) -> Rewards:
    rows = np.zeros(R.shape[:2])
    for index in np.ndindex(*rows.shape):
        found, count = np.unique(R[index], return_counts=True)
        rows[index] = found[np.argmax(count)]
    others = []
    for a, own in enumerate(rows):
        s, s_next = np.nonzero(R[a] != own[:, None])
        starts = np.concatenate([[0], np.cumsum(np.bincount(s, minlength=len(own)))])
        others.append(csr_array((R[a, s, s_next], s_next, starts), shape=R.shape[1:]))
    return Rewards(rows, tuple(others))


# --- writing -----------------------------------------------------------------------------------------


def to_text(model: Model | SparseTables) -> str:
    """The model in Cassandra's format: numbers in full, so that they read back to the same tables."""
    model = model.sparse() if isinstance(model, Model) else model
    lines = [f"discount: {model.discount!r}", "values: reward"]
    for key in ("states", "actions", "observations"):
        names = getattr(model, key)
        count = names == tuple(map(str, range(len(names))))
        lines.append(f"{key}: {len(names) if count else ' '.join(names)}")
    lines += [f"start: {_row(model.start)}"]
    if model.ends is not None:
        lines.append(f"E: {' '.join(str(s) for s in np.flatnonzero(model.ends))}")
    lines.append("")
    for key, tables in (("T", model.T), ("O", model.O)):
        lines += _tables(key, model, tables)
    lines += _rewards(model)
    text = "\n".join(lines) + "\n"
    _check_readable(model, text)
    return text


def _row(p: Float64[np.ndarray, " n"]) -> str:
    return " ".join(_number(x) for x in p)


def _number(x: float) -> str:
    return "0" if x == 0 else repr(float(x))


def _tables(key: str, model: SparseTables, tables) -> list[str]:
    """One table for all actions where they share it."""
    if len(tables) > 1 and all(_same(table, tables[0]) for table in tables[1:]):
        return _matrix(key, "*", model, tables[0])
    found = (_matrix(key, name, model, table) for name, table in zip(model.actions, tables, strict=True))
    return list(itertools.chain.from_iterable(found))


def _same(table, other) -> bool:
    return table.nnz == other.nnz and (table != other).nnz == 0


def _matrix(key: str, action: str, model: SparseTables, table) -> list[str]:
    S, n = table.shape
    if table.nnz == S * n and np.all(table.data == 1 / n):
        return [f"{key}: {action}", "uniform", ""]
    diagonal = key == "T" and table.nnz == S and np.all(table.data == 1)
    if diagonal and np.array_equal(table.indices, np.arange(S)):
        return [f"{key}: {action}", "identity", ""]
    if 4 * table.nnz > S * n:
        return [f"{key}: {action}", *map(_row, table.toarray()), ""]
    names = model.states if key == "T" else model.observations
    entries = table.tocoo()
    numbers = zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True)
    start = f"{key}: {action} : "
    lines = [f"{start}{model.states[s]} : {names[other]} {_number(p)}" for s, other, p in numbers]
    empty = np.flatnonzero(np.diff(table.indptr) == 0)  # refused when it is read again
    return [*lines, *(f"{start}{model.states[s]} : 0 0" for s in empty), ""]


def _rewards(model: SparseTables) -> list[str]:
    """From what holds most often to its exceptions; what is not written is 0."""
    lines = []
    for action, own, others in zip(model.actions, model.R.rows, model.R.others, strict=True):
        found, count = np.unique(own, return_counts=True)
        most = found[np.argmax(count)]
        lines += [f"R: {action} : * : * : * {_number(most)}"] if most != 0 else []
        lines += [
            f"R: {action} : {model.states[s]} : * : * {_number(own[s])}" for s in np.flatnonzero(own != most)
        ]
        entries = others.tocoo()
        numbers = zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True)
        start = f"R: {action} : "
        lines += [
            f"{start}{model.states[s]} : {model.states[s_next]} : * {_number(r)}" for s, s_next, r in numbers
        ]
    return lines


def _check_readable(model: SparseTables, text: str) -> None:
    """Names and tables that a file cannot hold are refused before anything is written."""
    again = parse_sparse(text, "the model as a file")
    for key in ("states", "actions", "observations"):
        if getattr(again, key) != getattr(model, key):
            raise UserError(f"The names of the {key} cannot be written: a name is one word without '#:*'.")
