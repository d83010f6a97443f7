"""The optimum beside results: in pictures, in numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.cli import main
from baddr.cli.summary import in_a_sentence
from baddr.domains.catalog import DOMAINS
from baddr.domains.entry import Names
from baddr.errors import UserError
from baddr.lab import reference
from baddr.lab.build import build_domain
from baddr.lab.experiment import preset
from baddr.lab.plots import _figure, draw_optimum
from baddr.lab.reference import Optimum, References, optimum, prior_only, references

EXAMPLES = Path(__file__).parents[2] / "examples"


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
    assert "Learning curves on tiger" in plain.read_text()


@pytest.mark.parametrize(("discount", "value"), [(-1.0, -1.95), (1.0, -2.0)])
def test_the_optimum_of_a_file_is_that_of_its_episodes(discount: float, value: float) -> None:
    """Not of acting for ever, which is worth 19.37; and with the experiment's discount."""
    start = preset(str(EXAMPLES / "tiger.pomdp"), "random")
    small = replace(start, domain=replace(start.domain, horizon=2, discount=discount))
    assert optimum(small.domain, build_domain(small)) == pytest.approx((value, value))


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
    """No more than the optimum of the truth, and nothing where the prior has no expected model. (What
    battleship shows depends on the state before the step: it is not solved.)"""
    start = preset(name, "random")
    small = replace(start, domain=replace(start.domain, **SMALL[name]))
    domain = build_domain(small)
    if name == "battleship":
        with pytest.raises(UserError, match="cannot be solved"):
            prior_only(domain)
        return
    worth = prior_only(domain)
    assert (worth is None) == (domain.expected_simulator is None)
    assert worth is None or worth <= optimum(small.domain, domain).upper + 1e-3


def test_what_has_too_many_beliefs_is_played(monkeypatch) -> None:
    """Tiger with two steps: nobody opens a door, whether they know the truth or the prior only."""
    monkeypatch.setattr(reference, "prior_only", lambda domain: None)
    monkeypatch.setattr(reference, "PLAYED_RUNS", 2)
    monkeypatch.setattr(reference, "PLAYED_EPISODES", 2)
    start = preset("tiger", "ba-pomcp")
    lines = references(replace(start, domain=replace(start.domain, horizon=2))).lines()
    assert [line.name for line in lines] == ["planning with the prior only", "planning on the truth"]
    assert [line.value for line in lines] == pytest.approx([-1.95, -1.95])


def test_the_sentence_has_both_bounds_where_they_are_apart() -> None:
    run, episode = (x.ravel() for x in np.indices((2, 4)))
    results = {"run": run, "episode": episode, "discounted_return": 1.0 * episode}
    said = lambda *bounds: in_a_sentence(results, References(None, None, Optimum(*bounds)), Names((), (), ()))
    assert said(3.0, 3.001).endswith("the optimum is 3.00.")
    assert said(3.0, 4.0).endswith("the optimum is between 3.00 and 4.00.")
