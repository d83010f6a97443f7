import numpy as np
import pytest
import scipy.stats

from baddr.errors import UserError
from baddr.lab.plots import plot_curves
from baddr.lab.statistics import (
    Estimate,
    compare,
    episodes_to_reach,
    estimate,
    interquartile_mean,
    learning_curve,
    mean_interval,
    over_runs,
    paired_difference,
    per_run,
    reach_interval,
)


def results(table: np.ndarray) -> dict[str, np.ndarray]:
    run, episode = np.meshgrid(*map(np.arange, table.shape), indexing="ij")
    keep = ~np.isnan(table)
    return {"run": run[keep], "episode": episode[keep], "discounted_return": table[keep]}


def test_per_run_puts_each_episode_in_its_place():
    table = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(per_run(results(table), "discounted_return"), table)


def test_the_interval_agrees_with_scipys():
    """SciPy's percentile bootstrap, widened: by sqrt(200 / 199), and Student's t with 199 degrees."""
    values = np.random.default_rng(0).normal(3, 2, size=200)
    value, low, high = estimate(values)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    wider = np.sqrt(200 / 199) * scipy.stats.t.ppf(0.975, 199) / scipy.stats.norm.ppf(0.975)
    width = theirs.high - theirs.low  # quantiles of 2000 resamples: about 3 % of the width each
    assert abs(low - value - wider * (theirs.low - value)) < 0.12 * width
    assert abs(high - value - wider * (theirs.high - value)) < 0.12 * width


@pytest.mark.parametrize("n", [2, 3])
def test_intervals_of_a_few_runs_hold_nearly_as_often_as_they_say(n):
    """400 samples of normals: the plain bootstrap holds in 50 % of the cases for two runs, in 73 % for three.
    The standard error is 1.3 %."""
    generator = np.random.default_rng(n)
    found = [estimate(generator.normal(size=n)) for _ in range(400)]
    assert np.mean([e.low <= 0 <= e.high for e in found]) > 0.93 - 4 * 0.013


def test_the_interval_of_two_runs_by_hand():
    """A quarter of the resamples has the one twice, a quarter the other: the quantiles are both."""
    half = np.sqrt(2) * scipy.stats.t.ppf(0.975, 1) / scipy.stats.norm.ppf(0.975)
    assert estimate(np.array([0.0, 2.0])) == pytest.approx((1, 1 - half, 1 + half))


def test_too_few_runs_have_no_interval():
    """One; or a few that do not differ, which does not mean that no run does."""
    for values in (np.array([3.0]), np.full(2, 3.0), np.full(29, 3.0)):
        assert over_runs(values) == (3, -np.inf, np.inf) and str(over_runs(values)) == "3.000 [no interval]"
    assert over_runs(np.full(30, 3.0)) == (3, 3, 3) and not estimate(np.array([3.0])).has_interval
    assert over_runs(np.array([1.0, 2.0])) == estimate(np.array([1.0, 2.0]))
    assert str(Estimate(1.0, 0.5, 2.0)) == "1.000 [0.500, 2.000]"
    assert np.isnan(over_runs(np.zeros(0)).value) and not over_runs(np.zeros(0)).has_interval
    one = compare({"a": results(np.ones((1, 4)))}, 2, 0.5, 1)["a"]
    assert not any(one[name].has_interval for name in ("final", "final_interquartile", "area"))
    assert one["episodes_to_level"] == (1, -np.inf, np.inf)


def test_the_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(0).normal(3, 2, size=(400, 5))
    mean, low, high = mean_interval(values)
    half = 1.96 * values.mean(1).std(ddof=1) / 20
    assert mean == pytest.approx(values.mean())
    assert abs(low - (mean - half)) < 0.15 * half and abs(high - (mean + half)) < 0.15 * half


@pytest.mark.parametrize("n", [4, 5, 8, 100, 101])
def test_the_interquartile_mean_is_the_trimmed_one(n):
    """Of n runs a quarter is left out on each side; where n is no multiple of 4, part of a run is."""
    values = np.random.default_rng(n).normal(size=n) ** 3
    fine = np.repeat(values, 4)  # now a quarter is a whole number of values
    assert interquartile_mean(values) == pytest.approx(scipy.stats.trim_mean(fine, 0.25))


def test_one_run_is_its_own_interquartile_mean():
    assert interquartile_mean(np.array([3.0])) == 3


def test_episodes_to_reach_a_level():
    """A ramp 0, 1, 2, ... in the mean of two runs: the last 3 average 5 after episodes 4, 5, 6 (from 0)."""
    ramp = np.arange(12.0)
    table = np.stack([ramp - 1, ramp + 1])
    assert episodes_to_reach(table, 5.0, window=3) == 7
    assert episodes_to_reach(table, 100.0, window=3) == np.inf
    assert episodes_to_reach(table, 0.0, window=13) == np.inf
    eight = np.concatenate([table] * 4)
    low_high = reach_interval(eight, 5.0, window=3)
    assert low_high == (
        7,
        7,
        8,
    )  # 7 or 8 of 8 runs are alike in 9 of 256 cases
    assert reach_interval(eight, 10.5, window=1).high == np.inf
    assert not reach_interval(eight[:7], 5.0, window=3).has_interval


def test_a_paired_difference_takes_common_runs_and_their_own_noise():
    """The runs' own levels, which differ widely, drop out; a run that only one has is left out."""
    rng = np.random.default_rng(0)
    level = rng.normal(0, 100, size=(30, 1))
    a, b = level + rng.normal(1, 0.1, (30, 8)), level[:-2] + rng.normal(0, 0.1, (28, 8))
    difference, common = paired_difference(results(a), results(b), last=4)
    each = a[:28, 4:].mean(1) - b[:, 4:].mean(1)
    assert common == 28 and difference.value == pytest.approx(each.mean())
    half = 1.96 * each.std(ddof=1) / np.sqrt(28)
    assert abs(difference.low - (each.mean() - half)) < 0.3 * half
    assert abs(difference.high - (each.mean() + half)) < 0.3 * half


def test_an_estimate_of_another_statistic_has_its_own_interval():
    values = np.random.default_rng(0).standard_cauchy(200)
    middle = estimate(values, interquartile_mean)
    assert middle.low < 0 < middle.high and middle.high - middle.low < 1  # the mean's is far wider


def test_a_curve_averages_windows_of_episodes():
    table = np.arange(24.0).reshape(2, 12)
    curve = learning_curve(results(table), window=5)
    np.testing.assert_allclose(curve.mean, [(2 + 14) / 2, (7 + 19) / 2])
    np.testing.assert_array_equal(curve.episode, [5, 10])
    assert curve.num_runs == 2


def test_a_curve_counts_the_runs_that_have_ended_a_window():
    """As of an experiment that runs. Fewer than four runs have no band, and a window that nobody ended has no
    point."""
    table = np.full((5, 7), np.nan)
    table[:, :2], table[:2, 2:4], table[0, 4:] = np.arange(5.0)[:, None], [[2.0], [4.0]], 6.0
    curve = learning_curve(results(table), window=2)
    np.testing.assert_array_equal(curve.episode, [2, 4, 6])
    np.testing.assert_allclose(curve.mean, [2, 3, 6])
    np.testing.assert_array_equal(np.isnan(curve.low), [False, True, True])
    first = estimate(np.arange(5.0))
    assert curve.low[0] == pytest.approx(first.low, abs=0.4) and curve.high[0] > 2
    alone = learning_curve(results(table[:1]), window=2)
    assert np.isnan(alone.low).all() and np.isnan(alone.high).all() and alone.num_runs == 1


def test_pictures_are_written_in_every_format_and_are_the_same_each_time(tmp_path):
    table = np.random.default_rng(0).normal(size=(4, 50))
    paths = [tmp_path / f"curve{suffix}" for suffix in (".png", ".svg", ".pdf")]
    plot_curves({"a": results(table), "b": results(table + 1)}, "title", paths)
    first = [path.read_bytes() for path in paths[:2]]
    plot_curves({"a": results(table), "b": results(table + 1)}, "title", paths[:2])
    assert first == [path.read_bytes() for path in paths[:2]]
    with pytest.raises(UserError, match="must end in"):
        plot_curves({"a": results(table)}, "", [tmp_path / "curve.bmp"])
