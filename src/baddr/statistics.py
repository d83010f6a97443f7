"""What a set of runs says, with its uncertainty."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from baddr.experiments.store import Arrays

Statistic = Callable[[np.ndarray], Any]
NUM_CURVES = 500  # resampled for the interval of a whole curve


class Estimate(NamedTuple):
    """A number with its 95 % bootstrap interval over runs."""

    value: float
    low: float
    high: float


class Curve(NamedTuple):
    """Mean over runs per window of episodes, with a 95 % confidence band."""

    episode: np.ndarray  # the last episode of each window, counted from 1
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    num_runs: int


def per_run(results: Arrays, column: str) -> np.ndarray:
    """A column as [run, episode], NaN where a run did not get so far."""
    runs, row = np.unique(results["run"], return_inverse=True)
    table = np.full((len(runs), int(results["episode"].max()) + 1), np.nan)
    table[row, results["episode"]] = results[column]
    return table


def bootstrap_interval(
    values: np.ndarray, num_resamples: int = 2000, seed: int = 0, statistic: Statistic | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % percentile-bootstrap interval of a statistic over axis 0 (runs), by default the mean."""
    generator, n = np.random.default_rng(seed), len(values)
    statistic = statistic or _mean
    found = np.stack([statistic(values[generator.integers(n, size=n)]) for _ in range(num_resamples)])
    low, high = np.nanquantile(found, [0.025, 0.975], axis=0)
    return np.asarray(low), np.asarray(high)


def _mean(values: np.ndarray) -> Any:
    return np.nanmean(values, axis=0)


def estimate(values: np.ndarray, statistic: Statistic | None = None) -> Estimate:
    """A statistic of one value per run, with its interval."""
    low, high = bootstrap_interval(values, statistic=statistic)
    return Estimate(float((statistic or _mean)(values)), float(low), float(high))


def of_each_run(table: np.ndarray) -> np.ndarray:
    """The mean over the episodes of each run that has some."""
    return np.nanmean(table[~np.all(np.isnan(table), axis=1)], axis=1)


def mean_interval(values: np.ndarray) -> Estimate:
    """The mean of [run, episode] values with its 95 % bootstrap interval over runs."""
    return estimate(of_each_run(values))


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of the middle half of the runs: what a quarter of lucky or failed runs cannot move.

    The i-th of n sorted runs covers [i, i + 1] and counts by its overlap with [n/4, 3n/4].
    """
    n, i = len(values), np.arange(len(values))
    weights = np.clip(np.minimum(i + 1, 3 * n / 4) - np.maximum(i, n / 4), 0, None)
    return float(np.sum(np.sort(values) * weights) / np.sum(weights))


def episodes_to_reach(table: np.ndarray, level: float, window: int) -> float:
    """The first episode, counted from 1, at which the mean return of the last `window` ones is `level`.

    Infinite where it never is. Runs are averaged first: single ones are too noisy.
    """
    curve = np.nanmean(table, axis=0)
    if window > len(curve):
        return np.inf
    means = np.convolve(curve, np.ones(window) / window, mode="valid")
    reached = np.flatnonzero(means >= level)
    return float(reached[0] + window) if len(reached) else np.inf


def reach_interval(table: np.ndarray, level: float, window: int) -> Estimate:
    """`episodes_to_reach` with its interval, which ends at infinity where such runs may never get there."""
    generator, n = np.random.default_rng(0), len(table)
    found = [
        episodes_to_reach(table[generator.integers(n, size=n)], level, window) for _ in range(NUM_CURVES)
    ]
    low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
    return Estimate(episodes_to_reach(table, level, window), float(low), float(high))


def paired_difference(results: Arrays, baseline: Arrays, last: int) -> tuple[Estimate, int]:
    """The mean return over the `last` episodes less the baseline's, run by run, and over how many runs."""
    ours, theirs = _last_of_runs(results, last), _last_of_runs(baseline, last)
    common = sorted(ours.keys() & theirs.keys())
    return estimate(np.array([ours[run] - theirs[run] for run in common])), len(common)


def _last_of_runs(results: Arrays, last: int) -> dict[int, float]:
    table = per_run(results, "discounted_return")[:, -last:]
    means = np.where(np.isnan(table).any(axis=1), np.nan, table.mean(axis=1))
    runs = np.unique(results["run"]).tolist()
    return {run: mean for run, mean in zip(runs, means.tolist(), strict=True) if not np.isnan(mean)}


def learning_curve(results: Arrays, column: str = "discounted_return", window: int = 1) -> Curve:
    """The mean over runs in consecutive windows of episodes."""
    table = per_run(results, column)
    num_windows = table.shape[1] // window
    used = table[:, : num_windows * window].reshape(len(table), num_windows, window)
    used = used.mean(axis=2)
    used = used[~np.all(np.isnan(used), axis=1)]
    low, high = bootstrap_interval(used, num_resamples=NUM_CURVES)
    episode = window * (1 + np.arange(num_windows))
    return Curve(episode, np.nanmean(used, axis=0), low, high, len(used))


def default_window(num_episodes: int) -> int:
    """About 20 points on a curve."""
    return max(1, num_episodes // 20)


def compare(
    results: dict[str, Arrays], last: int, level: float | None, window: int
) -> dict[str, dict[str, Any]]:
    """What each of several results says, and how it differs from the first one."""
    rows: dict[str, dict[str, Any]] = {}
    baseline = next(iter(results.values()))
    for name, columns in results.items():
        table = per_run(columns, "discounted_return")
        final = of_each_run(table[:, -last:])
        row: dict[str, Any] = {
            "runs": len(table),
            "episodes": table.shape[1],
            "final": estimate(final),
            "final_interquartile": estimate(final, interquartile_mean),
            "area": mean_interval(table),
        }
        if level is not None:
            row["episodes_to_level"] = reach_interval(table, level, min(window, table.shape[1]))
        if columns is not baseline:
            row["difference"], row["common_runs"] = paired_difference(columns, baseline, last)
        rows[name] = row
    return rows
