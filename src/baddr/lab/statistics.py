"""What a set of runs says, with its uncertainty. Needs no JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from baddr.errors import UserError
from baddr.files.tables import Arrays

Statistic = Callable[..., Any]  # of values, over an axis
NUM_RESAMPLES = 2000
SPARSE, SPARSEST = 10**7, 100  # places that have no row: of any table, and for each row
NUM_CURVES = 500  # resampled for the interval of a whole curve
FEWEST_TO_REACH = 8  # for an interval of the episodes until a level: of 4 runs one held it in 76 of 100 cases
FEWEST_RUNS = 4  # below, "never" is no evidence that none gets there
FEWEST_EQUAL = 30  # below, equal runs are no evidence that others are equal: one in ten may differ


class Estimate(NamedTuple):
    """A number with its 95 % interval over runs, which is infinite where there are too few runs for one."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        return self.low > -np.inf

    def __str__(self) -> str:
        return f"{self.value:.3f} {self.interval}"

    @property
    def interval(self) -> str:
        return f"[{self.low:.3f}, {self.high:.3f}]" if self.has_interval else "[no interval]"


class Curve(NamedTuple):
    """Mean over runs per window of episodes, with a 95 % confidence band: NaN where it has none."""

    episode: np.ndarray  # the last episode of each window, counted from 1
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    num_runs: int


def per_run(results: Arrays, column: str) -> np.ndarray:
    """A column as [run, episode], NaN where a run did not get so far."""
    runs, row = np.unique(results["run"], return_inverse=True)
    episodes = int(results["episode"].max()) + 1
    if len(runs) * episodes > SPARSE + SPARSEST * len(row):  # a table that a stranger wrote
        raise UserError(
            f"{len(row):,} rows of {len(runs):,} runs, and an episode {episodes - 1:,}: they do not "
            "count the episodes of each run from 0."
        )
    table = np.full((len(runs), episodes), np.nan)
    table[row, results["episode"]] = results[column]
    return table


# Intervals. The resampling is our own: importing scipy.stats takes half a second, at the end of every run.


def estimate(values: np.ndarray, statistic: Statistic = np.mean) -> Estimate:
    """A statistic with its 95 % percentile-bootstrap interval, widened as Student's t is for few units.

    The plain bootstrap of n units is too narrow by sqrt((n - 1) / n) and by the normal's quantile in the t's
    place: with four ensembles it would hold in 80 of 100 cases. One unit says nothing about its error.
    """
    value = float(statistic(values)) if len(values) else np.nan
    if len(values) < 2:
        return Estimate(value, -np.inf, np.inf)
    return _interval(value, _deviations(values, statistic), len(values) - 1.0)


def over_runs(values: np.ndarray, statistic: Statistic = np.mean) -> Estimate:
    """The same of one value per run. A few runs that do not differ have no interval, either: it would have no
    width, and say that no run differs."""
    found = estimate(values, statistic)
    few = len(values) < FEWEST_EQUAL
    return Estimate(found.value, -np.inf, np.inf) if few and found.low == found.high else found


def _deviations(
    values: np.ndarray, statistic: Statistic, num: int = NUM_RESAMPLES, seed: int = 0
) -> np.ndarray:
    """How statistics over axis 0 (units) of resamples differ from the sample's, scaled to the unbiased
    variance."""
    n, generator = len(values), np.random.default_rng(seed)
    at_once = max(1, min(num, 2_000_000 // values.size))
    draws = lambda: values[generator.integers(n, size=(at_once, n))]
    found = np.concatenate([statistic(draws(), axis=1) for _ in range(-(-num // at_once))])
    units = (~np.isnan(values)).sum(axis=0)
    return (found - statistic(values, axis=0)) * np.sqrt(units / np.maximum(units - 1, 1))


def _interval(value: float, deviations: np.ndarray, df: float) -> Estimate:
    low, high = np.quantile(deviations, [0.025, 0.975]) * widening(df)
    return Estimate(value, value + float(low), value + float(high))


def widening(df: Any) -> Any:
    """The 97.5 % quantile of Student's t by the normal's; NaN for no degree of freedom."""
    return t_quantile(df) / t_quantile(np.inf)


def t_quantile(df: Any, level: float = 0.95) -> Any:
    """Student's t holds `level` of its mass between this and its negative."""
    from scipy.special import stdtrit

    return stdtrit(df, (1 + level) / 2)


# Sums of means, for verdicts. A verdict must be wrong less often than an interval may miss: units can be as
# skewed as an exponential, of which 95 % intervals of Student's t miss the mean on one side in 10 of 100
# cases at 4 to 10 units, 99 % ones in 5, and 99.5 % ones in 4.
JUDGED = 0.995


def sum_of_means(weights: Sequence[float], units: Sequence[np.ndarray], paired: bool) -> Estimate:
    """sum of weight x mean, with Student's 99.5 % interval: of the units' sums if they are `paired`, else of
    independent samples with Welch's degrees of freedom."""
    if paired:
        weights, units = [1.0], [np.tensordot(weights, np.stack(units), 1)]
    value = float(
        sum(w * np.mean(x) for w, x in zip(weights, units, strict=True)) if len(units[0]) else np.nan
    )
    if min(map(len, units)) < 2:
        return Estimate(value, -np.inf, np.inf)
    parts = np.array([w**2 * np.var(x, ddof=1) / len(x) for w, x in zip(weights, units, strict=True)])
    spread = sum(part**2 / (len(x) - 1) for part, x in zip(parts, units, strict=True))
    df = parts.sum() ** 2 / spread if spread > 0 else 1.0
    half = float(t_quantile(df, JUDGED) * np.sqrt(parts.sum()))
    return Estimate(value, value - half, value + half)


def expanded(n: int) -> tuple[float, float]:
    """The levels of bootstrap quantiles that make a 99.5 % interval of n units: Student's t in the normal's
    place, and the unbiased variance."""
    from scipy.special import ndtr

    tail = float(ndtr(-np.sqrt(n / (n - 1)) * t_quantile(n - 1.0, JUDGED)))
    return tail, 1.0 - tail


# What was not seen in n independent units happens to at most -log(.05) / n = 3 / n of them: the rule of
# three, at 95 %.
UNSEEN = -np.log(0.05)


def unseen(mean: float, worst: float, units: int | float) -> float:
    """How far the mean over units may lie lower because of some that have the worst value, and were not
    seen."""
    return min(1.0, UNSEEN / max(units, 1)) * max(mean - worst, 0.0)


def _mean(values: np.ndarray, axis: int = 0) -> Any:
    """Of those that are known; NaN where none is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    return np.where(known, values, 0.0).sum(axis=axis) / np.where(count > 0, count, np.nan)


def of_each_run(table: np.ndarray) -> np.ndarray:
    """The mean over the episodes of each run that has some."""
    return _mean(table[~np.all(np.isnan(table), axis=1)], axis=1)


def mean_interval(values: np.ndarray) -> Estimate:
    """The mean of [run, episode] values with its 95 % interval over runs."""
    return over_runs(of_each_run(values))


def quarters(results: Arrays) -> tuple[float, float, float]:
    """The mean return of the first and of the last quarter of the episodes, and the standard error of their
    difference, which is taken run by run."""
    table = per_run(results, "discounted_return")
    quarter = max(1, table.shape[1] // 4)
    first, last = _mean(table[:, :quarter], axis=1), _mean(table[:, -quarter:], axis=1)
    whole = ~np.isnan(first + last)
    gains = (last - first)[whole]
    error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    return float(first[whole].mean()), float(last[whole].mean()), error


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
    return first_reached(moving_means(_mean(table)[None], window), level, window)


def reach_interval(table: np.ndarray, level: float, window: int) -> Estimate:
    """`episodes_to_reach` with its interval, which ends at infinity where such runs may never get there."""
    generator, n = np.random.default_rng(0), len(table)
    if n < FEWEST_TO_REACH:
        return Estimate(episodes_to_reach(table, level, window), -np.inf, np.inf)
    found = [
        episodes_to_reach(table[generator.integers(n, size=n)], level, window) for _ in range(NUM_CURVES)
    ]
    low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
    return Estimate(episodes_to_reach(table, level, window), float(low), float(high))


def paired_difference(results: Arrays, baseline: Arrays, last: int) -> tuple[Estimate, int]:
    """The mean return over the `last` episodes less the baseline's, run by run, and over how many runs."""
    ours, theirs = _last_of_runs(results, last), _last_of_runs(baseline, last)
    common = sorted(ours.keys() & theirs.keys())
    return over_runs(np.array([ours[run] - theirs[run] for run in common])), len(common)


def _last_of_runs(results: Arrays, last: int) -> dict[int, float]:
    table = per_run(results, "discounted_return")[:, -last:]
    means = table.mean(axis=1)  # NaN where a run has not ended all of them
    runs = np.unique(results["run"]).tolist()
    return {run: mean for run, mean in zip(runs, means.tolist(), strict=True) if not np.isnan(mean)}


def learning_curve(results: Arrays, column: str = "discounted_return", window: int = 1) -> Curve:
    """The mean over runs in consecutive windows of episodes."""
    runs = sample({0: results}, column)
    return curve_of(runs, equal_blocks(runs.episodes, window))


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
            "final": over_runs(final),
            "final_interquartile": over_runs(final, interquartile_mean),
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


def curve_of(curve: Sample, ends: list[int]) -> Curve:
    """The mean over units in consecutive blocks that end with these episodes (counted from 1). A unit counts
    in the blocks that it has ended. A block of fewer than FEWEST_RUNS units has no band: Student's t would
    make it so wide that nothing else could be seen."""
    starts = [0, *ends[:-1]]
    table = np.stack([curve.table[:, i:j].mean(axis=1) for i, j in zip(starts, ends, strict=True)], axis=1)
    units = (~np.isnan(table)).sum(axis=0)
    ended = units > 0
    table, units, mean = table[:, ended], units[ended], _mean(table[:, ended])
    edges = np.nanquantile(_deviations(table, _mean, NUM_CURVES), [0.025, 0.975], axis=0)
    low, high = np.where(units < FEWEST_RUNS, np.nan, mean + widening(units - 1.0) * edges)
    return Curve(np.array(ends)[ended], mean, low, high, curve.num_runs)


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
    reached = np.flatnonzero(_mean(means) >= level)
    return float(reached[0] + window) if len(reached) else np.inf
