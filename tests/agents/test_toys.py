"""A posterior, a planner, a filter and an agent of the user's own are one file each, with all that built-in
ones have. The toys are in toys/."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import baddr
from baddr.agents import AGENTS
from baddr.agents.kinds import with_kind
from baddr.cli import main
from baddr.cli.parse import parse_with_domain
from baddr.cli.run import Run
from baddr.domains import tiger
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.lab import runner
from baddr.lab.experiment import preset

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

TOYS = Path(__file__).parent / "toys"
SIZES = ["--runs", "3", "--chunk-size", "2", "--filter.num-particles", "16"]
HISTORY = '{"episodes": [{"actions": [2, 2], "observations": [[0], [0]]}]}'


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return int(end.value.code or 0)


@pytest.fixture
def toys(tmp_path) -> Path:
    """A folder with the toys, which a test may change."""
    return Path(shutil.copytree(TOYS, tmp_path / "toys"))


@pytest.fixture
def toy(request, toys, monkeypatch) -> list[str]:
    """The flags of an agent with something of the user's own, and with settings of it that are not its
    defaults."""
    monkeypatch.syspath_prepend(toys)
    monkeypatch.setitem(AGENTS, "toy", "toy_agent:Toy")
    search, counts = ["--planner.num-simulations", "8"], ["--agent", "ba-pomcp"]
    learner = [*counts, *search]
    return {
        "posterior": ["--posterior", f"{toys}/toy_posterior.py:weighted", "--posterior.weight", "2", *search],
        "planner": ["--planner.kind", f"{toys}/toy_planner.py:OneStep", "--planner.bonus", "3", *counts],
        "filter": ["--filter.kind", f"{toys}/toy_filter.py:Bootstrap", "--filter.patience", "0.5", *learner],
        "agent": ["--agent", "toy", "--caution.share", "0.25", *search],
    }[request.param]


every_toy = pytest.mark.parametrize("toy", ["posterior", "planner", "filter", "agent"], indirect=True)
LATER = ("planner", "filter", "agent")  # by `make slow`
one_toy = ["posterior", *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)]
OWN_FLAGS = ("--posterior.", "--planner.bonus", "--filter.patience", "--caution.")
SETTINGS = {
    "posterior": ["--posterior", "weight = 2.0"],
    "planner": ["--planner.kind", "bonus = 3.0"],
    "filter": ["--filter.kind", "patience = 0.5"],
    "agent": ["--agent", "share = 0.25"],
}


def interrupted(arguments: list[str], folder: Path) -> None:
    """Run until the first episodes have ended, and stop as by Ctrl-C."""
    experiment = parse_with_domain(Run, "run", arguments, Run).experiment
    stop = lambda rows: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(runner.Interrupted):
        runner.start(experiment, Folder(folder), lambda *news: None, listeners=(stop,))
    assert Folder(folder).read_manifest()["status"] == "running"


def same(one: Path, other: Path) -> bool:
    return (one / "episodes.parquet").read_bytes() == (other / "episodes.parquet").read_bytes()


@pytest.mark.parametrize("toy", one_toy, indirect=True)
def test_a_toy_goes_through_every_command(toy, tmp_path, capsys, request):
    whole, parts, more = (tmp_path / name for name in ("whole", "parts", "more"))
    command = ["tiger", *toy, *SIZES]
    assert baddr_main("run", *command, "--episodes", "24", "--track", "jsonl", "--out", whole) == 0
    assert len((whole / "metrics.jsonl").read_text().splitlines()) >= 3 * 24
    flag, line = SETTINGS[request.node.callspec.params["toy"]]
    config = (whole / "config.toml").read_text().splitlines()
    assert line in config and any(toy[toy.index(flag) + 1] in said for said in config)

    interrupted([*command, "--episodes", "12"], parts)
    assert baddr_main("resume", parts) == 0
    assert len(baddr.load_results(parts)["run"]) == 3 * 12
    assert baddr_main("resume", parts, "--episodes", "24") == 0
    assert same(whole, parts)

    history = tmp_path / "h.json"
    history.write_text(HISTORY)
    capsys.readouterr()
    asked = ["tiger", *toy, "--filter.num-particles", "16", "--history", history]
    assert baddr_main("belief", *asked) == 0
    assert json.loads(capsys.readouterr().out)["num_particles"] == 16
    assert baddr_main("plan", *asked) == 0
    assert len(json.loads(capsys.readouterr().out)["Q"]) == 3
    assert baddr_main("plot", whole, parts, "--out", tmp_path / "curves.png") == 0
    assert baddr_main("compare", whole, parts) == 0
    assert baddr_main("run", *command, "--episodes", "24", "--prior", whole, "--out", more) == 0
    assert not same(whole, more)


@pytest.mark.parametrize("toy", ["posterior"], indirect=True)
def test_a_config_file_and_python_give_the_same_rows(toy, toys, tmp_path):
    flags, config, python = (tmp_path / name for name in ("flags", "config", "python"))
    command = ["tiger", *toy, *SIZES, "--episodes", "2"]
    assert baddr_main("run", *command, "--out", flags) == 0
    again = ["--config", flags / "config.toml", "--out", config]
    assert baddr_main("run", "tiger", *again) == 0
    assert same(flags, config)
    posterior = {"kind": f"{toys}/toy_posterior.py:weighted", "weight": 2.0}
    sizes = {"chunk_size": 2, "filter.num_particles": 16, "planner.num_simulations": 8}
    baddr.run("tiger", "own", runs=3, episodes=2, out=python, posterior=posterior, **sizes)
    assert same(flags, python)


@pytest.mark.slow
@pytest.mark.parametrize("toy", ["planner"], indirect=True)
def test_ray_finds_a_toy_too(toy, tmp_path):
    """In processes of their own: Ray cannot pickle what the tests' type checks are attached to."""
    folders, command = [tmp_path / "local", tmp_path / "ray"], ["tiger", *toy, *SIZES, "--episodes", "2"]
    for folder in folders:
        arguments = ["run", *command, "--engine", folder.name, "--out", str(folder)]
        done = subprocess.run([sys.executable, "-m", "baddr", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert same(*folders)


@every_toy
def test_help_names_the_settings_of_a_toy(toy, capsys):
    assert baddr_main("run", "tiger", *toy, "--help") == 0
    said = capsys.readouterr().out
    own = [word for word in toy if word.startswith(OWN_FLAGS)]
    assert len(own) == 1 and f"{own[0]} X" in said
    if own[0] in ("--filter.patience", "--caution.share"):  # which have a docstring
        assert re.search(rf"{own[0]} X +(The power|How much)", said)


@pytest.mark.parametrize("toy", ["posterior", "planner", "filter"], indirect=True)
def test_a_file_that_has_changed_is_not_resumed(toy, toys, tmp_path, capsys):
    interrupted(["tiger", *toy, *SIZES, "--episodes", "12"], tmp_path / "out")
    (file,) = [Path(word.partition(":")[0]) for word in toy if ".py:" in word]
    file.write_text(file.read_text() + "\nCHANGED = True\n")
    capsys.readouterr()
    assert baddr_main("resume", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert file.name in said and "has changed since the experiment" in said


def test_another_kind_keeps_what_both_have():
    agent = preset("tiger", "ba-pomcp").settings
    agent = replace(agent, filter=replace(agent.filter, num_particles=77, learn_terminal=False))
    mine = with_kind(agent, "filter", f"{TOYS}/toy_filter.py:Bootstrap").filter
    assert (mine.num_particles, mine.learn_terminal, mine.patience) == (77, False, 1.0)


# Bad ones: one sentence, before anything long.

IMPORTS = """
from dataclasses import dataclass
import toy_filter, toy_planner
from toy_posterior import Weighted, weighted
"""
POSTERIOR = """
def make(domain):
    w = weighted(domain)
    return Mine(w.counts, w.sizes, w.weight)

class Mine(Weighted):
    """
PLANNER = """
class make(toy_planner.OneStep):
    def plan(self, *given):
        plan = super().plan(*given)
        """
FILTER = """
class make(toy_filter.Bootstrap):
    def update(self, *given):
        after, info = super().update(*given)
        """
UNHASHABLE = """
@dataclass
class make:
    num_particles: int = 16
    learn_terminal: bool = True
    def update(self, *given):
        return toy_filter.Bootstrap().update(*given)
"""
UPDATE = "def update(self, key, theta, s, a, s_next, o): return "
BAD = [
    ("posterior", "make = 3", "has no class or function 'make'"),
    ("posterior", "def make(scale): return 1", "argument 'scale' of make must be a keyword argument"),
    ("posterior", "def make(domain): return 1", "make must return a baddr Posterior, not a value of type"),
    ("posterior", "def make(domain): return 1 / 0", "line 5: make() raised ZeroDivisionError: division by"),
    ("posterior", "def make(: pass", "line 5: importing it raised SyntaxError"),
    ("posterior", POSTERIOR + "def prior(self, key): return 'x'", "prior(key) must return a pytree of "
     "arrays, and one leaf is of type str"),
    ("posterior", POSTERIOR + "def draw(self, key, theta): return theta.X", "draw(key, theta) raised "
     "AttributeError: 'Counts' object has no attribute 'X' (line 11)"),
    ("posterior", POSTERIOR + "def dynamics(self, theta, epsilon): return theta", "must return a baddr "
     "Dynamics, not a value of type Counts"),
    ("posterior", POSTERIOR + UPDATE + "theta.T", "theta must keep its structure"),
    ("posterior", POSTERIOR + UPDATE + "theta._replace(T=theta.T[0])", "theta.T must stay float32 of shape "
     "(2, 3, 2), not become float32 of shape (3, 2)"),
    ("planner", "class make: pass", "make must return a baddr Planner, not a value of type make"),
    ("planner", PLANNER + "return 1", "must return a baddr Plan, not a value of type int"),
    ("planner", PLANNER + "raise KeyError(1)", "raised KeyError: 1 (line 9)"),
    ("planner", PLANNER + "return plan._replace(num_nodes=plan.Q)", "plan.num_nodes must be an array of "
     "int32 of shape (2,) (runs), not of float32 and shape (2, 3)"),
    ("filter", "class make: pass", "make must return a baddr Filter, not a value of type make"),
    ("filter", FILTER + "return after", "must return Particles and their Info, not a value of type Partic"),
    ("filter", FILTER + "return after, info._replace(impossible=0.0)", "info.impossible must be an array of "
     "bool of shape () (a scalar), not of type float"),
    ("filter", UNHASHABLE, "make cannot be hashed: make it a frozen dataclass"),
]  # fmt: skip


@pytest.mark.parametrize(("group", "source", "sentence"), BAD)
def test_a_bad_one_is_refused_by_a_sentence(group, source, sentence, toys, capsys):
    file = toys / "bad.py"
    file.write_text(IMPORTS + source + "\n")
    kind = [f"--{group}" if group == "posterior" else f"--{group}.kind", f"{file}:make"]
    agent = [] if group == "posterior" else ["--agent", "ba-pomcp"]
    assert baddr_main("run", "tiger", *agent, *kind, "--out", toys / "out") == 2
    said = capsys.readouterr().err.splitlines()[-1]  # it may say before that it is compiling
    assert said.startswith(f"baddr: {file}") and sentence in said
    assert not (toys / "out").exists()


def test_what_is_not_there_is_said(toys, capsys):
    def refused(*flags: object) -> str:
        assert baddr_main("run", "tiger", *flags) == 2
        return capsys.readouterr().err

    assert "There is no file" in refused("--posterior", f"{toys}/none.py:make")
    assert "has no class or function 'none'" in refused("--posterior", f"{toys}/toy_posterior.py:none")
    assert "--posterior must be FILE.py:NAME, not 'counts'" in refused("--posterior", "counts")
    assert "a planner of your own must be FILE.py:NAME" in refused("--planner.kind", f"{toys}/toy_planner.py")
    assert "has no posterior" in refused(
        "--agent", "ba-pomcp", "--posterior", f"{toys}/toy_posterior.py:weighted"
    )
    assert "name it with --posterior" in refused("--agent", "own")


def test_a_value_will_do_in_python(monkeypatch):
    """Nobody can resume it, but it runs; and it is looked at before."""
    monkeypatch.syspath_prepend(TOYS)
    filter, planner, posterior = map(importlib.import_module, ("toy_filter", "toy_planner", "toy_posterior"))
    own = {"planner": planner.OneStep(bonus=3.0), "filter": filter.Bootstrap(16)}
    own["posterior"] = posterior.weighted(tiger.make_domain())
    table = baddr.run("tiger", "own", runs=2, episodes=2, **own)
    assert np.array_equal(table["run"], [0, 0, 1, 1])
    with pytest.raises(UserError, match="planner"):
        baddr.run("tiger", "dpfrl", planner=own["planner"])
    with pytest.raises(UserError, match="Bootstrap: num_particles must be a positive integer, not 0"):
        baddr.run("tiger", "own", **own | {"filter": filter.Bootstrap(0)})
