"""`--dry-run` tells the truth: time from steps that were computed, and a refusal of what does not fit."""

import re
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from baddr.cli import main
from baddr.errors import UserError
from baddr.lab import measure, runner
from baddr.lab.experiment import preset
from baddr.lab.limits import refuse_disk
from baddr.lab.measure import Pace, has_no_figure, pace

MACHINE = str(Path(__file__).parents[2] / "examples" / "machine.pomdp")
RANDOM = preset("tiger", "random")
FEW = RANDOM.changed(filter=replace(RANDOM.settings.filter, num_particles=4))
SMALL = replace(FEW, runs=2, episodes=50, chunk_size=2)


def test_a_pace_is_that_of_the_steps(monkeypatch):
    """By a clock that goes on by a second whenever somebody looks, an advance takes a second."""
    now = iter(range(10**6))
    monkeypatch.setattr(measure.time, "monotonic", lambda: float(next(now)))
    life = runner.resolve(SMALL).life
    found = pace(SMALL, life, seconds=1e9)
    assert found.steps >= 2 and found.seconds > 0 and found.compiling >= 1
    # A random listener of tiger opens a door with probability 2/3: an episode lasts 1.5 steps, of two runs.
    assert 0.3 < found.episodes / 2 < 1.0
    known = Pace(1.0, 10, 5.0, 2.0)
    assert known.of_chunk(SMALL, 30) == pytest.approx(0.5 * 2 * 50 / 2)
    short = pace(SMALL, life, seconds=0.0)
    assert short.of_chunk(SMALL, 30) == pytest.approx(short.seconds / short.steps * 30 * 50)
    assert "until the horizon" in short.text and "until the horizon" not in known.text


def test_what_has_a_figure_is_not_measured():
    assert not has_no_figure(preset("tiger", "pomcp"), "cpu")
    assert has_no_figure(preset("tiger", "random"), "cpu") and has_no_figure(preset(MACHINE, "pomcp"), "cpu")


def test_a_dry_run_of_a_file_takes_steps_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "SECONDS", 0.2)
    small = ["--runs", "2", "--episodes", "3", "--filter.num-particles", "8"]
    with pytest.raises(SystemExit) as exit:
        main(["run", MACHINE, "--agent", "random", *small, "--dry-run"])
    said = capsys.readouterr().out
    assert not exit.value.code and not list(tmp_path.iterdir())
    assert re.search(r"time about [\d.]+ minutes by \d+ steps of a chunk, measured here", said)
    assert said.rstrip().endswith("Nothing was written.")


Usage = namedtuple("Usage", "total used free")  # as shutil has it


@pytest.mark.parametrize("dry", [True, False])
def test_a_disk_that_does_not_suffice_is_refused_before_any_work(dry, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**6, 0, 10**6))
    monkeypatch.setattr(measure, "Chunk", None)  # no step is taken
    rows = ["--runs", "1000", "--episodes", "1000", "--filter.num-particles", "4"]
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", "random", *rows, *(["--dry-run"] if dry else [])])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and "at most 12 runs fit" in error and error.count("\n") <= 2, error
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(SystemExit):
        main(
            [
                "run",
                "tiger",
                "--agent",
                "random",
                "--runs",
                "8",
                "--filter.num-particles",
                "99999",
                "--dry-run",
            ]
        )
    assert re.search(r"Checkpoints of \d+ runs need .* GiB, and the disk has", capsys.readouterr().err)


def test_rows_that_fit_are_not_refused():
    refuse_disk(10, 100, 80 * 1000)
    with pytest.raises(UserError, match="at most 9 runs fit"):
        refuse_disk(10, 100, 80 * 1000 - 1)
    with pytest.raises(UserError, match="at most 50 episodes fit"):
        refuse_disk(1, 100, 80 * 50)
