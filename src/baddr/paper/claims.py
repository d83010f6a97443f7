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
from typing import Any, Literal, NamedTuple

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.statistics import (
    Estimate,
    Sample,
    expanded,
    first_reached,
    moving_means,
    sample,
    sum_of_means,
    unseen,
)

Block = Literal["first", "last", "all"] | int  # the first tenth, the last quarter, all; the first n episodes
NUM_RESAMPLES = 2000
FEWEST_RUNS = 8  # with fewer there is no verdict
FEWEST_ENSEMBLES = 5  # of networks: all runs of an ensemble share them
FEWEST_STEPS = 8  # that are timed
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


def too_few(units: Sequence[Sample], data: Data, curves: Sequence[str]) -> str:
    """The first of some curves that has too few runs, or too few ensembles of networks, in words."""
    for s, curve in zip(units, curves, strict=True):
        ensembles = len(s.ids) if s.unit == "ensembles" else 1
        if s.num_runs < FEWEST_RUNS:
            return f"{s.num_runs} of {FEWEST_RUNS} runs"
        if (curve in data.networks or s.unit == "ensembles") and ensembles < FEWEST_ENSEMBLES:
            return f"{ensembles} of {FEWEST_ENSEMBLES} ensembles"
    return ""


# Returns. Every quantity is a sum of blocks' means with weights.


class Term(NamedTuple):
    """The mean return of a curve over a block of its first `episodes` (0: all), times a weight."""

    weight: float
    curve: str
    block: Block
    episodes: int = 0


def span(block: Block, episodes: int) -> slice:
    """The episodes that a block stands for."""
    if isinstance(block, int):
        return slice(0, min(block, episodes))
    first = {"first": 0, "last": episodes - max(1, episodes // 4), "all": 0}[block]
    return slice(first, max(1, episodes // 10) if block == "first" else episodes)


def block_means(curve: Sample, block: Block, episodes: int = 0) -> dict[tuple[int, ...], float]:
    """The mean return of each unit over a block of the first `episodes` (0: all) episodes."""
    table = curve.table[:, span(block, episodes or curve.episodes)]
    known = ~np.isnan(table)
    counts = known.sum(axis=1)
    means = np.where(known, table, 0.0).sum(axis=1) / np.maximum(counts, 1)
    return {id: float(mean) for id, mean, n in zip(curve.ids, means, counts, strict=True) if n}


def _values(means: dict[tuple[int, ...], float]) -> np.ndarray:
    return np.array(list(means.values()))


def count(curve: Sample, block: Block, episodes: int = 0) -> int:
    """The episodes of all runs in a block."""
    chosen = span(block, episodes or curve.episodes)
    return curve.num_runs * (chosen.stop - chosen.start)


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


def rare(data: Data, terms: Sequence[Term], means: Sequence[np.ndarray]) -> tuple[float, float]:
    """How far a sum of blocks' means may lie lower, and higher, because of disasters that were not seen. What
    strikes one may strike all episodes of a run, and all runs of an ensemble."""
    below = above = 0.0
    for term, x in zip(terms, means, strict=True):
        single = term.curve in data.forgetful
        units = count(data.sample(term.curve), term.block, term.episodes) if single else len(x)
        much = term.weight * unseen_of(data, float(np.mean(x)), units)
        below, above = below + max(much, 0.0), above + max(-much, 0.0)
    return below, above


def add(data: Data, terms: Sequence[Term], episodes: int = 0) -> Finding:
    """Unit by unit where all terms have the same ones, and otherwise as independent samples."""
    samples = [data.sample(term.curve) for term in terms]
    means = [block_means(s, t.block, t.episodes) for s, t in zip(samples, terms, strict=True)]
    paired = all(m.keys() == means[0].keys() for m in means)
    values = [np.array([m[id] for id in means[0]]) if paired else _values(m) for m in means]
    seen = sum_of_means([term.weight for term in terms], values, paired)
    found = allowing(seen, rare(data, terms, values), data.times)
    units = tuple(dict.fromkeys((len(m), s.unit) for m, s in zip(means, samples, strict=True)))
    units = units[:1] if paired else units
    basis = " against ".join(f"{n} {unit}" for n, unit in units)
    few = too_few(samples, data, [term.curve for term in terms])
    over = f"paired over {basis}" if paired and len(terms) > 1 else basis
    return Finding(found, over, episodes=episodes, too_few=few, units=units, seen=seen)


def level(curve: str, block: Block) -> Measure:
    """The mean return over a block."""
    return lambda data: add(data, [Term(1.0, curve, block)], data.sample(curve).episodes)


def gain(curve: str) -> Measure:
    """The last quarter less the first tenth."""
    terms = [Term(1.0, curve, "last"), Term(-1.0, curve, "first")]
    return lambda data: add(data, terms, data.sample(curve).episodes)


def difference(curve: str, other: str, block: Block, other_block: Block | None = None) -> Measure:
    """One curve less another over the same episodes, or over a block of each."""

    def measure(data: Data) -> Finding:
        x, y = data.sample(curve).episodes, data.sample(other).episodes
        if other_block is not None:
            return add(data, [Term(1.0, curve, block), Term(-1.0, other, other_block)], x)
        both = min(x, y)
        return add(data, [Term(1.0, curve, block, both), Term(-1.0, other, block, both)], both)

    return measure


def difference_of_gaps(curve: str, bound: str, other: str, other_bound: str) -> Measure:
    """How much more one curve's end falls short of its bound than another's of its own."""
    terms = [Term(1.0, bound, "all"), Term(-1.0, curve, "last")]
    terms += [Term(-1.0, other_bound, "all"), Term(1.0, other, "last")]
    return lambda data: add(data, terms, min(data.sample(name).episodes for name in (curve, other)))


def trend(curves: dict[int, str]) -> Measure:
    """The slope of the last quarter's return against log2 of the number of models."""
    x = np.log2(list(curves))
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    terms = [Term(float(w), name, "last") for w, name in zip(weights, curves.values(), strict=True)]

    def measure(data: Data) -> Finding:
        found = add(data, terms, min(data.sample(name).episodes for name in curves.values()))
        return found._replace(basis=f"slope per doubling, {found.basis}")

    return measure


# Episodes to equal return.


def reached(
    curve: str, other: str, other_block: Block = "last", within: int = 0, ratio: bool = True
) -> Measure:
    """Episodes that `curve` needs to reach the mean return of `other`'s block, by those that `other` had.

    `within`: of `other`, only so many episodes count. Where `curve` ends below the goal, the number is a
    lower bound. Both are resampled.
    """

    def measure(data: Data) -> Finding:
        slow, fast = data.sample(curve), data.sample(other)
        episodes = min(within or fast.episodes, fast.episodes)
        goals = _values(block_means(fast, other_block, episodes))
        window = max(1, slow.episodes // 50)
        unit = episodes if ratio else 1
        means = moving_means(slow.table, window)
        value = first_reached(means, goals.mean(), window) / unit
        most, few = slow.episodes / unit, too_few([slow, fast], data, [curve, other])
        low, high = 0.0, np.inf
        if min(len(slow.ids), len(goals)) > 1:
            lower, higher = (unseen_of(data, float(goals.mean()), n) for n in (len(goals), len(slow.ids)))
            low, high = (x / unit for x in _resampled_reach(means, goals, window, (lower, higher)))
        found = Estimate(min(value, most), float(min(low, most)), float(high))
        units = (len(slow.ids), "learners"), (len(goals), fast.unit)
        never = bool(np.isinf(value))
        return Finding(found, f"{len(slow.ids)} learners", never, episodes, few, units)

    return measure


def _resampled_reach(
    means: np.ndarray, goals: np.ndarray, window: int, unseen: tuple[float, float]
) -> tuple[float, float]:
    """The 99.5 % interval of the first episode at which resampled learners reach resampled goals; its low end
    with goals that are lower by disasters that were not seen, its high end with learners that are."""
    generator = np.random.default_rng(0)
    draw = lambda n: generator.multinomial(n, np.full(n, 1 / n), size=NUM_RESAMPLES) / n
    weights, aims = draw(len(means)), draw(len(goals)) @ goals
    known = ~np.isnan(means)
    filled = np.where(known, means, 0.0)

    def first(weights: np.ndarray, aims: np.ndarray) -> np.ndarray:
        counted = weights @ known
        curves = weights @ filled / np.where(counted > 0, counted, np.nan)
        there = curves >= aims[:, None]
        return np.where(there.any(axis=1), there.argmax(axis=1) + window, np.inf)

    at_once = np.array_split(np.arange(NUM_RESAMPLES), 1 + NUM_RESAMPLES * means.shape[1] // 4_000_000)
    lower, upper = expanded(min(len(means), len(goals)))
    ends = (aims - unseen[0], lower), (aims + unseen[1], upper)
    low, high = (
        np.quantile(np.concatenate([first(weights[i], a[i]) for i in at_once]), q, method="inverted_cdf")
        for a, q in ends
    )
    return float(low), float(high)


# The belief over the hearing accuracy.


def belief(curve: str, column: str, episode: int) -> Measure:
    """A column of the belief about both doors after an episode (from 1; the last where it is fewer)."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], column)
        return _of_units(s, s.table[:, min(episode, s.episodes) - 1], data, curve)

    return measure


def _of_units(s: Sample, values: np.ndarray, data: Data, curve: str) -> Finding:
    seen = sum_of_means([1.0], [values[~np.isnan(values)]], True)
    found = allowing(seen, (unseen_of(data, seen.value, len(s.ids)), 0.0), data.times)
    units, few = ((len(s.ids), s.unit),), too_few([s], data, [curve])
    basis = f"{len(s.ids)} {s.unit}"
    return Finding(found, basis, episodes=s.episodes, too_few=few, units=units, seen=seen)


def accuracy(results: dict[int, Arrays], column: str) -> Sample:
    """`column` of the belief about hearing, the mean over both doors."""
    both = lambda columns: {**columns, "both": (columns[f"{column}_0"] + columns[f"{column}_1"]) / 2}
    return sample({seed: both(columns) for seed, columns in results.items()}, "both")


def narrowing(curve: str, episode: int) -> Measure:
    """The standard deviation of the belief after an episode, less that after the first."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], "accuracy_std")
        narrower = s.table[:, min(episode, s.episodes) - 1] - s.table[:, 0]
        return _of_units(s, narrower, replace(data, worst=None), curve)

    return measure


# Time and memory.


def slower(curve: str, other: str) -> Measure:
    """The time of a real step of one agent by that of another."""

    def measure(data: Data) -> Finding:
        x, y = (np.array(data.timings[name]["seconds"]) for name in (curve, other))
        generator = np.random.default_rng(0)
        again = lambda v: v[generator.integers(len(v), size=(NUM_RESAMPLES, len(v)))].mean(axis=1)
        few = min(len(x), len(y))
        low, high = np.quantile(again(x) / again(y), expanded(max(few, 2)))
        found = Estimate(float(x.mean() / y.mean()), float(low), float(high))
        return Finding(found, f"{len(x)} and {len(y)} steps", too_few=_few_steps(few))

    return measure


def _few_steps(steps: int) -> str:
    return f"{steps} of {FEWEST_STEPS} timed steps" if steps < FEWEST_STEPS else ""


def hours_of_a_run(curve: str, steps: int) -> Measure:
    """What `steps` real steps take at the measured time of one."""

    def measure(data: Data) -> Finding:
        seconds = np.array(data.timings[curve]["seconds"])
        hours = sum_of_means([1.0], [seconds * steps / 3600], True)
        basis = f"{steps:,} steps at most, from {len(seconds)} timed"
        return Finding(hours, basis, too_few=_few_steps(len(seconds)))

    return measure


def memory_needed(bytes_needed: int) -> Measure:
    """A number of bytes by the memory of this machine."""

    def measure(data: Data) -> Finding:
        share = bytes_needed / max(data.memory, 1)
        return Finding(Estimate(share, share, share), f"of {data.memory / 2**30:,.0f} GiB")

    return measure
