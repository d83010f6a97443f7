"""The errors that are the user's to mend, or the disk's: one clear sentence each."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something asked for cannot be done as asked; nothing was changed. Exit code 2."""


class StorageError(UserError):
    """A file could not be written or read; what was finished is kept."""


class ClusterError(UserError):
    """The cluster was lost, or could not do the work; what was finished is kept."""


LONGEST = 60  # characters of a value that a sentence quotes


def shown(value: object) -> str:
    """A value as a sentence quotes it: not too long, and nothing in it that a terminal obeys."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"a number of {int(value.bit_length() * 0.30103)} digits"  # Python prints no longer ones
    try:
        text = repr(value)
    except Exception:  # nested too deeply, for example
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 12]}...{text[-9:]}"


def counted(count: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """`name`, or a sentence that says what would have been right."""
    known = list(known)
    if name in known:
        return name
    if not isinstance(name, str):
        raise UserError(f"The name of a {kind} must be text, not {shown(name)}.")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."
    raise UserError(f"There is no {kind} {shown(name)}; {hint}")
