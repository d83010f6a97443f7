"""What the paper claims, as quantities with intervals, and the verdicts that follow from them. Needs no JAX.

A claim says where a quantity lies. It is held where the whole 95 % interval of our quantity lies there, not
held where none of it does, and undecided otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.statistics import (
    FEWEST_RUNS,
    Estimate,
    Sample,
    difference_of_means,
    estimate,
    first_reached,
    moving_means,
    sample,
)

Block = Literal["first", "last", "all"] | int  # the first tenth, the last quarter, all; the first n episodes
NUM_RESAMPLES = 500


@dataclass(frozen=True)
class Data:
    """What a figure's curves left behind, by the curve's name."""

    results: dict[str, dict[int, Arrays]]  # episodes.parquet by seed
    timings: dict[str, dict[str, Any]]  # of the run-time comparison
    memory: int = 0  # of the machine, in bytes
    samples: dict[str, Sample] = field(default_factory=dict)  # made when they are first asked for

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
    after: int = field(default=0, kw_only=True)  # episodes: fewer cannot show that it does not hold

    @property
    def region(self) -> str:
        if self.at_most == np.inf:
            return f"at least {self.at_least:g}"
        return (
            f"at most {self.at_most:g}"
            if self.at_least == -np.inf
            else f"{self.at_least:g} to {self.at_most:g}"
        )

    def verdict(self, found: Finding) -> str:
        _, low, high = found.estimate
        if np.isnan([low, high]).any():
            return "undecided"
        if self.at_least <= low and high <= self.at_most:
            return "held"
        outside = high < self.at_least or low > self.at_most
        too_early = 0 < found.episodes < self.after
        return "not held" if outside and not too_early else "undecided"


# Returns.


def span(block: Block, episodes: int) -> slice:
    """The episodes that a block stands for."""
    if isinstance(block, int):
        return slice(0, min(block, episodes))
    first = {"first": 0, "last": episodes - max(1, episodes // 4), "all": 0}[block]
    return slice(first, max(1, episodes // 10) if block == "first" else episodes)


def block_means(curve: Sample, block: Block, episodes: int = 0) -> dict[tuple[int, ...], float]:
    """The mean return of each unit over a block of the first `episodes` (0: all) episodes."""
    table = curve.table[:, span(block, episodes or curve.episodes)]
    rows = zip(curve.ids, table, strict=True)
    return {id: float(np.nanmean(row)) for id, row in rows if not np.isnan(row).all()}


def _values(means: dict[tuple[int, ...], float]) -> np.ndarray:
    return np.array(list(means.values()))


def _subtract(x: dict, y: dict, units: tuple[str, str], episodes: int = 0) -> Finding:
    """Unit by unit where both have the same ones, and otherwise as independent samples."""
    if x.keys() == y.keys():
        differences = np.array([x[id] - y[id] for id in x])
        basis = f"paired over {len(x)} {units[0]}"
        return Finding(estimate(differences), basis, episodes=episodes)
    basis = f"{len(x)} {units[0]} against {len(y)} {units[1]}"
    return Finding(difference_of_means(_values(x), _values(y)), basis, episodes=episodes)


def level(curve: str, block: Block) -> Measure:
    """The mean return over a block."""

    def measure(data: Data) -> Finding:
        s = data.sample(curve)
        means = _values(block_means(s, block))
        return Finding(estimate(means), f"{len(means)} {s.unit}", episodes=s.episodes)

    return measure


def gain(curve: str) -> Measure:
    """The last quarter less the first tenth."""

    def measure(data: Data) -> Finding:
        s = data.sample(curve)
        units = s.unit, s.unit
        return _subtract(block_means(s, "last"), block_means(s, "first"), units, s.episodes)

    return measure


def difference(curve: str, other: str, block: Block, other_block: Block | None = None) -> Measure:
    """One curve less another over the same episodes, or over a block of each."""

    def measure(data: Data) -> Finding:
        x, y = data.sample(curve), data.sample(other)
        units = x.unit, y.unit
        if other_block is not None:
            return _subtract(block_means(x, block), block_means(y, other_block), units, x.episodes)
        both = min(x.episodes, y.episodes)
        return _subtract(block_means(x, block, both), block_means(y, block, both), units, both)

    return measure


def difference_of_gaps(curve: str, bound: str, other: str, other_bound: str) -> Measure:
    """How much more one curve's end falls short of its bound than another's of its own."""

    def gaps(data: Data, curve: str, bound: str) -> tuple[Estimate, str]:
        found = difference(bound, curve, "all", "last")(data)
        return found.estimate, found.basis

    def measure(data: Data) -> Finding:
        (x, basis), (y, _) = gaps(data, curve, bound), gaps(data, other, other_bound)
        half = np.hypot(x.high - x.low, y.high - y.low) / 2  # independent
        value = x.value - y.value
        return Finding(Estimate(value, value - half, value + half), basis)

    return measure


def trend(curves: dict[int, str]) -> Measure:
    """The slope of the last quarter's return against log2 of the number of models."""

    def measure(data: Data) -> Finding:
        samples = {n: data.sample(name) for n, name in curves.items()}
        means = {n: block_means(s, "last") for n, s in samples.items()}
        x = np.log2(list(curves))
        slope = lambda y: np.polyfit(x, y, 1)[0]
        common = set.intersection(*(set(m) for m in means.values()))
        slopes = np.array([slope([means[n][id] for n in curves]) for id in sorted(common)])
        unit = next(iter(samples.values())).unit
        return Finding(estimate(slopes), f"slope per doubling, {len(slopes)} {unit}")

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
        count = lambda rows, goal: first_reached(means[rows], goal, window) / unit
        most, generator = slow.episodes / unit, np.random.default_rng(0)
        draw = lambda n: generator.integers(n, size=n)
        found = [count(draw(len(slow.ids)), goals[draw(len(goals))].mean()) for _ in range(NUM_RESAMPLES)]
        low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
        value = count(slice(None), goals.mean())
        if len(slow.ids) < FEWEST_RUNS:
            low, high = 0.0, np.inf
        estimate = Estimate(min(value, most), float(min(low, most)), float(high))
        return Finding(estimate, f"{len(slow.ids)} learners", at_least=bool(np.isinf(value)))

    return measure


# The belief over the hearing accuracy.


def belief(curve: str, column: str, episode: int) -> Measure:
    """A column of the belief about both doors after an episode (from 1; the last where it is fewer)."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], column)
        values = s.table[:, min(episode, s.episodes) - 1]
        return Finding(estimate(values[~np.isnan(values)]), f"{len(s.ids)} {s.unit}")

    return measure


def accuracy(results: dict[int, Arrays], column: str) -> Sample:
    """`column` of the belief about hearing, the mean over both doors."""
    both = lambda columns: {**columns, "both": (columns[f"{column}_0"] + columns[f"{column}_1"]) / 2}
    return sample({seed: both(columns) for seed, columns in results.items()}, "both")


def narrowing(curve: str, episode: int) -> Measure:
    """The standard deviation of the belief after an episode, less that after the first."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], "accuracy_std")
        values = s.table[:, min(episode, s.episodes) - 1] - s.table[:, 0]
        return Finding(estimate(values[~np.isnan(values)]), f"{len(s.ids)} {s.unit}")

    return measure


# Time and memory.


def slower(curve: str, other: str) -> Measure:
    """The time of a real step of one agent by that of another."""

    def measure(data: Data) -> Finding:
        x, y = (np.array(data.timings[name]["seconds"]) for name in (curve, other))
        generator = np.random.default_rng(0)
        again = lambda v: v[generator.integers(len(v), size=len(v))].mean()
        low, high = np.quantile([again(x) / again(y) for _ in range(NUM_RESAMPLES)], [0.025, 0.975])
        return Finding(Estimate(x.mean() / y.mean(), float(low), float(high)), f"{len(x)} and {len(y)} steps")

    return measure


def hours_of_a_run(curve: str, steps: int) -> Measure:
    """What `steps` real steps take at the measured time of one."""

    def measure(data: Data) -> Finding:
        seconds = np.array(data.timings[curve]["seconds"])
        hours = estimate(seconds * steps / 3600)
        return Finding(hours, f"{steps:,} steps at most, from {len(seconds)} timed")

    return measure


def memory_needed(bytes_needed: int) -> Measure:
    """A number of bytes by the memory of this machine."""

    def measure(data: Data) -> Finding:
        share = bytes_needed / max(data.memory, 1)
        return Finding(Estimate(share, share, share), f"of {data.memory / 2**30:,.0f} GiB")

    return measure
