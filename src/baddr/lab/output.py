"""What a terminal is shown: names and files may hold characters that it would obey. Needs no JAX."""

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import IO, Any

LONGEST = 500  # characters of an error or a warning
# Control characters, halves of characters, and what turns the direction of writing round.
OBEYED = ("Cc", "Cs", "Cf")
LEFT_ALONE = "\n\t\u200d\u00ad"


def visible(text: str, lines: bool = True) -> str:
    """The text with control characters as escapes: \\x1b. Line ends stay, where there may be `lines`."""
    if text.isascii() and text.isprintable():
        return text
    harmless = LEFT_ALONE if lines else LEFT_ALONE[1:]
    return "".join(c if c in harmless or unicodedata.category(c) not in OBEYED else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def in_line(path: object) -> str:
    """A path as a part of a printed line."""
    return visible(str(path), lines=False)


def sentence(text: object) -> str:
    """An error or a warning: in one line, and not too long."""
    said = visible(str(text), lines=False)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 160]} ... {said[-150:]}"


class Visible:
    """A stream that is shown visible text, in the characters that it has."""

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(visible(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def unescaped(stream: Any) -> IO[str]:
    """The stream itself, for who draws on the terminal."""
    return stream.stream if isinstance(stream, Visible) else stream


@contextmanager
def visible_output() -> Iterator[None]:
    """All that is printed meanwhile is visible."""
    import sys

    with redirect_stdout(Visible(sys.stdout)), redirect_stderr(Visible(sys.stderr)):  # type: ignore[type-var]
        yield
