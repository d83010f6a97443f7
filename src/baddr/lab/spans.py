"""Which runs each chunk has: computed, not listed, so that a billion runs take no memory. Needs no JAX."""

import bisect
from collections.abc import Iterator, Sequence
from typing import Any

from baddr.errors import UserError, shown

MOST_LISTED = 1000  # chunks that a manifest names one by one
Stage = tuple[int, int, int]  # the runs first, ..., last - 1, so many in each chunk (fewer in the last)


class Spans(Sequence[tuple[int, int]]):
    """[first, last) runs of each chunk. Experiments grow: those that there are stay as they are."""

    def __init__(self, stages: Sequence[Stage] = ()):
        self.stages = list(stages)
        counts = [-(-(last - first) // size) for first, last, size in self.stages]
        self.ends = [sum(counts[: i + 1]) for i in range(len(counts))]  # chunks up to each stage's end

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        i = bisect.bisect_right(self.ends, number)
        start, end, size = self.stages[i]
        first = start + size * (number - (self.ends[i - 1] if i else 0))
        return first, min(first + size, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for start, end, size in self.stages:
            for first in range(start, end, size):
                yield first, min(first + size, end)

    @property
    def runs(self) -> int:
        return self.stages[-1][1] if self.stages else 0

    def grown(self, runs: int, size: int) -> "Spans":
        """With chunks of this size for the runs that are new."""
        new = [(self.runs, runs, size)] if runs > self.runs else []
        return Spans([*self.stages, *new])

    def listed(self) -> list[list[int]]:
        """For a manifest: [first, last] of each chunk, or [first, last, size] of many at once."""
        if len(self) <= MOST_LISTED:
            return [list(span) for span in self]
        return [list(stage) for stage in self.stages]


def spans_in(listed: Any, where: object) -> Spans:
    """The inverse of `listed`. Refuses chunks that overlap, or leave runs out."""
    stages: list[Stage] = []
    for entry in (listed or [[]]) if isinstance(listed, list) else [[]]:
        if not isinstance(entry, list) or len(entry) not in (2, 3) or any(type(x) is not int for x in entry):
            raise UserError(f"{where}: a chunk must be [first, last] of its runs, not {shown(entry)}.")
        first, last, size = (*entry, entry[1] - entry[0])[:3]
        before = stages[-1][1] if stages else 0
        if first != before or last <= first or size < 1:
            raise UserError(f"{where}: chunk {shown(entry)} does not follow run {before - 1}.")
        stages.append((first, last, size))
    return Spans(stages)
