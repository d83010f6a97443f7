"""The optimum beside results: in pictures, in numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from baddr.cli import main
from baddr.domains.catalog import DOMAINS
from baddr.lab.build import build_domain
from baddr.lab.experiment import preset
from baddr.lab.plots import _figure, draw_optimum
from baddr.lab.reference import optimum, prior_only


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


SMALL = {
    "tiger": {"horizon": 4},
    "factored-tiger": {"horizon": 4, "irrelevant": 1},
    "road-racing": {"horizon": 4, "lanes": 2},
    "collision-avoidance": {"size": 3},
    "gridverse": {"horizon": 4, "size": 3},
    "sysadmin": {"horizon": 4, "computers": 2},
    "rock-sample": {"horizon": 4, "size": 2, "rocks": 1},
    "tag": {"horizon": 4, "width": 2},
    "t-maze": {"horizon": 4, "length": 2},
    "light-dark": {"horizon": 4, "reach": 2, "light": 1},
    "battleship": {"size": 2, "ships": (2,)},
    "maintenance": {"horizon": 4},
}


FIRST = ("tiger", "road-racing", "battleship")  # the others compile as much again
each_domain = [pytest.param(name, marks=[] if name in FIRST else pytest.mark.slow) for name in DOMAINS]


@pytest.mark.parametrize("name", each_domain)
def test_planning_with_the_prior_only_has_a_worth_in_every_domain(name) -> None:
    """No more than the optimum of the truth, and nothing where the prior has no expected model."""
    start = preset(name, "random")
    small = replace(start, domain=replace(start.domain, **SMALL[name]))
    domain = build_domain(small)
    worth = prior_only(domain)
    assert (worth is None) == (domain.expected_simulator is None)
    assert worth is None or worth <= optimum(small.domain, domain).upper + 1e-3
