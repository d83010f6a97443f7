"""What a set of runs says, with its uncertainty."""

from typing import NamedTuple

import numpy as np

from baddr.experiments.store import Arrays


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
    values: np.ndarray, num_resamples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % percentile-bootstrap interval of the mean over axis 0 (runs), ignoring NaN."""
    generator = np.random.default_rng(seed)
    n = len(values)
    means = np.stack(
        [np.nanmean(values[generator.integers(n, size=n)], axis=0) for _ in range(num_resamples)]
    )
    low, high = np.nanquantile(means, [0.025, 0.975], axis=0)
    return np.asarray(low), np.asarray(high)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """The mean of [run, episode] values with its 95 % bootstrap interval over runs."""
    means = np.nanmean(values, axis=1)
    means = means[~np.isnan(means)]
    low, high = bootstrap_interval(means)
    return float(means.mean()), float(low), float(high)


def learning_curve(results: Arrays, column: str = "discounted_return", window: int = 1) -> Curve:
    """The mean over runs in consecutive windows of episodes."""
    table = per_run(results, column)
    num_windows = table.shape[1] // window
    used = table[:, : num_windows * window].reshape(len(table), num_windows, window)
    used = used.mean(axis=2)
    used = used[~np.all(np.isnan(used), axis=1)]
    low, high = bootstrap_interval(used, num_resamples=500)
    episode = window * (1 + np.arange(num_windows))
    return Curve(episode, np.nanmean(used, axis=0), low, high, len(used))


def default_window(num_episodes: int) -> int:
    """About 20 points on a curve."""
    return max(1, num_episodes // 20)
