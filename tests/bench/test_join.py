"""Suites that were computed apart, as one."""

import json

import numpy as np
import pytest

from baddr.bench.folder import Suite
from baddr.bench.join import join
from baddr.bench.scoreboard import scoreboard
from baddr.bench.suite import Request, parts
from baddr.cli.suite import main
from baddr.errors import UserError
from baddr.files.tables import write_table
from baddr.files.toml import to_toml
from baddr.lab.experiment import to_config

VALUES = {"prior-only": 0.0, "pomcp": 4.0, "bank": 3.0, "ba-pomcp": 2.0, "random": 1.0}


def made(path, domain, agent, seconds, runs=4, shift=0.0):
    """A finished suite whose parts are written by hand; `shift` says which suite a row is from."""
    folder = Suite(path)
    asked = {"domains": (domain,), "agents": (agent,), "runs": runs, "episodes": 10}
    path.mkdir()
    folder.request.write_text(to_toml({name: list(x) if name[0] in "da" else x for name, x in asked.items()}))
    noted = {}
    for part in parts(Request(**asked)):
        here = folder.part(part)
        here.path.mkdir(parents=True)
        here.config.write_bytes(to_config(part.experiment))
        here.manifest.write_text('{"status": "complete"}')
        run, episode = (x.ravel() for x in np.indices((runs, 10)))
        returns = VALUES[part.agent] + shift + 0.01 * run
        write_table(here.episodes, {"run": run, "episode": episode, "discounted_return": returns})
        noted[part.name] = {"seconds": seconds, "memory_bytes": 1, "failures": 0}
    folder.write_manifest({"status": "complete", "device": "cpu", "parts": noted, "refused": {}})
    folder.optimum(domain).parent.mkdir()
    folder.optimum(domain).write_text('{"lower": 4, "upper": 5}')
    return folder


def test_a_joined_suite_has_the_parts_the_costs_and_the_optima_of_all(tmp_path):
    sources = [
        made(tmp_path / "one", "tiger", "ba-pomcp", 1.0),
        made(tmp_path / "two", "tiger", "random", 2.0, shift=0.5),
        made(tmp_path / "three", "t-maze", "random", 3.0),
    ]
    folder = Suite(tmp_path / "all")
    assert join(folder, sources) == 1  # ba-pomcp on the T-maze: nobody has computed it
    assert folder.status == "running" and folder.read_request().chosen_domains == ["tiger", "t-maze"]
    found = scoreboard(folder)["domains"]
    assert [*found] == ["tiger", "t-maze"] and all(x["references"]["optimum"] for x in found.values())
    tiger = found["tiger"]
    assert tiger["references"]["truth"] == pytest.approx(4.015)  # the first one's, not the second's
    assert {name: x["seconds"] for name, x in tiger["agents"].items()} == {
        "bank": 1.0,
        "ba-pomcp": 1.0,
        "random": 2.0,
    }
    assert tiger["agents"]["random"]["final"][0] == pytest.approx(1.5 / 4)
    whole = Suite(tmp_path / "whole")
    assert join(whole, sources[:2]) == 0 and whole.status == "complete"


def test_only_suites_of_the_same_sizes_are_joined(tmp_path):
    sources = [made(tmp_path / str(runs), "tiger", "random", 1.0, runs=runs) for runs in (3, 4)]
    with pytest.raises(UserError, match=r"has runs 4, and .* has 3"):
        join(Suite(tmp_path / "all"), sources)
    assert not (tmp_path / "all").exists()
    with pytest.raises(UserError, match="holds no suite"):
        join(Suite(tmp_path / "all"), [sources[0], Suite(tmp_path)])
    with pytest.raises(UserError, match="already holds a suite"):
        join(sources[1], sources[:1])


def test_the_command_says_what_is_missing(tmp_path, capsys):
    for domain, agent in (("tiger", "ba-pomcp"), ("t-maze", "random")):
        made(tmp_path / domain, domain, agent, 1.0)
    out = tmp_path / "all"
    assert main(["--join", str(tmp_path / "tiger"), str(tmp_path / "t-maze"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "2 part(s) are not computed yet" in said and "random       score   0.25" in said
    assert json.loads((out / "suite.json").read_text())["status"] == "running"
