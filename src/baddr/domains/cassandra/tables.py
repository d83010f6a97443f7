"""The tables of a .pomdp file, from its entries. Needs no JAX."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy.sparse import csr_array

from baddr.domains.cassandra.header import TOLERANCE, Header, Numbers, Preamble, mark, start_of
from baddr.domains.cassandra.rules import (
    EVERY,
    MOST_LAYERS,
    MOST_PLACES,
    MOST_ROWS,
    Latest,
    Layer,
    Rules,
    TooLarge,
    joined,
    latest_of,
    layers,
    merged,
    section,
)
from baddr.domains.cassandra.tokens import ENDS, TABLES, Entry, Token, quoted, source_name, values
from baddr.errors import UserError
from baddr.solve.model import Sparse

PLAIN = {"T": 8, "O": 8, "R": 10}  # words of an entry of one number


@dataclass(frozen=True, eq=False)
class Rewards:
    """R(s, a, s'): a number for each (a, s), and for some s' another one."""

    rows: Float64[np.ndarray, "A S"]
    others: tuple[Sparse, ...]  # by action: [s, s'], of which a zero that is stored is a reward of 0

    def dense(self) -> Float64[np.ndarray, "A S S"]:
        R = np.repeat(self.rows[:, :, None], self.rows.shape[1], axis=2)
        for a, other in enumerate(self.others):
            entries = other.tocoo()
            R[a, entries.row, entries.col] = entries.data
        return R

    def range(self) -> tuple[float, float]:
        """The least and the largest."""
        found = [self.rows.ravel(), *(other.data for other in self.others)]
        return min(float(x.min()) for x in found if len(x)), max(float(x.max()) for x in found if len(x))

    def expected(self, T: tuple[Sparse, ...]) -> Float64[np.ndarray, "A S"]:
        """R(s, a) = sum_s' p(s' | s, a) R(s, a, s')."""
        total = np.stack([T[a].sum(axis=1) * row for a, row in enumerate(self.rows)])
        for a, other in enumerate(self.others):
            entries = other.tocoo()
            more = csr_array(
                (entries.data - self.rows[a][entries.row], (entries.row, entries.col)), shape=other.shape
            )
            total[a] += T[a].multiply(more).sum(axis=1)
        return total


@dataclass(frozen=True, eq=False)
class SparseTables(Header):
    """A finite POMDP as a file has it, with what it does not hold left out."""

    T: tuple[Sparse, ...]  # by action: [s, s']
    O: tuple[Sparse, ...]  # by action: [s', o]
    R: Rewards
    start: Float64[np.ndarray, " S"]
    ends: Bool[np.ndarray, " S"] | None = None  # the states that end an episode

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.actions), len(self.states), len(self.observations)


def model_of(found: Preamble, entries: Iterable[Entry], source: str) -> SparseTables:
    """The tables that the entries after the preamble make."""
    tables = _Tables(found, source)
    try:
        if tables.sizes[0] > MOST_LAYERS or tables.sizes[0] * tables.sizes[1] > MOST_ROWS:
            raise TooLarge
        for entry in entries:
            tables.add(entry)
        return tables.model()
    except TooLarge:
        A, S, Z = tables.sizes
        name, sizes = source_name(source), f"{A} actions, {S} states and {Z} observations"
        raise UserError(f"{name}: tables for {sizes} are too large.") from None


class _Tables:
    """T, O and R while entries are added to them."""

    def __init__(self, found: Preamble, source: str):
        self.header, self.costs, self.source = found.header, found.costs, source
        header = found.header
        names = {"action": header.actions, "state": header.states, "observation": header.observations}
        self.numbers = {kind: Numbers(kind, names[kind]) for kind in names}
        self.sizes = A, S, Z = len(header.actions), len(header.states), len(header.observations)
        self.start = start_of(found.start, self.numbers["state"])
        self.ends = np.zeros(S, bool)
        self.rules = {"T": Rules((A, S, S)), "O": Rules((A, S, Z)), "R": Rules((A, S, S, Z))}
        self.places = {key: tuple(self.numbers[kind].of for kind in kinds) for key, kinds in TABLES.items()}
        self.lines: dict[str, list[tuple[int, int]]] = {"T": [], "O": []}  # the time of an entry, its line

    def add(self, entry: Entry) -> None:
        """`KEY: action : ... : ...` and the values for the axes that it does not name, or a key word."""
        key = entry.words[0]
        if key == ENDS:
            self.add_ends(entry)
            return
        if key not in TABLES:
            raise entry.key.error(f"{key!r} must come before the first T, O or R")
        if key != "R":
            self.lines[key].append((self.rules[key].time + 1, entry.lines[0]))
        words = entry.words
        if len(words) == PLAIN[key] + 1 and words[-2] == ":":
            words = [*words[:-2], words[-1]]
        if len(words) == PLAIN[key] and self.add_plain(key, words):
            return
        index = self.index(entry)
        if key == "R" and len(index) == 1:
            raise entry.key.error("R needs an action and a state at least, then numbers")
        self.add_values(entry, tuple(index))

    def add_plain(self, key: str, words: list[str]) -> bool:
        """An entry of one number, all of whose indices are given. False where it is something else."""
        _, S, n, *Z = self.rules[key].sizes
        of_a, of_s, of_n, *of_o = self.places[key]
        try:
            a, s, other, value = of_a[words[2]], of_s[words[4]], of_n[words[6]], float(words[-1])
            o = of_o[0][words[8]] if of_o else 0
        except (KeyError, ValueError):
            return False
        if not (words[1] == words[3] == words[5] == ":" == (words[7] if of_o else ":")):
            return False
        if not (0 <= value <= 1 or (of_o and abs(value) < np.inf)) or "_" in words[-1]:
            return False
        if min(a, s, other, o) < 0:
            self.rules[key].add((a, s, other, o) if of_o else (a, s, other), value)
        else:
            place = (a * S + s) * n + other
            self.rules[key].add_at(place * Z[0] + o if of_o else place, value)
        return True

    def index(self, entry: Entry) -> list[int]:
        """The indices of an entry; a colon may stand before its number, too."""
        index: list[int] = []
        kinds = TABLES[entry.words[0]]
        entry.take_colon()
        for place, kind in enumerate(kinds):
            index.append(self.numbers[kind].index(entry.take(f"one of the {kind}s or '*'")))
            if not entry.next_is(":"):
                break
            if place + 1 < len(kinds):
                entry.take_colon()
            elif entry.left == 2:
                entry.take_colon()
        return index

    def add_values(self, entry: Entry, index: tuple[int, ...]) -> None:
        """The element, row or matrix that an entry gives after its indices."""
        key = entry.words[0]
        table = self.rules[key]
        rest = table.sizes[len(index) :]
        every = (*index, *[EVERY] * len(rest))
        words = [(), ("uniform", "reset"), ("uniform", "identity"), ()][len(rest)]
        words = {"T": words, "O": words[:1], "R": ()}[key]
        if not entry.next_is(*words):
            found = values(entry, rest, words)
            table.add_block(index, found) if rest else table.add(every, float(found))
            return
        word = entry.take("a key word").text
        entry.end()
        if word == "uniform":
            table.add(every, 1 / table.sizes[-1])
        elif word == "reset":
            table.add_block(index, self.start)
        else:
            table.add(every, 0.0)
            diagonal = np.arange(rest[0])
            table.add_many((*index, diagonal, diagonal), np.ones(rest[0]))

    def add_ends(self, entry: Entry) -> None:
        entry.take_colon()
        mark(self.ends, entry, self.numbers["state"])

    # --- what was added, as tables

    def model(self) -> SparseTables:
        A, S, Z = self.sizes
        layers_T = layers(self.rules["T"].latest(), (A, S, S))
        layers_O = layers(self.rules["O"].latest(), (A, S, Z))
        tables = sparse([*layers_T, *layers_O])
        T = self.checked("T", layers_T, tables[:A], "state")
        O = self.checked("O", layers_O, tables[A:], "next state")
        R = self.rewards(O)
        if self.costs:
            R = Rewards(0 - R.rows, tuple(0 - other for other in R.others))
        names = self.header.states, self.header.actions, self.header.observations
        ends = self.ends if self.ends.any() else None
        return SparseTables(*names, self.header.discount, T=T, O=O, R=R, start=self.start, ends=ends)

    def checked(
        self, key: str, by_action: list[Layer], tables: list[Sparse], kind: str
    ) -> tuple[Sparse, ...]:
        """Every row must be there and sum to one, but for states that end an episode: they may be missing."""
        touched = np.stack([layer.touched() for layer in by_action])
        for a in range(len(tables)):
            left_out = np.flatnonzero((touched[a] < 0) & self.ends)
            if len(left_out):
                tables[a] = filled(key, tables[a], left_out)
                touched[a, left_out] = 0
        sums = np.stack([table.sum(axis=1) for table in tables])
        for wrong in (touched < 0, np.abs(sums - 1) > TOLERANCE):
            if not wrong.any():
                continue
            a, s = np.argwhere(wrong)[0].tolist()
            action, state = quoted(self.header.actions[a]), quoted(self.header.states[s])
            row = f"the row of {key} for action {action}, {kind} {state}"
            others = like_it(int(wrong.sum()) - 1)
            if touched[a, s] < 0:
                name = source_name(self.source)
                raise UserError(f"{name}: {row} is missing{others}; every row must sum to 1.")
            line = next(line for time, line in reversed(self.lines[key]) if time <= touched[a, s])
            token = Token(key, line, self.source)
            raise token.error(f"{row} sums to {sums[a, s]:.6g}, not to 1{others}")
        return tuple(tables)

    def rewards(self, O: tuple[Sparse, ...]) -> Rewards:
        """R(s, a, s') = sum_o O(o | a, s') R(a, s, s', o)."""
        A, S, Z = self.sizes
        latest = self.rules["R"].latest()
        plain = {every[:3]: _without_o(kept, Z) for every, kept in latest.items() if every[3]}
        by_o = {every[:3]: kept for every, kept in latest.items() if not every[3]}
        rows, others, averaged, total, total_by_o = np.zeros((A, S)), [], False, 0, 0
        for a, layer in enumerate(layers(plain, (A, S, S))):
            place = layer.places(layer.columns_that_matter(), np.zeros(S, bool))
            value = layer.look_up(place)[1]
            if by_o:
                given = _of_action(by_o, a, S, Z)
                total_by_o = counted(total_by_o, given.place)
                place, value, varies = _averaged(layer, place, value, O[a], given)
                averaged |= varies
            total, rows[a] = counted(total, place), layer.row[1]
            differs = value != rows[a][place // S]
            others.append(_table(place[differs], value[differs], (S, S)))
        if averaged:
            note = "rewards depend on the observation; R(s, a, s') is their average over p(o | a, s')"
            warnings.warn(f"{source_name(self.source)}: {note}.", stacklevel=2)
        return Rewards(rows, tuple(others))


def sparse(by_action: list[Layer]) -> list[Sparse]:
    """The table of each action, without its zeros."""
    found, total = [], 0
    for layer in by_action:
        column = layer.columns_that_matter()
        if not len(layer.cell.place) and not layer.row[1].any():
            column = column.at(column.value != 0)
        place = layer.places(column, layer.row[1] != 0)
        total = counted(total, place)
        value = layer.look_up(place)[1]
        found.append(_table(place[value != 0], value[value != 0], layer.shape))
    return found


def like_it(others: int) -> str:
    """Of a row that is wrong: how many more are."""
    rows = "1 more row is" if others == 1 else f"{others} more rows are"
    return f" ({rows} like it)" if others else ""


def counted(total: int, place: Int[np.ndarray, " n"]) -> int:
    """How many places were looked at so far: those of all actions together must not be too many, also where
    they turn out to hold nothing."""
    if total + len(place) > MOST_PLACES:
        raise TooLarge
    return total + len(place)


def filled(key: str, table: Sparse, rows: Int[np.ndarray, " n"]) -> Sparse:
    """With these rows, which are empty: the state stays as it is, and any observation is as likely."""
    m = table.shape[1]
    if key == "T":
        return csr_array(table + csr_array((np.ones(len(rows)), (rows, rows)), shape=table.shape))
    columns = np.tile(np.arange(m), len(rows))
    more = csr_array((np.full(len(columns), 1 / m), (np.repeat(rows, m), columns)), shape=table.shape)
    return csr_array(table + more)


def _table(place: Int[np.ndarray, " n"], value: Float64[np.ndarray, " n"], shape: tuple[int, int]) -> Sparse:
    """Entries in the order of their places; zeros are kept."""
    row, column = np.divmod(place, shape[1])
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=shape[0]))])
    return csr_array((value, column.astype(np.int32), starts.astype(np.int32)), shape=shape)


def _without_o(kept: Latest, Z: int) -> Latest:
    return kept._replace(place=kept.place // Z)


# --- rewards that depend on the observation ----------------------------------------------------------


def _of_action(by_o: dict[tuple[bool, ...], Latest], a: int, S: int, Z: int) -> Latest:
    """The rules with an o for this action, for every single (s, s', o)."""
    parts = []
    for (every_a, every_s, every_s_next), kept in by_o.items():
        mine = kept if every_a else section(kept, a * S * S * Z, (a + 1) * S * S * Z)
        s, rest = np.divmod(mine.place, S * Z)
        s_next, o = np.divmod(rest, Z)
        spread = (S if every_s else 1) * (S if every_s_next else 1)
        if len(mine.place) * spread > MOST_PLACES:
            raise TooLarge
        s = s[:, None, None] if not every_s else np.arange(S)[None, :, None]
        s_next = s_next[:, None, None] if not every_s_next else np.arange(S)[None, None, :]
        place = (s * S + s_next) * Z + o[:, None, None]
        time, value = (np.broadcast_to(x[:, None, None], place.shape).ravel() for x in mine[1:])
        parts.append(latest_of(place.ravel(), time, value))
    return joined(parts)


def _averaged(
    layer: Layer, place: Int[np.ndarray, " n"], value: Float64[np.ndarray, " n"], O: Sparse, by_o: Latest
) -> tuple[Int[np.ndarray, " m"], Float64[np.ndarray, " m"], bool]:
    """The places of [s, s'] with their average rewards, and whether anything had to be averaged."""
    S, Z = layer.shape[1], O.shape[1]
    cell, o = np.divmod(by_o.place, Z)
    time, plain = layer.look_up(cell)
    r = np.where(by_o.time > time, by_o.value, plain)
    cells, which, count = np.unique(cell, return_inverse=True, return_counts=True)
    plain = layer.look_up(cells)[1]
    low, high = np.full(len(cells), np.inf), np.full(len(cells), -np.inf)
    np.minimum.at(low, which, r)
    np.maximum.at(high, which, r)
    some = count < Z
    low, high = np.where(some, np.minimum(low, plain), low), np.where(some, np.maximum(high, plain), high)
    p = np.asarray(O[cell % S, o]).ravel() / O.sum(axis=1)[cell % S]
    left = np.where(some, 1 - np.bincount(which, p, len(cells)), 0)
    mean = np.bincount(which, p * r, len(cells)) + np.maximum(left, 0) * plain
    found = np.where(low == high, low, mean)
    every = merged([place, cells])
    values = np.zeros(len(every))
    values[np.searchsorted(every, place)] = value
    values[np.searchsorted(every, cells)] = found
    return every, values, bool(np.any(low != high))
