"""Tables as rules, of which the last that fits a place holds. Needs no JAX.

A rule gives one value to all places that it fits: each of its indices is a number, or EVERY. However many
rules there are, only the last of equal ones counts, and a table is never made larger than what it holds.
"""

from array import array
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

EVERY = -1  # in place of an index
NEVER = -1  # before the first rule
MOST_PLACES = 2**24  # of a table that hold something
MOST_ROWS, MOST_LAYERS = 2**22, 2**12  # rows of a table, and actions

Ints = Int[np.ndarray, "..."]
Reals = Float64[np.ndarray, "..."]
Kept = tuple[array, array, array]


class TooLarge(Exception):
    """A table holds more than MOST_PLACES."""


class Rules:
    """The rules of one table, in the order in which they were given."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes, self.time, self.many = sizes, 0, 0
        # By which indices are EVERY: place, time, value
        self.kept = defaultdict[tuple[bool, ...], Kept](lambda: (array("q"), array("q"), array("d")))
        self.plain = self.kept[(False,) * len(sizes)]

    def add(self, index: tuple[int, ...], value: float) -> None:
        """One rule, later than all before."""
        self.time += 1
        place = 0
        for i, size in zip(index, self.sizes, strict=True):
            place = place * size + (0 if i == EVERY else i)
        places, times, values = self.kept[tuple(i == EVERY for i in index)]
        places.append(place)
        times.append(self.time)
        values.append(value)

    def add_at(self, place: int, value: float) -> None:
        """A rule for one place."""
        self.time += 1
        places, times, values = self.plain
        places.append(place)
        times.append(self.time)
        values.append(value)

    def add_block(self, index: tuple[int, ...], block: Reals) -> None:
        """Values for all of the last indices: what is 0 is so for all of them, and then come the others."""
        missing = len(self.sizes) - len(index)
        self.add((*index, *[EVERY] * missing), 0.0)
        self.add_many((*index, *np.nonzero(block)), block[np.nonzero(block)])

    def add_many(self, index: tuple[int | Ints, ...], values: Reals) -> None:
        """Rules at the same time; each index is one for all of them, or one for each. A word of a file may
        stand for thousands, so that there is an end to them."""
        self.time, self.many = self.time + 1, self.many + len(values)
        if self.many > MOST_PLACES:
            raise TooLarge
        given = [np.broadcast_to(np.maximum(i, 0), values.shape) for i in index]
        place = np.ravel_multi_index(given, self.sizes)
        every = tuple(isinstance(i, int) and i == EVERY for i in index)
        places, times, found = self.kept[every]
        places.frombytes(np.ascontiguousarray(place, np.int64).tobytes())
        times.frombytes(np.full(len(place), self.time, np.int64).tobytes())
        found.frombytes(np.ascontiguousarray(values, np.float64).tobytes())

    def latest(self) -> dict[tuple[bool, ...], "Latest"]:
        """By which indices are EVERY: the last rule of each place."""
        return {every: latest_of(*map(_as_array, kept)) for every, kept in self.kept.items() if kept[0]}


def _as_array(numbers: array) -> np.ndarray:
    return np.frombuffer(numbers, np.float64 if numbers.typecode == "d" else np.int64)


class Latest(NamedTuple):
    """Rules for different places, in the order of their places."""

    place: Int[np.ndarray, " n"]
    time: Int[np.ndarray, " n"]
    value: Float64[np.ndarray, " n"]

    def at(self, some: slice | Bool[np.ndarray, " n"]) -> "Latest":
        return Latest(self.place[some], self.time[some], self.value[some])


NOTHING = Latest(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def latest_of(place: Ints, time: Ints, value: Reals) -> Latest:
    """The latest of those for the same place."""
    order = np.lexsort((time, place))
    last = np.append(place[order][1:] != place[order][:-1], True)[: len(order)]
    keep = order[last]
    return Latest(place[keep], time[keep], value[keep])


def joined(rules: list[Latest]) -> Latest:
    rules = [r for r in rules if len(r.place)]
    if len(rules) < 2:
        return rules[0] if rules else NOTHING
    return latest_of(*(np.concatenate(parts) for parts in zip(*rules, strict=True)))


def merged(parts: list[Ints]) -> Ints:
    """All places in order, each once. Parts that are in order are merged: `np.unique`, which hashes them,
    takes ten times as long."""
    place = np.concatenate([np.zeros(0, np.int64), *parts])
    place.sort(kind="stable")
    return place[np.append(True, place[1:] != place[:-1])[: len(place)]]


@dataclass(frozen=True, eq=False)
class Layer:
    """The rules of one action over [s, s']: of rows (or everything), of columns, and of single places."""

    shape: tuple[int, int]
    row: tuple[Ints, Reals]  # time and value, by s
    column: Latest
    cell: Latest

    def look_up(self, place: Ints) -> tuple[Ints, Reals]:
        """Time and value of the rule that holds at these places."""
        s, s_next = np.divmod(place, self.shape[1])
        time, value = self.row[0][s], self.row[1][s]
        for rules, key in ((self.column, s_next), (self.cell, place)):
            if not len(rules.place):
                continue
            i = np.minimum(np.searchsorted(rules.place, key), len(rules.place) - 1)
            later = (rules.place[i] == key) & (rules.time[i] > time)
            time, value = np.where(later, rules.time[i], time), np.where(later, rules.value[i], value)
        return time, value

    def columns_that_matter(self) -> Latest:
        """Those that are later than some row."""
        return self.column.at(self.column.time > self.row[0].min())

    def places(self, column: Latest, whole_rows: Bool[np.ndarray, " S"]) -> Ints:
        """All places where a value may differ from its row's, and those of some whole rows."""
        n, m = self.shape
        spread = len(column.place) * n + int(whole_rows.sum()) * m
        if spread + len(self.cell.place) > MOST_PLACES:
            raise TooLarge
        down = (np.arange(n)[:, None] * m + column.place[None]).ravel()
        across = (np.flatnonzero(whole_rows)[:, None] * m + np.arange(m)[None]).ravel()
        return merged([self.cell.place, down, across])

    def touched(self) -> Ints:
        """The time of the last rule that says something of each row; NEVER where none does."""
        time = np.maximum(self.row[0], self.column.time.max(initial=NEVER))
        np.maximum.at(time, self.cell.place // self.shape[1], self.cell.time)
        return time


def layers(latest: dict[tuple[bool, ...], Latest], sizes: tuple[int, int, int]) -> list[Layer]:
    """For every action; what is said of all actions is said of each."""
    A, n, m = sizes
    return [_layer(latest, a, n, m) for a in range(A)]


def _layer(latest: dict[tuple[bool, ...], Latest], a: int, n: int, m: int) -> Layer:
    def of(every_s: bool, every_s_next: bool) -> Latest:
        """The rules of this kind for the action, placed in [s, s']."""
        mine = section(latest.get((False, every_s, every_s_next), NOTHING), a * n * m, (a + 1) * n * m)
        return joined([mine, latest.get((True, every_s, every_s_next), NOTHING)])

    rows, everything, column = of(False, True), of(True, True), of(True, False)
    time, value = np.full(n, NEVER, np.int64), np.zeros(n)
    time[rows.place // m], value[rows.place // m] = rows.time, rows.value
    if len(everything.place):
        later = everything.time[0] > time
        time, value = np.where(later, everything.time[0], time), np.where(later, everything.value[0], value)
    return Layer((n, m), (time, value), column, of(False, False))


def section(rules: Latest, first: int, end: int) -> Latest:
    """Those of the places from `first` to `end`, counted from there."""
    i, j = np.searchsorted(rules.place, [first, end])
    mine = rules.at(slice(i, j))
    return mine._replace(place=mine.place - first)


# --- tables of any number of indices -----------------------------------------------------------------


def entries(table: Rules) -> tuple[Ints, Reals]:
    """The places of a table that hold something other than 0, in order, and what they hold."""
    latest, parts, total = table.latest(), [], 0
    for every, kept in latest.items():
        some = kept.at(kept.value != 0)
        spread = int(np.prod([n for n, each in zip(table.sizes, every, strict=True) if each]))
        total += len(some.place) * spread
        if total > MOST_PLACES:
            raise TooLarge
        parts.append(_spread(some.place, every, table.sizes))
    place = merged(parts)
    time, value = np.full(len(place), NEVER, np.int64), np.zeros(len(place))
    index = np.unravel_index(place, table.sizes)
    for every, kept in latest.items():
        fixed = [i * (not each) for i, each in zip(index, every, strict=True)]
        key = np.ravel_multi_index(fixed, table.sizes)
        i = np.minimum(np.searchsorted(kept.place, key), len(kept.place) - 1)
        later = (kept.place[i] == key) & (kept.time[i] > time)
        time, value = np.where(later, kept.time[i], time), np.where(later, kept.value[i], value)
    return place[value != 0], value[value != 0]


def _spread(place: Ints, every: tuple[bool, ...], sizes: tuple[int, ...]) -> Ints:
    """The places that rules fit."""
    stride = 1
    for n, each in zip(reversed(sizes), reversed(every), strict=True):
        if each:
            place = (place[:, None] + stride * np.arange(n)[None]).ravel()
        stride *= n
    return place
