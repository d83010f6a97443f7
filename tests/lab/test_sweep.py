"""Sweeps: the combinations, their folders, and that each is the run that its flags alone would have made."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from baddr import load_results
from baddr.cli import main
from baddr.cli.sweep import _parts
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.lab import sweep
from baddr.lab.experiment import preset
from baddr.lab.statistics import Estimate

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

RANDOM = ["tiger", "--agent", "random", "--runs", 2, "--chunk-size", 2]
OVER = ["--over", "seed=1,2", "--over", "domain.discount=.5"]


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def test_every_value_meets_every_value():
    over = sweep.parse_over(["dpfrl.learning-rate=1e-4, 1e-3", "--dpfrl.num-particles=15,30"])
    found = list(sweep.combinations(over))
    assert [tuple(c.values()) for c in found] == [
        ("1e-4", "15"),
        ("1e-4", "30"),
        ("1e-3", "15"),
        ("1e-3", "30"),
    ]
    assert sweep.flags(found[1], preset("tiger", "dpfrl")) == [
        "--dpfrl.learning-rate",
        "1e-4",
        "--dpfrl.num-particles",
        "30",
    ]
    assert sweep.label(found[1]) == "learning-rate=1e-4,num-particles=30"


def test_labels_are_folder_names_and_differ():
    both = {"network.hidden": "32 32", "dpfrl.hidden": "8"}
    assert sweep.label(both) == "network.hidden=32-32,dpfrl.hidden=8"
    assert sweep.flags(both, preset("tiger")) == ["--network.hidden", "32", "32", "--dpfrl.hidden", "8"]
    assert "/" not in sweep.label({"prior": "results/a"})


def test_a_flag_is_swept_over_by_true_and_false():
    on, off = ["--network.redraw-masks"], ["--network.no-redraw-masks"]
    over = sweep.parse_over(["network.redraw-masks=true,False,yes,no"])
    found = [sweep.flags(c, preset("tiger")) for c in sweep.combinations(over)]
    assert found == [on, off, on, off]
    choices = {"keep-beliefs": "yes", "factored.structure": "true"}
    words = ["--keep-beliefs", "yes", "--factored.structure", "true"]
    assert sweep.flags(choices, preset("tiger", "fba-pomcp")) == words
    assert sweep.is_given(["tiger", "--network.no-redraw-masks"], "network.redraw-masks")
    assert sweep.is_given(["tiger", "--network.redraw-masks"], "network.redraw-masks")
    assert sweep.is_given(["tiger", "--seed=3"], "seed") and not sweep.is_given(
        ["tiger", "--runs", "3"], "seed"
    )
    assert not sweep.is_given(["tiger", "--over", "--seed=1,2"], "seed")


def test_parts_of_a_swept_flag_differ_in_it(tmp_path, capsys):
    command = ["sweep", "tiger", "--over", "network.redraw-masks=true,false", "--out", tmp_path / "sweep"]
    assert baddr_main(*command, "--network.redraw-masks", "--dry-run") == 2
    assert "is both set and swept over" in capsys.readouterr().err
    parts = _parts(tmp_path, ["network.redraw-masks=true,false"], ["tiger"])
    assert [part.experiment.settings.network.redraw_masks for part in parts] == [True, False]


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ([], "Name what to sweep over"),
        (["agent"], "must be NAME=VALUE"),
        (["agent=dpfrl,"], "must be NAME=VALUE"),
        (["=1,2"], "must be NAME=VALUE"),
        (["seed=1,1"], "twice"),
        (["seed=1", "seed=2"], "twice"),
    ],
)
def test_what_cannot_be_swept_over(texts, complaint):
    with pytest.raises(UserError, match=complaint):
        sweep.parse_over(texts)


def test_the_table_has_the_best_first(tmp_path):
    experiment = preset("tiger", "random")
    parts = [sweep.make_part(tmp_path, {"seed": str(i)}, replace(experiment, seed=i)) for i in range(3)]
    number = lambda x: Estimate(x, x - 1, x + 1)
    rows = [
        {"final": number(x), "area": number(2 * x), "episodes_to_level": number(to)}
        for x, to in ((1.0, 30.0), (3.0, float("inf")), (2.0, 7.0))
    ]
    lines = [line.split() for line in sweep.table(parts, rows, 2.5)]
    assert lines[0][0] == "seed" and lines[0][-3:] == ["episodes", "to", "2.5"]
    assert lines[1:] == [
        ["1", "3.000", "[2.000,", "4.000]", "6.000", "never"],
        ["2", "2.000", "[1.000,", "3.000]", "4.000", "7"],
        ["0", "1.000", "[0.000,", "2.000]", "2.000", "30"],
    ]


def test_a_sweep_is_its_runs_and_goes_on(tmp_path, capsys):
    """Parts equal runs of their own; a second call computes what is missing, and more episodes add to it."""
    command = ["sweep", *RANDOM, *OVER, "--out", tmp_path / "sweep"]
    assert baddr_main(*command, "--episodes", 3, "--level", -1000) == 0
    out = capsys.readouterr().out
    assert "episodes to -1000" in out and (tmp_path / "sweep" / "curves.png").exists()
    flags = ["--seed", 2, "--domain.discount", 0.5, "--episodes", 3, "--out", tmp_path / "run"]
    assert baddr_main("run", *RANDOM, *flags) == 0
    part = tmp_path / "sweep" / "seed=2,discount=.5"
    whole, alone = load_results(part), load_results(tmp_path / "run")
    for name, column in alone.items():
        np.testing.assert_array_equal(whole[name], column)
    others = {load_results(p)["discounted_return"].sum() for p in (tmp_path / "sweep").glob("seed*")}
    assert len(others) == 2

    shutil.rmtree(part)
    capsys.readouterr()
    assert baddr_main(*command, "--episodes", 3) == 0
    assert capsys.readouterr().out.count("is complete.") == 1
    np.testing.assert_array_equal(load_results(part)["return"], alone["return"])

    assert baddr_main(*command, "--episodes", 5) == 0
    assert "is complete" not in capsys.readouterr().out
    longer = load_results(part)
    np.testing.assert_array_equal(longer["return"][longer["episode"] < 3], alone["return"])
    assert list(longer["episode"]) == [0, 1, 2, 3, 4] * 2

    assert baddr_main(*command, "--episodes", 5, "--domain.accuracy", 0.7) == 2
    assert "holds another experiment" in capsys.readouterr().err


def test_all_parts_are_checked_before_the_first_begins(tmp_path, capsys):
    command = ["sweep", "tiger", "--agent", "dpfrl", "--out", tmp_path / "sweep"]
    for over, complaint in (
        ("dpfrl.resampling=.5,2", "dpfrl.resampling must lie in [0, 1]"),
        ("dpfrl.lerning-rate=1", "perhaps you meant --dpfrl.learning-rate"),
        ("agent=dpfrl,a2c", "--agent is both set and swept over"),
    ):
        assert baddr_main(*command, "--over", over) == 2
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()
    (tmp_path / "sweep" / "actors=2").mkdir(parents=True)
    (tmp_path / "sweep" / "actors=2" / "mine.txt").touch()
    assert baddr_main(*command, "--over", "dpfrl.actors=1,2") == 2
    assert not Folder(tmp_path / "sweep" / "actors=1").path.exists()
