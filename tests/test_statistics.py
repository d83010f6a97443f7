import numpy as np
import pytest
import scipy.stats

from baddr.errors import UserError
from baddr.plots import plot_curves
from baddr.statistics import bootstrap_interval, learning_curve, mean_interval, per_run


def results(table: np.ndarray) -> dict[str, np.ndarray]:
    run, episode = np.meshgrid(*map(np.arange, table.shape), indexing="ij")
    keep = ~np.isnan(table)
    return {"run": run[keep], "episode": episode[keep], "discounted_return": table[keep]}


def test_per_run_puts_each_episode_in_its_place():
    table = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    np.testing.assert_array_equal(per_run(results(table), "discounted_return"), table)


def test_the_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(0).normal(3, 2, size=200)
    low, high = bootstrap_interval(values, num_resamples=4000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    width = theirs.high - theirs.low  # quantiles of 4000 resamples: about 3 % of the width each
    assert abs(low - theirs.low) < 0.12 * width and abs(high - theirs.high) < 0.12 * width


def test_the_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(0).normal(3, 2, size=(400, 5))
    mean, low, high = mean_interval(values)
    half = 1.96 * values.mean(1).std(ddof=1) / 20
    assert mean == pytest.approx(values.mean())
    assert abs(low - (mean - half)) < 0.15 * half and abs(high - (mean + half)) < 0.15 * half


def test_a_curve_averages_windows_of_episodes():
    table = np.arange(24.0).reshape(2, 12)
    curve = learning_curve(results(table), window=5)
    np.testing.assert_allclose(curve.mean, [(2 + 14) / 2, (7 + 19) / 2])
    np.testing.assert_array_equal(curve.episode, [5, 10])
    assert curve.num_runs == 2


def test_pictures_are_written_in_every_format_and_are_the_same_each_time(tmp_path):
    table = np.random.default_rng(0).normal(size=(4, 50))
    paths = [tmp_path / f"curve{suffix}" for suffix in (".png", ".svg", ".pdf")]
    plot_curves({"a": results(table), "b": results(table + 1)}, "title", paths)
    first = [path.read_bytes() for path in paths[:2]]
    plot_curves({"a": results(table), "b": results(table + 1)}, "title", paths[:2])
    assert first == [path.read_bytes() for path in paths[:2]]
    with pytest.raises(UserError, match="ends in"):
        plot_curves({"a": results(table)}, "", [tmp_path / "curve.bmp"])
