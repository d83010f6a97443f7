"""What a set of runs says, with its uncertainty."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from baddr.files.store import Arrays

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


def interquartile_mean(values: np.ndarray, axis: int = -1) -> Any:
    """The mean of the middle half of the runs: what a quarter of lucky or failed runs cannot move.

    The i-th of n sorted runs covers [i, i + 1] and counts by its overlap with [n/4, 3n/4].
    """
    values = np.moveaxis(values, axis, -1)
    n = values.shape[-1]
    i = np.arange(n)
    weights = np.clip(np.minimum(i + 1, 3 * n / 4) - np.maximum(i, n / 4), 0, None)
    return np.sort(values, axis=-1) @ weights / np.sum(weights)


def episodes_to_reach(table: np.ndarray, level: float, window: int) -> float:
    """The first episode, counted from 1, at which the mean return of the last `window` ones is `level`.

    Infinite where it never is. Runs are averaged first: single ones are too noisy.
    """
    if window > table.shape[1]:
        return np.inf
    return first_reached(moving_means(np.nanmean(table, axis=0)[None], window), level, window)


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


# Samples: what a curve's runs say, with the unit that is resampled. Runs of one experiment share the networks
# that its seed drew, so a curve that is pooled over several seeds varies from ensemble to ensemble.


class Sample(NamedTuple):
    """Discounted returns with one row per unit: a run, or an ensemble (the mean over its runs)."""

    table: np.ndarray  # [unit, episode], NaN where a run did not get so far
    ids: tuple[tuple[int, ...], ...]  # (seed, run), or (seed,)
    unit: str  # "runs" or "ensembles"
    num_runs: int

    @property
    def episodes(self) -> int:
        return self.table.shape[1]


def sample(results: dict[int, Arrays], column: str = "discounted_return") -> Sample:
    """The results of one experiment, or of several that differ in their seed only (its keys)."""
    tables = {seed: per_run(columns, column) for seed, columns in results.items()}
    episodes = max(table.shape[1] for table in tables.values())
    runs = sum(len(table) for table in tables.values())
    if len(tables) > 1:
        rows = [_padded(_mean(table)[None], episodes) for table in tables.values()]
        return Sample(np.concatenate(rows), tuple((seed,) for seed in tables), "ensembles", runs)
    (seed, columns), (table,) = *results.items(), tables.values()
    ids = tuple((seed, int(run)) for run in np.unique(columns["run"]))
    return Sample(table, ids, "runs", runs)


def _padded(table: np.ndarray, episodes: int) -> np.ndarray:
    return np.pad(table, ((0, 0), (0, episodes - table.shape[1])), constant_values=np.nan)


# The 97.5 % quantile of Student's t by degrees of freedom; between them, linear in 1 / df.
T_QUANTILES = {
    1: 12.7062, 1.25: 8.0280, 1.5: 6.0167, 2: 4.3027, 2.5: 3.5747, 3: 3.1824, 4: 2.7764, 5: 2.5706, 7: 2.3646,
    10: 2.2281, 20: 2.0860, 50: 2.0086, np.inf: 1.9600,
}  # fmt: skip


def t_quantile(df: float) -> float:
    known = np.array(sorted(T_QUANTILES, reverse=True))
    return float(np.interp(1 / df, 1 / known, [T_QUANTILES[k] for k in known]))


def _deviations(values: np.ndarray, statistic: Callable[..., Any], seed: int) -> np.ndarray:
    """How resampled statistics differ from the sample's, scaled to the unbiased variance."""
    n, generator = len(values), np.random.default_rng(seed)
    at_once = max(1, min(2000, 2_000_000 // n))
    found = [
        statistic(values[generator.integers(n, size=(at_once, n))], axis=1)
        for _ in range(-(-2000 // at_once))
    ]
    return (np.concatenate(found) - statistic(values, axis=0)) * np.sqrt(n / (n - 1))


def small_sample_estimate(values: np.ndarray, statistic: Callable[..., Any] = np.mean) -> Estimate:
    """A statistic with its 95 % percentile-bootstrap interval, widened as Student's t is for few units.

    The plain bootstrap of n units is too narrow by sqrt((n - 1) / n) and by the normal's quantile in the t's
    place: with four ensembles it would hold in 80 of 100 cases. One unit says nothing about its error.
    """
    value = float(statistic(values))
    if len(values) < 2:
        return Estimate(value, -np.inf, np.inf)
    return _interval(value, _deviations(values, statistic, 0), len(values) - 1.0)


def _interval(value: float, deviations: np.ndarray, df: float) -> Estimate:
    low, high = np.quantile(deviations, [0.025, 0.975]) * t_quantile(df) / T_QUANTILES[np.inf]
    return Estimate(value, value + float(low), value + float(high))


def difference_of_means(x: np.ndarray, y: np.ndarray) -> Estimate:
    """mean(x) - mean(y) of independent samples, with Welch's degrees of freedom."""
    value = float(np.mean(x) - np.mean(y))
    if min(len(x), len(y)) < 2:
        return Estimate(value, -np.inf, np.inf)
    deviations = _deviations(x, np.mean, 0) - _deviations(y, np.mean, 1)
    variances = np.var(x, ddof=1) / len(x), np.var(y, ddof=1) / len(y)
    spread = variances[0] ** 2 / (len(x) - 1) + variances[1] ** 2 / (len(y) - 1)
    df = sum(variances) ** 2 / spread if spread > 0 else np.inf
    return _interval(value, deviations, float(max(df, 1.0)))


def curve_of(curve: Sample, ends: list[int]) -> Curve:
    """The mean over units in consecutive blocks that end with these episodes (counted from 1)."""
    starts = [0, *ends[:-1]]
    blocks = [np.nanmean(curve.table[:, i:j], axis=1) for i, j in zip(starts, ends, strict=True)]
    table = np.stack(blocks, axis=1)
    mean, n = np.nanmean(table, axis=0), len(table)
    if n < 2:
        return Curve(np.array(ends), mean, mean, mean, curve.num_runs)
    low, high = bootstrap_interval(table, num_resamples=NUM_CURVES)
    wider = np.sqrt(n / (n - 1)) * t_quantile(n - 1.0) / T_QUANTILES[np.inf]
    return Curve(
        np.array(ends), mean, mean + wider * (low - mean), mean + wider * (high - mean), curve.num_runs
    )


def equal_blocks(episodes: int, window: int) -> list[int]:
    """The last episodes of consecutive windows."""
    return list(range(window, episodes + 1, window)) or [episodes]


def growing_blocks(episodes: int, first: int, growth: float) -> list[int]:
    """The last episodes of blocks for a logarithmic axis."""
    ends = [max(1, min(first, episodes))]
    while ends[-1] < episodes:
        end = max(ends[-1] + 1, round(growth * ends[-1]))
        ends.append(end if 1.2 * end < episodes else episodes)  # no short last block
    return ends


def moving_means(table: np.ndarray, window: int) -> np.ndarray:
    """[unit, episode] means over each `window` consecutive episodes."""
    sums = np.cumsum(np.pad(table, ((0, 0), (1, 0))), axis=1)
    return (sums[:, window:] - sums[:, :-window]) / window


def first_reached(means: np.ndarray, level: float, window: int) -> float:
    """`episodes_to_reach` from moving means: the runs' mean, infinite where it never reaches the level."""
    reached = np.flatnonzero(np.nanmean(means, axis=0) >= level)
    return float(reached[0] + window) if len(reached) else np.inf
