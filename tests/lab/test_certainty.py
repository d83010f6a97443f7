"""What runs are certain of although they never saw it; and what the prior did not know."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from baddr.domains import road_racing, tiger
from baddr.domains.catalog import entry
from baddr.lab import certainty, plots
from baddr.lab.experiment import preset

ROAD = entry("road-racing")
NAMES = ROAD.names(ROAD.settings)


def rows(std: np.ndarray, seen: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of [run, episode, lane]."""
    run, episode = np.indices(std.shape[:2])
    columns = {"run": run.ravel(), "episode": episode.ravel(), "distinct_ancestors": 3 + 0 * run.ravel()}
    for i in range(std.shape[2]):
        columns |= {f"speed_mean_{i}": 0.5 + 0 * std[..., i].ravel()}
    for i in range(std.shape[2]):
        columns |= {f"speed_std_{i}": std[..., i].ravel(), f"speed_seen_{i}": seen[..., i].ravel()}
    return columns


def four_runs() -> dict[str, np.ndarray]:
    """Lane 0 is seen by all and known; lane 1 is seen by nobody, and runs 0 and 1 are certain of it; lane 2
    is seen by run 3 alone, and run 2 has a spread of just a tenth of the prior's."""
    std, seen = np.full((4, 3, 3), 0.2), np.zeros((4, 3, 3), int)
    std[..., 0], seen[..., 0] = 0.001, 5
    std[:2, 2, 1] = 0.01  # of the last episode
    std[2:, 2, 2], seen[3, 2, 2] = [0.0201, 0.001], 1
    return rows(std, seen)


def test_certainty_without_sight_is_found_and_nothing_else():
    wide = {"speed": np.full(3, 0.2)}
    columns = four_runs()
    assert certainty.anything_unseen(columns)
    found = certainty.imagined(columns, wide)
    assert found == [certainty.Imagined("speed", 1, 2, 4)]
    said = certainty.sentence(columns, found, NAMES)
    assert "lane 1 (2 of 4 runs that never saw it)" in said and "descend from 3 of" in said
    assert not certainty.imagined(columns, {"speed": np.full(3, 0.05)})  # nor more than the prior knew


def test_rows_of_an_older_version_say_nothing_about_what_was_seen():
    columns = four_runs()
    columns["speed_seen_1"] = np.full_like(columns["speed_seen_1"], -1)
    assert not certainty.imagined(columns, {"speed": np.full(3, 0.2)})


def test_the_priors_spread_is_that_of_its_simulators():
    """Speeds are Beta(c/2, c/2), of variance 1 / (4 (c + 1)); the standard error of a standard deviation of
    256 draws is below 1 / sqrt(2 * 256) of it."""
    domain = road_racing.make_domain(lanes=3, certainty=4.0)
    spread = certainty.prior_spread(domain, four_runs())["speed"]
    np.testing.assert_allclose(spread, np.sqrt(1 / 20), rtol=4 / np.sqrt(512))
    without = replace(domain, sample_simulator=None)
    np.testing.assert_allclose(certainty.prior_spread(without, four_runs())["speed"], [0.001, 0.2, 0.2])


@pytest.mark.parametrize(
    "agent, prior, warns", [("bank", "", True), ("bank", "x", False), ("fba-pomcp", "", False)]
)
def test_only_a_belief_that_tells_all_it_does_not_know_is_warned_of(agent, prior, warns):
    experiment = replace(preset("road-racing", agent), prior=prior)
    said = certainty.warning(experiment, four_runs(), NAMES)
    assert (said is not None) == warns


def test_steps_show_what_they_are_about():
    vector = lambda *x: jnp.array(x, jnp.int32)
    listened = tiger.shows(vector(1), jnp.int32(tiger.LISTEN), vector(1), vector(0))["accuracy"]
    opened = tiger.shows(vector(1), jnp.int32(0), vector(0), vector(2))["accuracy"]
    assert listened.tolist() == [False, True] and not opened.any()
    # Up from lane 1, where a car is in the way in lane 0; and then staying there.
    blocked = road_racing.shows(vector(1, 0, 3, 3), jnp.int32(0), vector(1, 0, 3, 3), vector(3))["speed"]
    stayed = road_racing.shows(vector(1, 0, 3, 3), jnp.int32(1), vector(1, 0, 3, 3), vector(3))["speed"]
    assert blocked.tolist() == [True, True, False] and stayed.tolist() == [False, True, False]


def test_the_picture_has_a_panel_for_the_spread(monkeypatch, tmp_path):
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))
    plots.plot_belief(four_runs(), "", tmp_path / "belief.png", NAMES)
    means, spread = kept[0].axes
    assert "median" in means.get_ylabel() and "standard deviation" in spread.get_ylabel()
    labels = [text.get_text() for text in spread.get_legend().get_texts()]
    assert labels == ["lane 0", "lane 1 (never seen by 4 runs)", "lane 2 (never seen by 3 runs)"]
    np.testing.assert_allclose(spread.lines[0].get_ydata(), 0.001)
