"""The columns of episodes.parquet, and of what kind each is. Needs no JAX.

Trackers, the live view, checkpoints, pictures and statistics share them. What an episode adds up to has its
names in `life.record.Tally`; what a domain's `describe` says about the belief has the names that it gives.
"""

from collections.abc import Iterable
from functools import cache
from typing import Literal

Kind = Literal["key", "outcome", "diagnostic", "belief", "histogram"]
KEYS = ("run", "episode")
OUTCOMES = ("return", "discounted_return", "length")
HISTOGRAM = "_histogram_"  # NAME_histogram_I: the belief's mass in bin I of [0, 1]
MEAN = "_mean_"  # NAME_mean_I: the belief's mean of entry I
STD = "_std_"  # NAME_std_I: its standard deviation
SEEN = "_seen_"  # NAME_seen_I: steps of the run so far that showed something of entry I


def kind(name: str) -> Kind:
    """What a column says: which episode, how it went, how beliefs and plans fared, or what was believed."""
    if name in KEYS:
        return "key"
    if name in OUTCOMES:
        return "outcome"
    if HISTOGRAM in name:
        return "histogram"
    return "diagnostic" if SEEN in name or name in _diagnostics() else "belief"


def of_kind(names: Iterable[str], *kinds: Kind) -> list[str]:
    return [name for name in names if kind(name) in kinds]


def numbers(names: Iterable[str]) -> list[str]:
    """The columns that are a curve each."""
    return [name for name in names if name not in KEYS and HISTOGRAM not in name]


def means(names: Iterable[str]) -> list[str]:
    """The columns with means of the belief."""
    return [name for name in names if MEAN in name]


def stems(names: Iterable[str]) -> list[str]:
    """What the belief has means of: NAME of NAME_mean_I, each once."""
    return list(dict.fromkeys(name.partition(MEAN)[0] for name in means(names)))


def entries(names: Iterable[str], stem: str, part: str) -> list[str]:
    """The columns NAME_mean_I, NAME_std_I or NAME_seen_I, for `part` MEAN, STD or SEEN."""
    return [name for name in names if name.partition(part)[:2] == (stem, part)]


def histograms(names: Iterable[str]) -> dict[str, list[str]]:
    """The columns of each histogram, bin by bin."""
    found: dict[str, list[str]] = {}
    for name in names:
        if HISTOGRAM in name:
            found.setdefault(name.partition(HISTOGRAM)[0], []).append(name)
    return found


@cache
def _diagnostics() -> frozenset[str]:
    from baddr.life.record import Tally  # here: it needs JAX, which only a running experiment has loaded

    return frozenset((*Tally._fields, "distinct_ancestors"))
