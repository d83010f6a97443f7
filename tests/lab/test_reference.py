"""The optimum beside results: in pictures, in numbers."""

import json
from pathlib import Path

import pytest

from baddr.cli import main
from baddr.lab.plots import _figure, draw_optimum


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Tiger with two steps: listening twice is worth -1.95."""
    folder = tmp_path_factory.mktemp("reference") / "finished"
    line = f"run tiger --domain.horizon 2 --agent random --runs 2 --episodes 2 --out {folder}"
    with pytest.raises(SystemExit):
        main([*line.split(), "--filter.num-particles", "16"])
    return folder


def test_compare_says_the_optimum(finished, capsys) -> None:
    code, out, _ = call(capsys, "compare", finished, "--reference", "optimum", "--json")
    bounds = json.loads(out)["optimum"]
    assert code == 0 and bounds["lower"] == pytest.approx(-1.95) and bounds["upper"] == pytest.approx(-1.95)
    words = call(capsys, "compare", finished, "--reference", "optimum")[1]
    assert "optimum: between -1.95 and -1.95" in words
    assert "optimum" not in call(capsys, "compare", finished)[1]


def test_plot_draws_it(finished, tmp_path, capsys) -> None:
    plain, other = tmp_path / "plain.svg", tmp_path / "other.svg"
    assert call(capsys, "plot", finished, "--out", plain)[0] == 0
    assert call(capsys, "plot", finished, "--out", other, "--reference", "optimum")[0] == 0
    assert "optimum: -1.95" in other.read_text() and "optimum" not in plain.read_text()


def test_bounds_that_are_apart_are_a_band() -> None:
    for bounds, lines, bands in (((1.0, 1.0), 1, 0), ((1.0, 3.0), 2, 1)):
        _, (axes,) = _figure(1)
        axes.plot([0, 1], [0, 4])
        draw_optimum(axes, bounds)
        assert len(axes.lines) == 1 + lines and len(axes.patches) == bands
