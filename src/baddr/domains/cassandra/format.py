"""Cassandra's .pomdp files: a finite POMDP as text. Reads the whole format, and writes it. Needs no JAX.

A file is a sequence of entries, each a key word, a colon and what follows until the next key word; line
breaks mean nothing, and `#` starts a comment. Entries of T, O and R that come later overwrite earlier
ones. docs/cassandra.md has the grammar.
"""

import difflib
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from baddr.errors import UserError
from baddr.files import store

TOLERANCE = 1e-5  # of a row's sum
LARGEST_TABLE = 2**27  # numbers: one gigabyte
MOST_NAMES = 2**16
PREAMBLE = ("discount", "values", "states", "actions", "observations", "start")
TABLES = {  # what the entries of a table are indexed by
    "T": ("action", "state", "state"),
    "O": ("action", "state", "observation"),
    "R": ("action", "state", "state", "observation"),
}
RESERVED = {*PREAMBLE, *TABLES, "include", "exclude", "uniform", "identity", "reset", "reward", "cost"}
TOKEN = re.compile(r"[:*]|[+-]\s*(?=[0-9.])[^\s:*]*|[^\s:*]+")  # a sign may stand apart from its number
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[0-9]{1,9}")
NAME = re.compile(r"[^\W\d][^\s:*#]*")

Index = int | slice  # one of them, or `*`: all


@dataclass(frozen=True)
class Header:
    """What a file says before its tables. Where it gives a number of states, their names are 0, 1, ..."""

    states: tuple[str, ...]
    actions: tuple[str, ...]
    observations: tuple[str, ...]
    discount: float


@dataclass(frozen=True, eq=False)
class Model(Header):
    """A finite POMDP: p(s' | s, a), p(o | a, s'), R(s, a, s') and p(s_0), with their names."""

    T: Float64[np.ndarray, "A S S"]
    O: Float64[np.ndarray, "A S Z"]  # rows by action and *next* state
    R: Float64[np.ndarray, "A S S"]
    start: Float64[np.ndarray, " S"]


def read(path: str | Path) -> Model:
    """The model in a .pomdp file."""
    return parse(_text(Path(path)), str(path))


def read_header(path: str | Path) -> Header:
    """The names and the discount of a .pomdp file; its tables are not looked at."""
    entries = _entries(_text(Path(path)), str(path))
    return _preamble(_until_tables(entries), str(path)).header


def write(model: Model, path: str | Path) -> None:
    """The model as a .pomdp file that reads back to the same tables, bit for bit."""
    store.write(Path(path), to_text(model).encode())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error}.") from error


# --- tokens and entries ------------------------------------------------------------------------------


class Token(NamedTuple):
    text: str
    line: int
    source: str

    def error(self, sentence: str) -> UserError:
        return UserError(f"{self.source}, line {self.line}: {sentence}.")

    def expected(self, what: str) -> UserError:
        return self.error(f"expected {what}, found {self.text!r}")


def _tokens(text: str, source: str) -> Iterator[Token]:
    for number, line in enumerate(text.split("\n"), start=1):
        for word in TOKEN.findall(line.partition("#")[0]):
            yield Token("".join(word.split()) if word[0] in "+-" else word, number, source)


class Entry:
    """A key word and the tokens up to the next one, read from left to right."""

    def __init__(self, key: Token):
        self.key, self.tokens, self.place = key, [key], 1

    def next_is(self, *texts: str) -> bool:
        return self.place < len(self.tokens) and self.tokens[self.place].text in texts

    def take(self, what: str) -> Token:
        if self.place == len(self.tokens):
            raise self.ends_before(what)
        self.place += 1
        return self.tokens[self.place - 1]

    def take_colon(self) -> None:
        token = self.take("':'")
        if token.text != ":":
            raise token.expected(f"':' after {self.tokens[self.place - 2].text!r}")

    def rest(self) -> list[Token]:
        taken, self.place = self.tokens[self.place :], len(self.tokens)
        return taken

    def ends_before(self, what: str) -> UserError:
        last = self.tokens[-1]
        return last.error(f"expected {what} after {last.text!r}, but this is where {self.key.text!r} ends")

    def end(self) -> None:
        if self.place < len(self.tokens):
            raise self.tokens[self.place].expected(f"the end of {self.key.text!r}, or a key word")


def _entries(text: str, source: str) -> Iterator[Entry]:
    entry = None
    for token in _tokens(text, source):
        if token.text in PREAMBLE or token.text in TABLES:
            if entry is not None:
                yield entry
            entry = Entry(token)
        elif entry is not None:
            entry.tokens.append(token)
        else:
            raise token.expected(f"a key word ({', '.join(PREAMBLE)}){_hint(token.text, PREAMBLE)}")
    if entry is not None:
        yield entry


def _until_tables(entries: Iterator[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if entry.key.text in TABLES:
            return
        yield entry


def _hint(text: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(text, known[:1000], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


# --- the preamble ------------------------------------------------------------------------------------


class Preamble(NamedTuple):
    header: Header
    costs: bool
    start: Entry | None


def _preamble(entries: Iterator[Entry], source: str) -> Preamble:
    """The entries before the tables, in any order; all but `start` must be there, once."""
    found: dict[str, Entry] = {}
    for entry in entries:
        key = entry.key
        if key.text in found:
            raise key.error(f"{key.text!r} was given before, on line {found[key.text].key.line}")
        found[key.text] = entry
    missing = [f"'{key}:'" for key in PREAMBLE[:-1] if key not in found]
    if missing:
        raise UserError(f"{source}: there is no {', no '.join(missing)} before the first T, O or R.")
    states, actions, observations = (_names(found[key]) for key in ("states", "actions", "observations"))
    header = Header(states, actions, observations, _discount(found["discount"]))
    return Preamble(header, _costs(found["values"]), found.get("start"))


def _discount(entry: Entry) -> float:
    entry.take_colon()
    token = entry.take("a discount in [0, 1]")
    discount = _number(token, "a discount in [0, 1]")
    if not 0 <= discount <= 1:
        raise token.expected("a discount in [0, 1]")
    entry.end()
    return discount


def _costs(entry: Entry) -> bool:
    entry.take_colon()
    token = entry.take("'reward' or 'cost'")
    if token.text not in ("reward", "cost"):
        raise token.expected("'reward' or 'cost'")
    entry.end()
    return token.text == "cost"


def _names(entry: Entry) -> tuple[str, ...]:
    """The names of a list, or 0, 1, ... where there is a number instead."""
    kind = entry.key.text
    entry.take_colon()
    first = entry.take(f"a number of {kind} or their names")
    if first.text[0] in "0123456789":
        if not INTEGER.fullmatch(first.text) or not 1 <= int(first.text) <= MOST_NAMES:
            raise first.expected(f"a number of {kind}, 1 to {MOST_NAMES}, or names that begin with a letter")
        entry.end()
        return tuple(map(str, range(int(first.text))))
    names: dict[str, None] = {}
    for token in (first, *entry.rest()):
        if token.text in RESERVED:
            raise token.error(f"{token.text!r} is a key word and cannot name one of the {kind}")
        if not NAME.fullmatch(token.text):
            raise token.expected(f"a name for one of the {kind}, which begins with a letter")
        if token.text in names:
            raise token.error(f"{token.text!r} is listed twice among the {kind}")
        names[token.text] = None
    return tuple(names)


def _number(token: Token, what: str = "a number") -> float:
    if not NUMBER.fullmatch(token.text):
        raise token.expected(what)
    value = float(token.text)
    if not math.isfinite(value):
        raise token.expected(f"{what} that a float64 can hold")
    return value


def _probability(token: Token) -> float:
    p = _number(token, "a probability")
    if not 0 <= p <= 1:
        raise token.expected("a probability in [0, 1]")
    return p


# --- the tables --------------------------------------------------------------------------------------


class Reward(NamedTuple):
    """One entry of R: its values, and the (s, s', o) that they are for."""

    place: tuple[Index, ...]
    values: Float64[np.ndarray, "..."]


def parse(text: str, source: str = "<text>") -> Model:
    """The model in the text of a .pomdp file; `source` is what error messages call it."""
    entries = list(_entries(text, source))
    first_table = next((i for i, entry in enumerate(entries) if entry.key.text in TABLES), len(entries))
    header, costs, start_entry = _preamble(iter(entries[:first_table]), source)
    for entry in entries[first_table:]:
        if entry.key.text not in TABLES:
            raise entry.key.error(f"{entry.key.text!r} must come before the first T, O or R")
    A, S, Z = len(header.actions), len(header.states), len(header.observations)
    if max(A * S * S, A * S * Z) > LARGEST_TABLE:
        raise UserError(f"{source}: tables for {A} actions, {S} states and {Z} observations are too large.")
    tables = _Tables(header, source, _start(start_entry, header.states))
    for entry in entries[first_table:]:
        tables.add(entry)
    return tables.model(costs)


class _Tables:
    """T, O and R while entries are added to them."""

    def __init__(self, header: Header, source: str, start: Float64[np.ndarray, " S"]):
        self.header, self.source, self.start = header, source, start
        A, S, Z = len(header.actions), len(header.states), len(header.observations)
        self.T, self.O = np.zeros((A, S, S)), np.zeros((A, S, Z))
        self.lines = {"T": np.zeros((A, S), int), "O": np.zeros((A, S), int)}  # the last entry of each row
        self.rewards: list[list[Reward]] = [[] for _ in range(A)]
        names = {"action": header.actions, "state": header.states, "observation": header.observations}
        self.numbers = {kind: _numbered(names[kind]) for kind in names}

    def add(self, entry: Entry) -> None:
        """`KEY: action : ... : ...` and the values for the axes that it does not name, or a key word."""
        key, kinds = entry.key.text, TABLES[entry.key.text]
        index: list[Index] = []
        entry.take_colon()
        for place, kind in enumerate(kinds):
            index.append(_index(entry.take(f"one of the {kind}s or '*'"), kind, self.numbers[kind]))
            if not entry.next_is(":"):
                break
            if place + 1 < len(kinds):
                entry.take_colon()
        if key == "R":
            self.add_rewards(entry, index)
            return
        table = self.T if key == "T" else self.O
        table[tuple(index)] = self.probabilities(entry, len(index), table.shape)
        self.lines[key][tuple(index[:2])] = entry.key.line

    def probabilities(
        self, entry: Entry, given: int, shape: tuple[int, ...]
    ) -> Float64[np.ndarray, "..."] | float:
        """The element, row or matrix of T or O that an entry gives after its first `given` indices."""
        rest = shape[given:]
        words = [(), ("uniform", "reset"), ("uniform", "identity")][len(rest)]
        words = words if entry.key.text == "T" else words[:1]
        if not entry.next_is(*words):
            return _values(entry, rest, words)
        word = entry.take("a key word").text
        entry.end()
        if word == "uniform":
            return 1 / shape[-1]
        return self.start if word == "reset" else np.eye(shape[-1])

    def add_rewards(self, entry: Entry, index: list[Index]) -> None:
        if len(index) == 1:
            raise entry.key.error("R needs an action and a state at least, then numbers")
        S, Z = self.O.shape[1:]
        values = np.asarray(_values(entry, (S, S, Z)[len(index) - 1 :]))
        a = index[0]
        for rewards in self.rewards[a] if isinstance(a, slice) else [self.rewards[a]]:
            rewards.append(Reward(tuple(index[1:]), values))

    def model(self, costs: bool) -> Model:
        self.check_rows("T", self.T, "state")
        self.check_rows("O", self.O, "next state")
        R = self.average_rewards()
        header = self.header
        return Model(
            header.states,
            header.actions,
            header.observations,
            header.discount,
            T=self.T,
            O=self.O,
            R=0 - R if costs else R,
            start=self.start,
        )

    def check_rows(self, key: str, table: Float64[np.ndarray, "A S _"], kind: str) -> None:
        """Every row must be there and sum to one."""
        sums, lines = table.sum(-1), self.lines[key]
        for wrong in (lines == 0, np.abs(sums - 1) > TOLERANCE):
            if not wrong.any():
                continue
            a, s = np.argwhere(wrong)[0].tolist()
            row = f"the row of {key} for action {self.header.actions[a]!r}, {kind} {self.header.states[s]!r}"
            others = f" ({wrong.sum() - 1} more rows are like it)" if wrong.sum() > 1 else ""
            if lines[a, s] == 0:
                raise UserError(f"{self.source}: {row} is missing{others}; every row must sum to 1.")
            token = Token(key, int(lines[a, s]), self.source)
            raise token.error(f"{row} sums to {sums[a, s]:.6g}, not to 1{others}")

    def average_rewards(self) -> Float64[np.ndarray, "A S S"]:
        """R(s, a, s') = sum_o O(o | a, s') R(a, s, s', o)."""
        A, S, Z = self.O.shape
        everything = slice(None)
        by_o = any(len(r.place) < 3 or r.place[2] != everything for rewards in self.rewards for r in rewards)
        if by_o and S * S * Z > LARGEST_TABLE:
            raise UserError(f"{self.source}: rewards for {S} states and {Z} observations are too large.")
        R, averaged = np.zeros((A, S, S)), False
        for a in range(A):
            full = np.zeros((S, S, Z if by_o else 1))
            for place, values in self.rewards[a]:
                full[place] = values
            R[a] = full[..., 0]
            varies = np.any(full != full[..., :1], axis=-1)
            if varies.any():
                p = self.O[a] / self.O[a].sum(-1, keepdims=True)
                R[a] = np.where(varies, np.einsum("jo,ijo->ij", p, full), R[a])
                averaged = True
        if averaged:
            note = "rewards depend on the observation; R(s, a, s') is their average over p(o | a, s')"
            warnings.warn(f"{self.source}: {note}.", stacklevel=2)
        return R


def _values(
    entry: Entry, shape: tuple[int, ...], words: tuple[str, ...] = ()
) -> Float64[np.ndarray, "..."] | float:
    """As many numbers as `shape` holds, which end the entry."""
    n = math.prod(shape)
    read = _number if entry.key.text == "R" else _probability
    tokens = entry.rest()
    if len(tokens) != n or not NUMBER.fullmatch(tokens[0].text):
        raise _wrong_values(entry, tokens, n, words)
    values = [read(token) for token in tokens]
    return np.array(values).reshape(shape) if shape else values[0]


def _wrong_values(entry: Entry, tokens: list[Token], n: int, words: tuple[str, ...]) -> UserError:
    """What to say where there are not `n` numbers: the first token that is none of them, or too few."""
    one, many = ("number", "numbers") if entry.key.text == "R" else ("probability", "probabilities")
    wanted = f"{n} {one if n == 1 else many}" + "".join(f" or {word!r}" for word in words)
    if not tokens:
        return entry.ends_before(wanted)
    if not NUMBER.fullmatch(tokens[0].text):
        return tokens[0].expected(wanted)
    for token in tokens[:n]:
        if not NUMBER.fullmatch(token.text):
            return token.expected(f"a {one}")
    if len(tokens) > n:
        return tokens[n].expected(f"{wanted} and then a key word")
    return tokens[-1].error(f"expected {wanted}, found {len(tokens)}, the last {tokens[-1].text!r}")


def _start(entry: Entry | None, states: tuple[str, ...]) -> Float64[np.ndarray, " S"]:
    """p(s_0): `start:` with probabilities, `uniform` or a state; `start include:`, `exclude:` with states."""
    S = len(states)
    if entry is None:
        return np.full(S, 1 / S)
    if entry.next_is("include", "exclude"):
        return _start_list(entry, states)
    entry.take_colon()
    first = entry.take("probabilities, 'uniform' or a state")
    if first.text == "uniform":
        entry.end()
        return np.full(S, 1 / S)
    is_number = bool(NUMBER.fullmatch(first.text))
    alone = entry.place == len(entry.tokens)
    # One integer is a state, except for the probability 1 of the only state.
    if not is_number or (alone and INTEGER.fullmatch(first.text) and (S, first.text) != (1, "1")):
        entry.end()
        if first.text == "*":
            raise first.expected("a state, probabilities or 'uniform'")
        return np.eye(S)[_index(first, "state", _numbered(states))]
    entry.place -= 1
    p = np.asarray(_values(entry, (S,), ("uniform",))).reshape(S)
    if abs(p.sum() - 1) > TOLERANCE:
        raise entry.key.error(f"the probabilities of 'start' sum to {p.sum():.6g}, not to 1")
    return p


def _start_list(entry: Entry, states: tuple[str, ...]) -> Float64[np.ndarray, " S"]:
    word = entry.take("':'").text
    entry.take_colon()
    listed, numbers = np.zeros(len(states)), _numbered(states)
    for token in (entry.take("states"), *entry.rest()):
        listed[_index(token, "state", numbers)] = 1
    p = listed if word == "include" else 1 - listed
    if not p.any():
        raise entry.key.error("'start exclude' leaves no state to start in")
    return p / p.sum()


def _numbered(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _index(token: Token, kind: str, numbers: dict[str, int]) -> Index:
    """The number of what a token names, or all of them for `*`."""
    if token.text == "*":
        return slice(None)
    if INTEGER.fullmatch(token.text):
        if int(token.text) >= len(numbers):
            raise token.expected(f"the number of one of the {kind}s (0 to {len(numbers) - 1})")
        return int(token.text)
    if token.text not in numbers:
        raise token.expected(f"one of the {kind}s or '*'{_hint(token.text, tuple(numbers))}")
    return numbers[token.text]


# --- writing -----------------------------------------------------------------------------------------


def to_text(model: Model) -> str:
    """The model in Cassandra's format: numbers in full, so that they read back to the same tables."""
    lines = [f"discount: {model.discount!r}", "values: reward"]
    for key in ("states", "actions", "observations"):
        names = getattr(model, key)
        count = names == tuple(map(str, range(len(names))))
        lines.append(f"{key}: {len(names) if count else ' '.join(names)}")
    lines += [f"start: {_row(model.start)}", ""]
    for a, action in enumerate(model.actions):
        lines += _matrix("T", action, model.T[a]) + _matrix("O", action, model.O[a])
        lines += _rewards(action, model.states, model.R[a])
    text = "\n".join(lines) + "\n"
    _check_readable(model, text)
    return text


def _row(p: Float64[np.ndarray, " n"]) -> str:
    return " ".join(repr(float(x)) for x in p)


def _matrix(key: str, action: str, table: Float64[np.ndarray, "S _"]) -> list[str]:
    S, n = table.shape
    if np.array_equal(table, np.full((S, n), 1 / n)):
        return [f"{key}: {action}", "uniform", ""]
    if key == "T" and np.array_equal(table, np.eye(S)):
        return [f"{key}: {action}", "identity", ""]
    return [f"{key}: {action}", *map(_row, table), ""]


def _rewards(action: str, states: tuple[str, ...], R: Float64[np.ndarray, "S S"]) -> list[str]:
    """One line for a state whose reward does not depend on s'; what is not written is 0."""
    lines = []
    for s, row in zip(states, R, strict=True):
        to = [("*", row[0])] if np.all(row == row[0]) else list(zip(states, row, strict=True))
        lines += [f"R: {action} : {s} : {s_next} : * {float(r)!r}" for s_next, r in to if r != 0]
    return [*lines, ""]


def _check_readable(model: Model, text: str) -> None:
    """Names and tables that a file cannot hold are refused before anything is written."""
    again = parse(text, "the model as a file")
    for key in ("states", "actions", "observations"):
        if getattr(again, key) != getattr(model, key):
            raise UserError(f"The names of the {key} cannot be written: a name is one word without '#:*'.")
