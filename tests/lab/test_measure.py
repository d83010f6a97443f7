"""`--dry-run` tells the truth: time from steps that were computed, and a refusal of what does not fit."""

import re
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.agents.base import Built
from baddr.agents.life import Life
from baddr.cli import main
from baddr.errors import UserError
from baddr.lab import measure, runner
from baddr.lab.experiment import preset
from baddr.lab.limits import refuse_disk
from baddr.lab.measure import Pace, pace, said, trained

MACHINE = str(Path(__file__).parents[2] / "examples" / "machine.pomdp")
RANDOM = preset("tiger", "random")
FEW = RANDOM.changed(filter=replace(RANDOM.settings.filter, num_particles=4))
SMALL = replace(FEW, runs=2, episodes=50, chunk_size=2)


def built() -> Built:
    return runner.sized(SMALL, runner.build_domain(SMALL), runner.LOCAL.place())[1]


def test_a_pace_is_that_of_the_steps(monkeypatch):
    """By a clock that goes on by a second whenever somebody looks."""
    now = iter(range(10**6))
    monkeypatch.setattr(measure.time, "monotonic", lambda: float(next(now)))
    found = pace(SMALL, built(), 30, 1, seconds=1e9)
    assert found.known and found.steps >= 2 and found.step > 0 and found.compiling >= 1
    # A random listener of tiger opens a door with probability 2/3: an episode lasts 1.5 steps.
    assert 1 <= found.length < 3
    monkeypatch.setattr(measure, "_walk", lambda *_: (3, np.ones(1)))  # steps, and ended episodes' lengths
    short = pace(SMALL, built(), 30, 1)
    assert short.length == 30 and "until the horizon, 30 steps" in short.text(50, 1)


def test_the_time_is_that_of_training_compilation_and_steps():
    found = Pace(training=100.0, compiling=10.0, steps=8, step=0.5, length=4.0)
    assert found.seconds(episodes=50, turns=3) == pytest.approx(110 + 0.5 * 4 * 50 * 3)
    assert found.text(50, 3) == (
        "measured over 8 steps: 500 ms each, episodes of 4.0 steps; plus 10 seconds of compilation, "
        "100 seconds of training"
    )
    learner = found._replace(training=0.0, growth=5.0)
    assert "up to 25 minutes if they last until the horizon" in learner.text(50, 3)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "12 ms"),
        (1.26, "1.3 seconds"),
        (119.0, "120 seconds"),
        (130.0, "2.2 minutes"),
        (3599.0, "60 minutes"),
        (40_000.0, "11 hours"),
        (8.7e6, "100 days"),
    ],
)
def test_times_are_said_as_well_as_they_are_known(seconds, words):
    assert said(seconds) == words


def of_training(life: Life, batches: int, seconds: float, clock: list[float]) -> Built:
    """A prior whose batches take so long, and the first of them 5 seconds more, to compile."""

    def train(progress):
        clock[0] += 5.0
        for done in range(1, batches + 1):
            clock[0] += seconds
            progress(done, batches, 0.0)
        return life, None

    return Built(life, train)


def test_short_training_is_done_and_long_training_is_foreseen(monkeypatch):
    clock, life = [0.0], built().life
    monkeypatch.setattr(measure.time, "monotonic", lambda: clock[0])
    assert trained(of_training(life, 16, 0.25, clock), most=10.0) == (life, 0.0)
    clock[0] = 0.0
    assert trained(of_training(life, 16, 4.0, clock), most=10.0)[1] == 5.0 + 16 * 4.0
    assert clock[0] == 13.0  # after two batches it is known


def test_a_dry_run_of_a_file_takes_steps_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "SECONDS", 0.2)
    small = ["--runs", "2", "--episodes", "3", "--filter.num-particles", "8"]
    with pytest.raises(SystemExit) as exit:
        main(["run", MACHINE, "--agent", "random", *small, "--dry-run"])
    told = capsys.readouterr().out
    assert not exit.value.code and not list(tmp_path.iterdir())
    assert re.search(r"time (at most )?about [\d.]+ \w+: measured over \d+ steps", told)
    assert told.rstrip().endswith("Nothing was written.")


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
