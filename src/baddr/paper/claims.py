"""What the paper claims, as quantities with intervals, and the verdicts that follow from them. Needs no JAX.

A claim says where a quantity lies. It is held where the whole 99.5 % interval of our quantity lies there, not
held where none of it does, and undecided otherwise; and undecided where the experiment is smaller than what
the claim is about, or than FEWEST_RUNS and FEWEST_ENSEMBLES. A disaster is in the interval even if it was
not seen, and may strike a whole run, or all runs of a training, in every episode: so it is counted in those.
"Held" is wrong in at most 5 of 100 cases (tests/test_claims.py).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.statistics import Estimate, Sample, sample, unseen

FEWEST_RUNS = 8  # with fewer there is no verdict
FEWEST_ENSEMBLES = 5  # of networks: all runs of an ensemble share them
GROWTH, MOST_GROWTHS = 1.1, 100  # how finely, and how far (14,000 times), what would decide is looked for


@dataclass(frozen=True)
class Data:
    """What a figure's curves left behind, by the curve's name."""

    results: dict[str, dict[int, Arrays]]  # episodes.parquet by seed
    timings: dict[str, dict[str, Any]]  # of the run-time comparison
    memory: int = 0  # of the machine, in bytes
    samples: dict[str, Sample] = field(default_factory=dict)  # made when they are first asked for
    networks: frozenset[str] = frozenset()  # the curves whose runs share the networks that a seed drew
    forgetful: frozenset[str] = frozenset()  # the curves whose episodes have nothing in common but the truth
    worst: float | None = None  # the domain's worst return, which some units may have in every episode
    times: float = 1.0  # as many units as there are, all like these: what would be found of them?

    def sample(self, curve: str) -> Sample:
        """The curve's discounted returns."""
        if curve not in self.samples:
            self.samples[curve] = sample(self.results[curve])
        return self.samples[curve]


class Finding(NamedTuple):
    """A measured quantity: its interval, and over what it was taken."""

    estimate: Estimate
    basis: str
    at_least: bool = False  # the value is a lower bound: the experiment ended before
    episodes: int = 0  # that the agent in question had; 0: it does not matter
    too_few: str = ""  # what there is too little of for a verdict
    units: tuple[tuple[int, str], ...] = ()  # how many of each kind
    seen: Estimate | None = None  # the interval without disasters that were not seen, where there is one


Measure = Callable[[Data], Finding]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as a region for a quantity. Margins of "same" and "nearly" are our reading."""

    says: str
    measure: Measure
    what: str
    at_least: float = field(default=-np.inf, kw_only=True)
    at_most: float = field(default=np.inf, kw_only=True)
    paper: str = field(default="", kw_only=True)  # its number, where it gives one
    after: int = field(default=0, kw_only=True)  # the episodes that it speaks of: shorter curves say nothing

    @property
    def region(self) -> str:
        if self.at_most == np.inf:
            return f"at least {self.at_least:g}"
        return (
            f"at most {self.at_most:g}"
            if self.at_least == -np.inf
            else f"{self.at_least:g} to {self.at_most:g}"
        )

    def too_small(self, found: Finding) -> str:
        """What the experiment has too little of for a verdict, in words; nothing where it is large enough."""
        short = 0 < found.episodes < self.after
        return f"{found.episodes:,} of {self.after:,} episodes" if short else found.too_few

    def only_unseen(self, found: Finding) -> bool:
        """Whether nothing but disasters that were not seen keeps it from a verdict."""
        if found.seen is None or self.verdict(found) != "undecided":
            return False
        return self.verdict(found._replace(estimate=found.seen)) != "undecided"

    def verdict(self, found: Finding) -> str:
        _, low, high = found.estimate
        if self.too_small(found) or np.isnan([low, high]).any():
            return "undecided"
        if self.at_least <= low and high <= self.at_most:
            return "held"
        return "not held" if high < self.at_least or low > self.at_most else "undecided"


def what_decides(claim: Claim, data: Data) -> str:
    """How many units would decide an undecided claim, if they were like those that there are: a sentence."""
    found = claim.measure(data)
    if claim.verdict(found) != "undecided" or claim.too_small(found) or not found.units:
        return ""
    more = lambda k: claim.measure(replace(data, times=GROWTH**k))
    k = bisect_left(range(MOST_GROWTHS), True, key=lambda k: claim.verdict(more(k)) != "undecided")
    if k == MOST_GROWTHS:
        return "More of the same would not decide it: it lies too near to the bound."
    many = " against ".join(f"{two_digits(n * GROWTH**k):,} {unit}" for n, unit in found.units)
    return f"About {many} would decide it, if they were like these."


def two_digits(x: float) -> int:
    """Rounded up."""
    unit = 10 ** max(0, int(np.log10(x)) - 1)
    return int(-(-x // unit)) * unit


def with_worst(claim: Claim, worst: float) -> Claim:
    """The claim about a domain with a disaster: its return is in the interval, seen or not."""
    return replace(claim, measure=lambda data: claim.measure(replace(data, worst=worst)))


def risking(worst: float) -> Callable[[Callable[[Any], tuple[Claim, ...]]], Any]:
    """All claims of a figure so."""
    return lambda claims: lambda sizes: tuple(with_worst(claim, worst) for claim in claims(sizes))


# What measures share.


def too_few(units: Sequence[Sample], data: Data, curves: Sequence[str]) -> str:
    """The first of some curves that has too few runs, or too few ensembles of networks, in words."""
    for s, curve in zip(units, curves, strict=True):
        ensembles = len(s.ids) if s.unit == "ensembles" else 1
        if s.num_runs < FEWEST_RUNS:
            return f"{s.num_runs} of {FEWEST_RUNS} runs"
        if (curve in data.networks or s.unit == "ensembles") and ensembles < FEWEST_ENSEMBLES:
            return f"{ensembles} of {FEWEST_ENSEMBLES} ensembles"
    return ""


def unseen_of(data: Data, mean: float, units: int) -> float:
    """How far a mean over units may lie lower because of disasters that were not seen."""
    return 0.0 if data.worst is None else unseen(mean, data.worst, units * data.times)


def allowing(found: Estimate, rare: tuple[float, float], times: float) -> Estimate:
    """With disasters that were not seen, and as narrow as it would be with `times` as many units."""
    value, low, high = found
    narrower, (below, above) = np.sqrt(times), rare
    return Estimate(
        value, value - (value - low) / narrower - below, value + (high - value) / narrower + above
    )
