"""The errors that are the user's to mend, or the disk's: one clear sentence each."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something asked for cannot be done as asked; nothing was changed. Exit code 2."""


class StorageError(UserError):
    """A file could not be written or read; what was finished is kept."""


class ClusterError(UserError):
    """The cluster was lost, or could not do the work; what was finished is kept."""


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """`name`, or a sentence that says what would have been right."""
    known = list(known)
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."
    raise UserError(f"There is no {kind} {name!r}; {hint}")
