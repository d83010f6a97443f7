"""Pictures and the sentence below a run: names, truths, references."""

from pathlib import Path

import numpy as np
import pytest

from baddr.cli import main
from baddr.cli.example import EXAMPLES
from baddr.cli.plot import line_of
from baddr.cli.summary import _about_prior, in_a_sentence
from baddr.domains.catalog import DOMAINS, entry
from baddr.errors import UserError
from baddr.lab import plots
from baddr.lab.reference import Estimated, Line, Optimum, References
from baddr.lab.statistics import quarters


def results(returns: np.ndarray, **columns: np.ndarray) -> dict[str, np.ndarray]:
    run, episode = np.indices(returns.shape)
    flat = {name: np.asarray(x, float).ravel() for name, x in columns.items()}
    return {"run": run.ravel(), "episode": episode.ravel(), "discounted_return": returns.ravel(), **flat}


def learned(runs: int = 6, episodes: int = 16) -> dict[str, np.ndarray]:
    """Returns 0, 1, 2, ... and a belief that goes from .6 to .8, the same for both doors."""
    returns = np.tile(np.arange(episodes, dtype=float), (runs, 1)) + np.arange(runs)[:, None]
    mean = np.tile(np.linspace(0.6, 0.8, episodes), (runs, 1))
    bins = {f"accuracy_histogram_{i}": np.full(returns.shape, 0.05) for i in range(20)}
    return results(returns, accuracy_mean_0=mean, accuracy_mean_1=mean, **bins)


def texts(monkeypatch) -> list:
    """Every figure that is saved, in place of its file."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))
    return kept


def test_quarters_by_hand():
    first, last, error = quarters(learned())
    assert (first, last) == (1.5 + 2.5, 13.5 + 2.5) and error == pytest.approx(0, abs=1e-12)
    gains = np.array([[0.0, 1, 1, 2], [0, 1, 1, 4], [0, 1, 1, 6]])
    assert quarters(results(gains)) == pytest.approx((0, 4, 2 / np.sqrt(3)))


def test_the_sentence_agrees_with_the_data():
    tiger = entry("tiger")
    compared = References(0.97, Estimated(3.8, 0.3), Optimum(3.77, 3.771))
    said = in_a_sentence(learned(), compared, tiger.names(tiger.settings))
    assert said.startswith(
        "The return went from 4.00 (first quarter of the episodes) to 16.00 (last quarter)"
    )
    for words in ("prior only is worth 0.97", "on the truth is worth 3.80 ± 0.30", "the optimum is 3.77"):
        assert words in said
    assert said.endswith("The believed p(hear the good door) went from 0.60 to 0.80; the truth is 0.85.")


def test_a_run_shows_its_curve_its_references_and_the_belief_below(monkeypatch, tmp_path):
    kept = texts(monkeypatch)
    tiger = entry("tiger")
    names = tiger.names(tiger.settings)
    lines = [("planning with the prior only", 0.97), Line("planning on the truth", 3.8, 0.3)]
    plots.plot_run(learned(), "a title", [tmp_path / "x.png"], names, (3.77, 3.77), lines)
    curve, belief = kept[0].axes[:2]
    labels = [text.get_text() for text in curve.get_legend().get_texts()]
    assert labels == [
        "a title (6 runs)",
        "planning with the prior only: 0.97",
        "planning on the truth: 3.8 ± 0.3",
        "optimum: 3.77",
    ]
    assert curve.get_title() == "a title" and "discounted return" in curve.get_ylabel()
    assert "truth: 0.85" in [text.get_text() for text in belief.get_legend().get_texts()]
    assert belief.get_ylabel().startswith("p(hear the good door)") and curve.get_xlim() == belief.get_xlim()


def test_names_stand_in_place_of_numbers(monkeypatch, tmp_path):
    kept = texts(monkeypatch)
    road = entry("road-racing")
    speeds = {f"speed_mean_{i}": np.full((5, 8), 0.25 * (i + 1)) for i in range(3)}
    rows = results(np.zeros((5, 8)), **speeds)
    plots.plot_belief(rows, "", tmp_path / "belief.png", road.names(road.settings))
    labels = [text.get_text() for text in kept[0].axes[0].get_legend().get_texts()]
    assert labels == ["lane 0 (truth: 0.25)", "lane 1 (truth: 0.5)", "lane 2 (truth: 0.75)"]
    plots.plot_belief(rows, "", tmp_path / "belief.png")
    assert [t.get_text() for t in kept[1].axes[0].get_legend().get_texts()] == [
        "speed 0",
        "speed 1",
        "speed 2",
    ]


def test_no_legend_covers_its_axes(tmp_path, monkeypatch):
    kept = texts(monkeypatch)
    plots.plot_curves({f"curve {i}": learned() for i in range(6)}, "", [tmp_path / "x.png"])
    kept[0].canvas.draw()
    (axes,) = kept[0].axes
    legend, data = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert legend.y1 <= data.y0, "it lies below"


def test_bands_of_two_runs_do_not_swamp_the_picture(tmp_path, monkeypatch):
    kept = texts(monkeypatch)
    plots.plot_curves({"two": results(np.array([[0.0] * 20, [1.0] * 20]))}, "", [tmp_path / "x.png"])
    low, high = kept[0].axes[0].get_ylim()
    assert 0 < low and high < 1, "only the mean, .5"


@pytest.mark.parametrize("name", DOMAINS)
def test_what_a_domain_says_of_its_model_has_a_truth_for_each_entry(name):
    if name == "cassandra":
        return
    chosen = entry(name)
    for quantity in chosen.names(chosen.settings).model:
        assert quantity.title and len(quantity.truth) in (0, 1, len(quantity.entries))


def test_lines_are_names_and_values():
    assert line_of("paper=2.2") == ("paper", 2.2) and line_of("a = b=-1e2") == ("a = b", -100.0)
    for wrong in ("paper", "=3", "x=", "x=nan", "x=two"):
        with pytest.raises(UserError, match="NAME=VALUE"):
            line_of(wrong)


def test_examples_come_with_the_package(tmp_path, monkeypatch, capsys):
    def code(*arguments: str) -> int:
        with pytest.raises(SystemExit) as exit:
            main(["example", *arguments])
        return int(exit.value.code or 0)

    monkeypatch.chdir(tmp_path)
    assert code() == 0 and "maintenance.py" in capsys.readouterr().out
    assert code("maintenance") == 0 and (tmp_path / "maintenance.py").read_text().startswith('"""A machine')
    assert "baddr run maintenance.py" in capsys.readouterr().out
    assert code("maintenance.py") == 2 and "exists" in capsys.readouterr().err
    assert code("machine.pomdp", "--out", "mine.pomdp") == 0 and (tmp_path / "mine.pomdp").exists()
    assert code("maintainance") == 2 and "maintenance.py" in capsys.readouterr().err
    there = (Path(__file__).parents[2] / "examples").glob("*.p*")
    assert {path.name for path in there} == set(EXAMPLES)


def test_the_summary_does_not_know_how_well_networks_fit_a_black_box():
    said = lambda *gaps: _about_prior({"prior": {"gap": list(gaps)}})[0]
    assert "unknown" in said(float("nan")) and "nan" not in said(float("nan"))
    assert said(0.1, 0.2).endswith("0.2000 nats above the entropy floor at most")
