"""What a .pomdp file says before its tables: names, the discount and where it starts. Needs no JAX."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from baddr.domains.cassandra.rules import EVERY
from baddr.domains.cassandra.tokens import (
    INTEGER,
    NUMBER,
    PREAMBLE,
    RESERVED,
    Entry,
    Token,
    hint,
    number,
    quoted,
    source_name,
    values,
)
from baddr.errors import UserError

TOLERANCE = 1.0001e-5  # of a row's sum: three times .33333 is off by 1e-5, and a little in float64
MOST_NAMES = 2**16
NAME = re.compile(r"[^\s:*#\d][^\s:*#]*")  # other digits than ours begin none, either


@dataclass(frozen=True)
class Header:
    """What a file says before its tables. Where it gives a number of states, their names are 0, 1, ..."""

    states: tuple[str, ...]
    actions: tuple[str, ...]
    observations: tuple[str, ...]
    discount: float


class Preamble(NamedTuple):
    header: Header
    costs: bool
    start: Entry | None


def preamble(entries: Iterable[Entry], source: str) -> Preamble:
    """The entries before the tables, in any order; all but `start` must be there, once."""
    found: dict[str, Entry] = {}
    for entry in entries:
        key = entry.key
        if key.text in found:
            raise key.error(f"{key.text!r} was given before, on line {found[key.text].key.line}")
        found[key.text] = entry
    missing = [f"'{key}:'" for key in PREAMBLE[:-1] if key not in found]
    if missing:
        name = source_name(source)
        raise UserError(f"{name}: there is no {', no '.join(missing)} before the first T, O or R.")
    states, actions, observations = (_names(found[key]) for key in ("states", "actions", "observations"))
    header = Header(states, actions, observations, _discount(found["discount"]))
    return Preamble(header, _costs(found["values"]), found.get("start"))


def _discount(entry: Entry) -> float:
    entry.take_colon()
    token = entry.take("a discount in [0, 1]")
    discount = number(token, "a discount in [0, 1]")
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
    """The names of a list, or 0, 1, ... where there is a number instead. All names may be numbers, or such
    as start with a digit."""
    kind = entry.words[0]
    entry.take_colon()
    first = entry.take(f"a number of {kind} or their names")
    digits = all(word[0] in "0123456789" for word in entry.words[2 : 2 + MOST_NAMES])
    if first.text[0] in "0123456789" and not (digits and entry.left):
        if not INTEGER.fullmatch(first.text) or not 1 <= int(first.text) <= MOST_NAMES:
            raise first.expected(f"a number of {kind}, 1 to {MOST_NAMES}, or names that begin with a letter")
        entry.end()
        return tuple(map(str, range(int(first.text))))
    if entry.left >= MOST_NAMES:
        raise first.error(f"there are more than {MOST_NAMES} {kind}")
    names: dict[str, None] = {}
    for token in (first, *entry.rest()):
        if token.text in RESERVED:
            raise token.error(f"{token.text!r} is a key word and cannot name one of the {kind}")
        if not digits and not NAME.fullmatch(token.text):
            raise token.expected(f"a name for one of the {kind}, which begins with a letter")
        if token.text in names:
            raise token.error(f"{quoted(token.text)} is listed twice among the {kind}")
        names[token.text] = None
    return tuple(names)


# --- what names stand for ----------------------------------------------------------------------------


class Numbers:
    """What the words of a file stand for: names, and numbers where no name is like them."""

    def __init__(self, kind: str, names: tuple[str, ...]):
        self.kind, self.names = kind, names
        self.of = {str(i): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
        self.of["*"] = EVERY

    def index(self, token: Token) -> int:
        """The number of what a token names, or EVERY for `*`."""
        found = self.of.get(token.text)
        if found is not None:
            return found
        if INTEGER.fullmatch(token.text):
            if int(token.text) < len(self.names):  # 007
                return int(token.text)
            raise token.expected(f"the number of one of the {self.kind}s (0 to {len(self.names) - 1})")
        raise token.expected(f"one of the {self.kind}s or '*'{hint(token.text, self.names)}")


def start_of(entry: Entry | None, states: Numbers) -> Float64[np.ndarray, " S"]:
    """p(s_0): `start:` with probabilities, `uniform` or states; `start include:`, `exclude:` with states."""
    S = len(states.names)
    if entry is None:
        return np.full(S, 1 / S)
    if entry.next_is("include", "exclude"):
        word = entry.take("':'").text
        entry.take_colon()
        return uniform_over(entry, states, word)
    entry.take_colon()
    first = entry.take("probabilities, 'uniform' or a state")
    if first.text == "uniform":
        entry.end()
        return np.full(S, 1 / S)
    if first.text == "*":
        raise first.expected("a state, probabilities or 'uniform'")
    entry.place -= 1
    if _lists_states(entry.words[entry.place :], states):
        return uniform_over(entry, states)
    p = values(entry, (S,), ("uniform",))
    if abs(p.sum() - 1) > TOLERANCE:
        raise entry.key.error(f"the probabilities of 'start' sum to {p.sum():.6g}, not to 1")
    return p


def _lists_states(words: list[str], states: Numbers) -> bool:
    """Integers are states, but where there is one for every state: except 0 for the only one."""
    S = len(states.names)
    if not all(map(INTEGER.fullmatch, words)):
        return not NUMBER.fullmatch(words[0])
    return len(words) != S or (S == 1 and words[0] == "0")


def uniform_over(entry: Entry, states: Numbers, word: str = "include") -> Float64[np.ndarray, " S"]:
    p = np.zeros(len(states.names))
    mark(p, entry, states)
    p = p if word == "include" else 1 - p
    if not p.any():
        raise entry.key.error("'start exclude' leaves no state to start in")
    return p / p.sum()


def mark(found: np.ndarray, entry: Entry, states: Numbers) -> None:
    """1 for the states that are listed."""
    entry.take("states")
    entry.place -= 1
    for token in entry.rest():
        i = states.index(token)
        found[slice(None) if i == EVERY else i] = 1
