"""Sizes that cannot fit are refused before any work, with the figure and with what would fit."""

import re
import time
from dataclasses import fields, replace

import pytest
from helpers import EXAMPLES

from baddr.cli import main
from baddr.domains.catalog import DOMAINS, entry
from baddr.errors import UserError
from baddr.files import machine
from baddr.lab import limits
from baddr.lab.experiment import preset
from baddr.lab.limits import domain_problems, refuse_memory, refuse_rows, refuse_time
from baddr.lab.parts import is_preset, refuse_disk_of_all, with_domains

SIZES = [
    (name, f.name)
    for name in DOMAINS
    for f in fields(entry(name).settings)
    if f.type in (int, "int") and f.name not in limits.NO_SIZES
]


@pytest.mark.parametrize(("name", "field"), SIZES)
def test_no_size_of_a_domain_is_boundless(name, field):
    for value in (10**6, 10**9):
        assert domain_problems(replace(entry(name).settings, **{field: value})), value


# By the arithmetic of the machine that it runs on: none of these needs JAX.
TOO_LARGE = [
    (("tiger", "--runs", 10**20), "--runs must be at most 2147483647"),
    (("tiger", "--runs", 10**9), "runs fit"),
    (("tiger", "--episodes", 10**10), "--episodes must be at most"),
    (("tiger", "--episodes", 10**9), "episodes fit"),
    (("tiger", "--chunk-size", 10**20), "--chunk-size must be at most"),
    (("tiger", "--network.layers", 10**6), "network.layers must be at most 128"),
    (("tiger", "--network.hidden", 10**9), "network.hidden must be at most 8,192"),
    (("tiger", "--agent", "latent", "--latent.hidden", 10**9), "latent.hidden must be at most 8,192"),
    (("tiger", "--pretrain.batches", 2 * 10**9), "pretrain.batches must be at most 100,000,000"),
    (("tiger", "--pretrain.num-networks", 10**9), "pretrain.num-networks must be at most 100,000"),
    (("tiger", "--agent", "latent", "--latent.layers", 10**9), "latent.layers must be at most 128"),
    (("tiger", "--agent", "latent", "--latent.steps", 10**9), "latent.steps must be at most 100,000,000"),
    (("tiger", "--agent", "latent", "--latent.simulators", 10**9), "latent.simulators must be at most"),
    (("tiger", "--agent", "bank", "--bank.pool", 10**9), "bank.pool must be at most 100,000"),
    (("tiger", "--agent", "ba-pomcp", "--filter.history", 10**9), "filter.history must lie between 1 and"),
    (("tiger", "--planner.num-particles", 10**9), "planner.num-particles must be at most 1,048,576"),
    (("tiger", "--planner.num-expansions", 10**9), "planner.num-expansions must be at most 1,048,576"),
    (("road-racing", "--domain.lanes", 10**6), "domain.lanes must lie between 1 and 64"),
    (("tiger", "--domain.horizon", 2**31), "domain.horizon must be at most 2147483647"),
    (("tiger", "--planner.depth", 10**10, "--planner.kind", "po-uct"), "planner.depth must be at most"),
]


@pytest.mark.parametrize(("arguments", "sentence"), TOO_LARGE, ids=lambda x: str(x)[:60])
def test_what_cannot_fit_is_refused_before_any_work(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "memory", lambda: 64 << 30)
    monkeypatch.chdir(tmp_path)
    started = time.process_time()
    with pytest.raises(SystemExit) as exit:
        main(["run", *map(str, arguments)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and sentence in error, error
    assert error.count("\n") <= 2 and len(error) < 500 and time.process_time() - started < 20
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("suite", "--runs", 10**20), "--runs must be at most 2147483647"),
        (("suite", "--runs", 10**9), "runs fit"),
        (("suite", "--episodes", 10**10), "--episodes must be at most 2147483647"),
        (("suite", "--trainings", 10**9), "--trainings must be at most 1,000"),
        (("reproduce", "a", "--runs", 10**20), "--runs must be at most 2147483647"),
        (("reproduce", "a", "--runs", 10**9), "runs fit"),
        (("reproduce", "a", "--ensembles", 10**9), "--ensembles must be at most 1,000"),
    ],
    ids=lambda x: str(x)[:60],
)
def test_all_parts_of_a_suite_or_a_figure_are_looked_at_first(
    arguments, sentence, tmp_path, monkeypatch, capsys
):
    """Before there is a folder, which nobody could resume."""
    monkeypatch.setattr(machine, "memory", lambda: 64 << 30)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main([*map(str, arguments)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and sentence in error, error
    assert error.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--planner.num-simulations", 10**9), r"num-simulations (must be at most|[\d,]+ would fit)"),
        (("--filter.num-particles", 10**9), r"--filter.num-particles [\d,]+ would fit"),
        (("--chunk-size", 10**9), r"--chunk-size [\d,]+ fits"),
        (
            ("--planner.in-flight", 10**9, "--planner.num-simulations", 10**6),
            r"--planner.num-simulations [\d,]+ would fit",
        ),
    ],
)
def test_what_cannot_fit_the_memory_is_refused(flags, sentence, tmp_path, monkeypatch, capsys):
    """From shapes alone: nothing is allocated."""
    monkeypatch.setattr(machine, "memory", lambda: 64 << 30)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", "ba-pomcp", "--planner.kind", "po-uct", *map(str, flags)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and re.search(sentence, error), error
    assert error.count("\n") <= 2 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("agent", "flag"), [("baddr", "--pretrain.batch-size"), ("latent", "--latent.batch-size")]
)
def test_what_training_needs_is_compared_too(agent, flag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("baddr.fast.backend.memory", lambda: 64 << 30)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", agent, flag, str(10**9)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and re.search(rf"Training needs .*: {flag} [\d,]+ would fit", error), error
    assert error.count("\n") <= 2 and not list(tmp_path.iterdir())


MACHINE = str(EXAMPLES / "machine.pomdp")
SMALL = ("--agent", "ba-pomcp", "--planner.kind", "po-uct", "--planner.num-simulations", 8, "--runs", 2)


@pytest.mark.parametrize(
    ("arguments", "memory", "sentence"),
    [
        (
            ("sweep", "tiger", *SMALL, "--over", "filter.num-particles=8,1000000000"),
            64 << 30,
            r"num-particles=1000000000: A run needs .* would fit",
        ),
        (
            ("suite", "--agents", "random", "--domains", MACHINE),
            1000,
            "machine.pomdp-prior-only-0: A run needs",
        ),
    ],
    ids=lambda x: str(x)[:20],
)
def test_no_part_starts_before_all_are_known_to_fit(
    arguments, memory, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("baddr.fast.backend.memory", lambda: memory)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main([*map(str, arguments)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and re.search(sentence, error), error
    assert error.count("\n") <= 2 and not list(tmp_path.iterdir())


def test_the_rows_of_all_parts_must_fit_the_disk():
    one = replace(preset("tiger", "random"), runs=1000, episodes=1000)
    parts = list(with_domains([("first", one), ("second", replace(one, seed=1))]))
    assert parts[0].domain is parts[1].domain and is_preset(one)
    assert not is_preset(one.changed(filter=replace(one.settings.filter, num_particles=7)))
    refuse_disk_of_all((one, one), 2 * 10**6 * limits.BYTES_PER_ROW)
    with pytest.raises(UserError, match=r"All parts produce 0.1 GiB of rows, and the disk has 0.1 GiB free"):
        refuse_disk_of_all((one, one), 2 * 10**6 * limits.BYTES_PER_ROW - 1)


def test_the_particles_of_a_belief_without_a_model_are_counted(tmp_path, monkeypatch, capsys):
    """Their states are small; what an update makes of them is not."""
    monkeypatch.setattr(machine, "memory", lambda: 64 << 30)
    monkeypatch.setattr("baddr.fast.backend.memory", lambda: 64 << 30)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", "random", "--filter.num-particles", str(10**9)])
    error = capsys.readouterr().err
    assert exit.value.code == 2 and re.search(r"--filter.num-particles [\d,]+ would fit", error), error
    assert not list(tmp_path.iterdir())


def test_what_would_fit_does(monkeypatch):
    """The setting that makes a run large is found, and the value that is named fits; twice as much and a bit
    would not, four times as much never."""
    experiment = preset("tiger", "pomcp", kinds={"planner": "po-uct"})
    settings = experiment.settings
    large = experiment.changed(filter=replace(settings.filter, num_particles=10**7))
    bytes_of = lambda e: 1000 * e.settings.filter.num_particles + e.settings.planner.num_simulations
    with pytest.raises(UserError, match=r"--filter.num-particles 524,288 would fit, not 10,000,000"):
        refuse_memory(large, bytes_of, 10**9, 1)
    square = lambda e: e.settings.filter.num_particles**2
    with pytest.raises(UserError, match=r"--filter.num-particles 16,384 would fit, not 10,000,000"):
        refuse_memory(large, square, 10**9, 1)
    with pytest.raises(UserError, match=r"--chunk-size 9 fits"):
        refuse_memory(experiment, lambda e: 10**8, 10**9 - 1, 10)
    refuse_memory(experiment, lambda e: 10**8, 10**9, 10)


def test_rows_and_time(monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: 8000 * limits.BYTES_PER_ROW)
    refuse_rows(80, 100)
    with pytest.raises(UserError, match="at most 80 runs fit"):
        refuse_rows(81, 100)
    with pytest.raises(UserError, match="at most 4,000 episodes fit"):
        refuse_rows(2, 10_000)
    with pytest.raises(UserError, match="at most 8,000 episodes of all runs together fit"):
        refuse_rows(10**9, 10**9)
    refuse_time(limits.LONGEST, 10)
    with pytest.raises(UserError, match="about 1,000 years; 100 of the 1,000 runs would finish within 100"):
        refuse_time(10 * limits.LONGEST, 1000)
