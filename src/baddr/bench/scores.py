"""Scores: 0 is planning with the prior only, 1 is planning on the truth. Needs no JAX.

Each of an agent's trainings (seeds) and its runs, and the runs of both references, are drawn again and again
with replacement (a bootstrap): the intervals hold all of this uncertainty.
"""

from typing import Any, NamedTuple

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.statistics import FEWEST_RUNS, default_window, of_each_run, per_run, sample, widening

NUM_RESAMPLES = 1000
REACHED = 0.9
CLEAR = 2.0  # standard errors by which the truth must beat the prior for a score to mean something
COLUMN = "discounted_return"


class Scale(NamedTuple):
    """What is worth 0 and what is worth 1, with draws of both."""

    prior: float
    truth: float
    draws: np.ndarray  # [resample, 2]
    error: float  # standard error of their difference
    runs: int  # of the reference that has fewer

    @property
    def is_clear(self) -> bool:
        """Whether the truth is better than the prior, beyond doubt: from few runs, by Student's t."""
        if self.runs < 2:
            return False
        return bool(self.truth - self.prior > CLEAR * self.error * widening(self.runs - 1.0))

    def score(self, returns: Any) -> Any:
        """NaN where the truth is worth no more than the prior."""
        gap = self.truth - self.prior
        return (returns - self.prior) / (gap if gap != 0 else np.nan)


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class Scores(NamedTuple):
    """Of one agent on one domain."""

    episode: np.ndarray  # the last of each block, counted from 1
    returns: np.ndarray
    score: np.ndarray
    low: np.ndarray
    high: np.ndarray
    final: Interval  # of the last tenth of the episodes
    to_reach: Interval  # episodes until .9; infinite: never
    units: str
    runs: int


def scale_of(prior: Arrays, truth: Arrays, seed: int = 0) -> Scale:
    """From the results of both references. Neither learns, so that all episodes count."""
    means = [of_each_run(per_run(rows, COLUMN)) for rows in (prior, truth)]
    random = np.random.default_rng(seed)
    draws = np.stack([_resampled_means(x, random) for x in means], axis=1)
    runs = min(map(len, means))
    errors = [np.std(x, ddof=1) / len(x) ** 0.5 if runs > 1 else np.inf for x in means]
    return Scale(
        float(means[0].mean()), float(means[1].mean()), draws, float(np.hypot(errors[0], errors[1])), runs
    )


def _resampled_means(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    picked = x[random.integers(len(x), size=(NUM_RESAMPLES, len(x)))].mean(axis=1)
    wider = np.sqrt(len(x) / max(len(x) - 1, 1)) * (widening(len(x) - 1.0) if len(x) > 1 else 1.0)
    return x.mean() + (picked - x.mean()) * wider


def scores(results: dict[int, Arrays], scale: Scale) -> Scores:
    """By episode, from the results of each training (by its seed)."""
    units = sample(results, COLUMN)
    table = units.table[~np.all(np.isnan(units.table), axis=1)]
    episodes = table.shape[1]
    window = default_window(episodes)
    ends = list(range(window, episodes + 1, window)) or [episodes]
    blocks = np.stack([_mean(table[:, end - window : end]) for end in ends], axis=1)
    drawn = _drawn(blocks, scale)
    low, high = np.nanquantile(drawn, [0.025, 0.975], axis=0)
    returns = np.nanmean(blocks, axis=0)
    last = _mean(table[:, -max(1, episodes // 10) :])[:, None]
    final = Interval(float(scale.score(np.nanmean(last))), *_quantiles(_drawn(last, scale)[:, 0]))
    score = scale.score(returns)
    reached = [_first(row, ends) for row in drawn]
    few = len(table) < FEWEST_RUNS and units.unit == "runs"
    between = (-np.inf, np.inf) if few else np.quantile(reached, [0.025, 0.975], method="inverted_cdf")
    to_reach = Interval(_first(score, ends), *map(float, between))
    return Scores(np.array(ends), returns, score, low, high, final, to_reach, units.unit, units.num_runs)


def _mean(table: np.ndarray) -> np.ndarray:
    """Over the episodes of each unit, of those that are known."""
    known = ~np.isnan(table)
    return np.where(known, table, 0).sum(1) / np.where(known.any(1), known.sum(1), np.nan)


def _drawn(blocks: np.ndarray, scale: Scale) -> np.ndarray:
    """[resample, block] scores."""
    random, n = np.random.default_rng(1), len(blocks)
    means = np.nanmean(blocks[random.integers(n, size=(NUM_RESAMPLES, n))], axis=1)
    center = np.nanmean(blocks, axis=0)
    wider = np.sqrt(n / (n - 1)) * widening(n - 1.0) if n > 1 else 1.0
    means = center + (means - center) * wider
    prior, truth = scale.draws[:, :1], scale.draws[:, 1:]
    gap = np.where(np.abs(truth - prior) > 1e-12, truth - prior, np.nan)
    return (means - prior) / gap


def _quantiles(drawn: np.ndarray) -> tuple[float, float]:
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def _first(score: np.ndarray, ends: list[int]) -> float:
    """The first block that reaches .9, if it and all that follow do so on average: one lucky block does not
    count."""
    known = ~np.isnan(score)
    rest = np.cumsum(np.where(known, score, 0)[::-1])[::-1] / np.maximum(np.cumsum(known[::-1])[::-1], 1)
    reached = np.flatnonzero((score >= REACHED) & (rest >= REACHED))
    return float(ends[reached[0]]) if len(reached) else np.inf
