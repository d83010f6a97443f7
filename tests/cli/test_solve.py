"""`baddr solve` as its user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from baddr.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def solved(capsys, *arguments: object) -> tuple[int, list[str], str]:
    with pytest.raises(SystemExit) as end:
        main(["solve", *map(str, arguments)])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out.splitlines(), err


def test_the_last_line_is_json_and_the_policy_a_file(capsys, tmp_path) -> None:
    code, lines, _ = solved(capsys, EXAMPLES / "tiger.pomdp", "--out", tmp_path / "policy.npz")
    found = json.loads(lines[-1])
    assert code == 0 and list(found) == ["lower", "upper", "seconds"]
    assert 0 <= found["upper"] - found["lower"] <= 1e-3 and found["lower"] == pytest.approx(19.3713, abs=2e-3)
    assert "2 states, 3 actions, 2 observations, no horizon" in lines[0]
    assert "without a horizon, discounted by 0.95; episodes of 50 steps" in lines[1]
    with np.load(tmp_path / "policy.npz") as policy:
        assert policy["alphas"].shape == (len(policy["actions"]), 2) and not policy["steps_left"].any()
        assert json.loads(str(policy["about"]))["domain"].endswith("tiger.pomdp")


def test_a_file_needs_no_jax() -> None:
    code = f"import sys; from baddr.cli.solve import main; main(['{EXAMPLES / 'tiger.pomdp'}'])\n"
    assert subprocess.run([sys.executable, "-c", code + "sys.exit('jax' in sys.modules)"]).returncode == 0


def test_a_domain_has_its_own_horizon_and_settings(capsys) -> None:
    code, lines, _ = solved(capsys, "tiger", "--domain.horizon", 2, "--domain.discount", 0.5)
    found = json.loads(lines[-1])
    assert code == 0 and lines[0].endswith("2 steps")
    # Listening twice costs 1.5. Opening a door after one listen: -1 + .5 (10 * .85 - 100 * .15) = -4.25.
    assert found["lower"] == pytest.approx(-1.5) and found["upper"] == pytest.approx(-1.5)


def test_a_file_with_a_discount_of_one_is_solved_for_its_episodes(capsys) -> None:
    flags = ["--domain.discount", 1, "--domain.horizon", 2]
    code, lines, _ = solved(capsys, EXAMPLES / "tiger.pomdp", *flags)
    assert code == 0 and lines[0].endswith("2 steps") and "the value of episodes of 2 steps" in lines[1]
    assert json.loads(lines[-1])["lower"] == pytest.approx(-2)  # of listening twice


def test_it_stops_after_the_time_and_says_so(capsys) -> None:
    code, lines, _ = solved(capsys, EXAMPLES / "tiger.pomdp", "--precision", 0, "--seconds", 0.05)
    assert code == 0 and any("more --seconds" in line for line in lines)


def test_a_start_that_is_estimated_is_said(capsys) -> None:
    code, lines, _ = solved(capsys, EXAMPLES / "maintenance.py", "--domain.horizon", 2)
    exact = "estimated from draws" not in " ".join(lines)
    assert code == 0 and exact  # every machine starts whole


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["road-racing", "--domain.lanes", "9"], "90,699,264 states"),
        (["tiger", "--precision", "-1"], "--precision must not be negative"),
        (["tiger", "--seconds", "0"], "--seconds must be positive"),
        (["tiger", "--out", "policy.txt"], "must end in .npz"),
        (["tiger", "--domain.discount", "2"], "domain.discount must lie in"),
        (["nothing.pomdp"], "There is no file"),
        ([], "Name a domain first"),
    ],
)
def test_what_cannot_be_solved_is_refused_in_a_sentence(arguments, says, capsys) -> None:
    code, _, err = solved(capsys, *arguments)
    assert code == 2 and says in err and err.count("\n") == 1
