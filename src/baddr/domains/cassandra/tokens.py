"""The words of a .pomdp file, and its entries: a key word and what follows until the next one. Needs no JAX.

Nothing here keeps more of a file than one entry, and no message holds more of a file than a few words of it.
"""

import difflib
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from baddr.errors import UserError

PREAMBLE = ("discount", "values", "states", "actions", "observations", "start")
TABLES = {  # what the entries of a table are indexed by
    "T": ("action", "state", "state"),
    "O": ("action", "state", "observation"),
    "R": ("action", "state", "state", "observation"),
}
KEYS = frozenset((*PREAMBLE, *TABLES))
ENDS = "E"  # a key word where it is the first word of a line, and before a colon
RESERVED = {*KEYS, "include", "exclude", "uniform", "identity", "reset", "reward", "cost"}
TOKEN = re.compile(r"[:*]|[+-]\s*(?=[0-9.])[^\s:*]*|[^\s:*]+")  # a sign may stand apart from its number
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[0-9]{1,9}")
BLANK = re.compile(r"\s")
NOTHING = re.compile(r"\s*+(?:#.*+\s*+)*+")  # blanks, comments and whole lines of them
NUMERIC = frozenset("0123456789.eE+-")

MOST_BYTES = 2**28  # of a file
MOST_WORDS = 5 * 2**20
MOST_IN_PREAMBLE = 2**17  # words of one of its entries
MOST_ENTRIES = 2**20
LONGEST_WORD = 256  # characters
LONG_LINE = 2**16  # characters: read in parts
AT_ONCE = 2**12  # words of a long line
LONGEST_QUOTE = 40  # characters of a word in a message
LONGEST_SOURCE = 120  # and of a path


def read_text(path: Path) -> str:
    """A file's text, in UTF-8 or else in Latin-1; any line ends."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{source_name(path)} is too large: more than {MOST_BYTES // 2**20} MB.")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {source_name(path)}.") from None
    except OSError as error:
        raise UserError(f"Cannot read {source_name(path)}: {error.strerror}.") from error
    if b"\r" in content:  # before it is decoded, which may take four times as much
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in content:
        raise UserError(f"{source_name(path)} is not a text file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def source_name(source: Path | str) -> str:
    """A path for messages: the end of it, where it is long."""
    source = str(source)
    return source if len(source) <= LONGEST_SOURCE else f"...{source[-LONGEST_SOURCE:]}"


def quoted(word: str) -> str:
    """A word of a file for messages, where it is long without its end."""
    return repr(word if len(word) <= LONGEST_QUOTE else f"{word[:LONGEST_QUOTE]}...")


def hint(word: str, known: tuple[str, ...]) -> str:
    if len(word) > LONGEST_QUOTE:
        return ""
    close = difflib.get_close_matches(word, [name[:LONGEST_QUOTE] for name in known[:1000]], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Token(NamedTuple):
    text: str
    line: int
    source: str

    def error(self, sentence: str) -> UserError:
        return UserError(f"{source_name(self.source)}, line {self.line}: {sentence}.")

    def expected(self, what: str) -> UserError:
        return self.error(f"expected {what}, found {quoted(self.text)}")


class Entry:
    """A key word and the words up to the next one, read from left to right."""

    __slots__ = ("firsts", "lines", "place", "source", "words")

    def __init__(self, words: list[str], line: int, source: str):
        self.words, self.source, self.place = words, source, 1
        self.firsts, self.lines = [0], [line]  # the place of a line's first word, and the line

    def extend(self, words: list[str], line: int) -> None:
        self.firsts.append(len(self.words))
        self.lines.append(line)
        self.words += words

    def token(self, place: int) -> Token:
        line = self.lines[bisect_right(self.firsts, place) - 1]
        return Token(self.words[place], line, self.source)

    @property
    def key(self) -> Token:
        return self.token(0)

    @property
    def left(self) -> int:
        return len(self.words) - self.place

    def next_is(self, *texts: str) -> bool:
        return self.place < len(self.words) and self.words[self.place] in texts

    def take(self, what: str) -> Token:
        if self.place == len(self.words):
            raise self.ends_before(what)
        self.place += 1
        return self.token(self.place - 1)

    def take_colon(self) -> None:
        token = self.take("':'")
        if token.text != ":":
            raise token.expected(f"':' after {quoted(self.words[self.place - 2])}")

    def rest(self) -> list[Token]:
        taken = [self.token(place) for place in range(self.place, len(self.words))]
        self.place = len(self.words)
        return taken

    def ends_before(self, what: str) -> UserError:
        last = self.token(len(self.words) - 1)
        return last.error(
            f"expected {what} after {quoted(last.text)}, but this is where {self.words[0]!r} ends"
        )

    def end(self) -> None:
        if self.place < len(self.words):
            raise self.token(self.place).expected(f"the end of {self.words[0]!r}, or a key word")


def entries(text: str, source: str) -> Iterator[Entry]:
    """The entries of a file, one after another."""
    entry, count = None, 0
    for line, words in _lines(text, source):
        ends = words[0] == ENDS and words[1:2] == [":"] and not (entry and entry.words[-1] == ":")
        for part in _parts(words):
            if part[0] in KEYS or (ends and part[0] == ENDS):
                if entry is not None:
                    yield entry
                entry, count = Entry(part, line, source), count + 1
                if count > MOST_ENTRIES:
                    raise Token(part[0], line, source).error(f"there are more than {MOST_ENTRIES:,} entries")
            elif entry is not None:
                entry.extend(part, line)
                if len(entry.words) > MOST_IN_PREAMBLE and entry.words[0] not in TABLES:
                    raise entry.key.error(f"{entry.words[0]!r} has more than {MOST_IN_PREAMBLE:,} words")
            else:
                known = f"a key word ({', '.join(PREAMBLE)}){hint(part[0], PREAMBLE)}"
                raise Token(part[0], line, source).expected(known)
    if entry is not None:
        yield entry


def _parts(words: list[str]) -> list[list[str]]:
    """The words of a line, in parts that start with a key word, but perhaps the first."""
    if KEYS.isdisjoint(words[1:]):
        return [words]
    places = [i for i, word in enumerate(words) if word in KEYS]
    bounds = sorted({0, *places, len(words)})
    return [words[first:last] for first, last in pairwise(bounds)]


def _lines(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """The words of every line that has some; a long line comes in parts."""
    total, first, line = 0, 0, 1
    while (start := _start(text, first)) < len(text):
        line += text.count("\n", first, start)
        first, end = start, text.find("\n", start)
        end = len(text) if end < 0 else end
        for words in _words_of(text, first, end):
            total += len(words)
            if total > MOST_WORDS:
                raise Token("", line, source).error(f"there are more than {MOST_WORDS:,} words")
            if end - first > LONGEST_WORD and max(map(len, words)) > LONGEST_WORD:
                longest = next(word for word in words if len(word) > LONGEST_WORD)
                raise Token(longest, line, source).expected(f"words of at most {LONGEST_WORD} characters")
            yield line, words
        first = end


def _start(text: str, first: int) -> int:
    """Where the next word starts: there may be millions of empty lines before it."""
    match = NOTHING.match(text, first)
    return match.end() if match else first


def _words_of(text: str, first: int, end: int) -> Iterator[list[str]]:
    """The words of text[first:end] before a comment."""
    comment = text.find("#", first, end)
    end = end if comment < 0 else comment
    if end - first <= LONG_LINE:
        words = TOKEN.findall(text, first, end)
        if words:
            yield _joined(words)
        return
    found = (match.group() for match in TOKEN.finditer(text, first, end))
    while words := list(islice(found, AT_ONCE)):
        yield _joined(words)


def _joined(words: list[str]) -> list[str]:
    """Without blanks between a sign and its number."""
    if not BLANK.search("".join(words)):
        return words
    return ["".join(word.split()) if word[0] in "+-" else word for word in words]


# --- numbers -----------------------------------------------------------------------------------------


def number(token: Token, what: str = "a number") -> float:
    if not NUMBER.fullmatch(token.text):
        raise token.expected(what)
    value = float(token.text)
    if not math.isfinite(value):
        raise token.expected(f"{what} that a float64 can hold")
    return value


def probability(token: Token) -> float:
    p = number(token, "a probability")
    if not 0 <= p <= 1:
        raise token.expected("a probability in [0, 1]")
    return p


def values(entry: Entry, shape: tuple[int, ...], words: tuple[str, ...] = ()) -> Float64[np.ndarray, "..."]:
    """As many numbers as `shape` holds, which end the entry."""
    n, read = math.prod(shape), number if entry.words[0] == "R" else probability
    if entry.left != n or not NUMBER.fullmatch(entry.words[entry.place]):
        raise _wrong_values(entry, n, words)
    numbers = _plain(entry.words[entry.place :])
    if numbers is None or (read is probability and (numbers.min() < 0 or numbers.max() > 1)):
        numbers = np.array([read(token) for token in entry.rest()])  # finds the mistake
    return numbers.reshape(shape)


def _plain(words: list[str]) -> Float64[np.ndarray, " n"] | None:
    """The numbers, where all are such as the format has them."""
    if not NUMERIC.issuperset("".join(words)):
        return None
    try:
        numbers = np.frombuffer(array("d", map(float, words)))
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _wrong_values(entry: Entry, n: int, words: tuple[str, ...]) -> UserError:
    """What to say where there are not `n` numbers: the first token that is none of them, or too few."""
    one, many = ("number", "numbers") if entry.words[0] == "R" else ("probability", "probabilities")
    wanted = f"{n} {one if n == 1 else many}" + "".join(f" or {word!r}" for word in words)
    first, left = entry.place, entry.left
    if not left:
        return entry.ends_before(wanted)
    for place in range(first, first + min(n, left)):
        if not NUMBER.fullmatch(entry.words[place]):
            return entry.token(place).expected(wanted if place == first else f"a {one}")
    if left > n:
        return entry.token(first + n).expected(f"{wanted} and then a key word")
    last = entry.token(first + left - 1)
    return last.error(f"expected {wanted}, found {left}, the last {quoted(last.text)}")
