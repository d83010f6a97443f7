"""A suite's folder that somebody else wrote, or that was put together by hand: no code by surprise, no rows
of other experiments."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.bench.folder import Suite
from baddr.bench.outside import outside
from baddr.bench.scoreboard import write_scoreboard
from baddr.bench.suite import Request, parts
from baddr.cli import main
from baddr.errors import StorageError, UserError
from baddr.files import tables
from baddr.files.store import LARGEST_JSON, read_json
from baddr.files.tables import read_table, write_table
from baddr.files.toml import LARGEST, read_toml, to_toml
from baddr.lab.experiment import preset, to_config
from baddr.lab.results import rows_of
from baddr.paper.folder import Reproduction

MARK = "from pathlib import Path\nPath(__file__ + '.executed').touch()\n"
ASKED = Request(domains=("tiger",), agents=("random",), runs=2, episodes=3)


def exit_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


@pytest.fixture
def evil(tmp_path) -> Path:
    path = tmp_path / "evil.py"
    path.write_text(MARK)
    return path


def suite_that_names(file: Path, at: Path, changed: dict[str, str]) -> Path:
    """A foreign suite. `changed`: its record of the file; nothing: it has none."""
    at.mkdir()
    (at / "suite.toml").write_text(to_toml({"domains": [f"{file}:make_domain"], "agents": ["random"]}))
    record = {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    sources = {"sources": {f"{file}:make_domain": record | changed}} if changed else {}
    (at / "manifest.json").write_text(json.dumps({"status": "running"} | sources))
    return at


@pytest.mark.parametrize("changed", [{}, {"path": "/elsewhere/evil.py"}, {"sha256": "0" * 64}])
@pytest.mark.parametrize("command", ["resume", "add", "join"])
def test_a_suite_executes_no_file_that_is_not_on_record(command, changed, evil, tmp_path, capsys):
    folder = suite_that_names(evil, tmp_path / "foreign", changed)
    write_table(tmp_path / "mine.parquet", {"run": np.zeros(1, int), "episode": np.zeros(1, int)})
    words = {
        "resume": ["resume", folder],
        "add": ["suite", "--add", tmp_path / "mine.parquet", "--name", "mine", "--out", folder],
        "join": ["suite", "--join", folder, "--out", tmp_path / "both"],
    }[command]
    assert exit_of(*words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 550
    assert "was not started with" in error or "has changed since" in error
    assert not (tmp_path / "evil.py.executed").exists() and not (tmp_path / "both").exists()
    assert exit_of(*words, "--trust") == 2
    assert (tmp_path / "evil.py.executed").exists()


def test_a_suite_records_the_files_of_its_domains(evil):
    from baddr.bench.folder import _new_manifest

    evil.write_text((Path(__file__).parents[2] / "examples" / "maintenance.py").read_text())
    request = replace(ASKED, domains=(str(evil),)).resolved
    assert request.domains == (f"{evil}:make_domain",)
    record = _new_manifest(request)["sources"][request.domains[0]]
    assert record == {"path": str(evil), "sha256": hashlib.sha256(evil.read_bytes()).hexdigest()}


def test_two_domains_of_one_name_are_refused(tmp_path):
    """One's parts were taken for the other's."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(Path(__file__).parents[2] / "examples" / "tiger.pomdp", tmp_path / name)
    domains = tuple(str(tmp_path / name / "tiger.pomdp") for name in ("one", "two"))
    with pytest.raises(UserError, match="have the same name"):
        replace(ASKED, domains=domains).check()


def made(path: Path) -> Suite:
    """A finished suite, written by hand."""
    folder = Suite(path)
    folder.request.parent.mkdir()
    asked = {"domains": ["tiger"], "agents": ["random"], "runs": 2, "episodes": 3}
    folder.request.write_text(to_toml(asked))
    run, episode = (x.ravel() for x in np.indices((2, 3)))
    for part in parts(ASKED):
        here = folder.part(part)
        here.path.mkdir(parents=True)
        here.config.write_bytes(to_config(part.experiment))
        here.manifest.write_text('{"status": "complete"}')
        write_table(here.episodes, {"run": run, "episode": episode, "discounted_return": run + 0.5 * episode})
    folder.write_manifest({"status": "complete", "parts": {}, "refused": {}})
    return folder


OTHERS = {
    "agent": preset("tiger", "ba-pomcp"),
    "domain": preset("t-maze", "random"),
    "preset": preset("tiger", "random", "paper"),
    "seed": replace(preset("tiger", "random"), seed=7),
    "runs": replace(preset("tiger", "random"), runs=5),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_part_that_was_not_asked_for_is_refused(what, tmp_path, capsys):
    folder = made(tmp_path / "suite")
    write_scoreboard(folder)
    (part,) = (part for part in parts(ASKED) if part.agent == "random")
    other = OTHERS[what]
    sizes = {"episodes": 3} | ({} if what == "runs" else {"runs": 2})
    folder.part(part).config.write_bytes(to_config(replace(other, **sizes)))
    folder.write_manifest({"status": "running", "parts": {}, "refused": {}})
    with pytest.raises(UserError, match=f"than was asked for .*{what}"):
        write_scoreboard(folder)
    assert exit_of("resume", folder.path) == 2
    assert "holds another experiment" in capsys.readouterr().err


def test_a_suite_that_lacks_a_part_is_not_complete(tmp_path):
    """Also where its manifest says so: resume computes it."""
    folder = made(tmp_path / "suite")
    assert folder.is_complete(ASKED)
    shutil.rmtree(folder.part(next(parts(ASKED))).path)
    assert not folder.is_complete(ASKED)


def test_an_outside_agent_cannot_take_the_place_of_ours(tmp_path, capsys):
    folder = made(tmp_path / "suite")
    rows = {name: np.zeros(1, int) for name in ("run", "episode")} | {"discounted_return": np.ones(1)}
    write_table(tmp_path / "mine.parquet", rows | {"domain": np.array(["tiger"], object)})
    words = ["suite", "--add", tmp_path / "mine.parquet", "--out", folder.path, "--name"]
    assert exit_of(*words, "pomcp") == 2 and "agent of this package" in capsys.readouterr().err
    (folder.path / "outside").mkdir()
    shutil.copy(tmp_path / "mine.parquet", folder.path / "outside" / "pomcp.parquet")
    with pytest.raises(UserError, match="has the name of an agent"):
        outside(folder)


BOUNDS = ["3", "[]", '{"lower": "a"}', '{"lower": 1e999, "upper": 1}', "[" * 10**5]


@pytest.mark.parametrize("content", BOUNDS, ids=range(len(BOUNDS)))
def test_a_foreign_optimum_gets_a_sentence(content, tmp_path):
    folder = made(tmp_path / "suite")
    folder.optimum("tiger").parent.mkdir()
    folder.optimum("tiger").write_text(content)
    with pytest.raises(StorageError, match=r"holds no bounds|cannot be read"):
        write_scoreboard(folder)


def test_a_foreign_timing_and_a_foreign_refusal_get_a_sentence(tmp_path):
    folder = Reproduction(tmp_path)
    folder.timing("x").parent.mkdir(parents=True)
    for content in ("3", "{}", '{"seconds": ["a"]}', '{"seconds": 3}'):
        folder.timing("x").write_text(content)
        with pytest.raises(StorageError, match="holds no seconds"):
            folder.read_timing("x")
    (tmp_path / "manifest.json").write_text('{"refused": {"a": 3}}')
    with pytest.raises(StorageError, match="no sentences"):
        Suite(tmp_path).read_parts()


# Sizes.


def test_what_is_too_large_to_be_ours_is_not_parsed(tmp_path):
    for path, size in ((tmp_path / "a.json", LARGEST_JSON), (tmp_path / "a.toml", LARGEST)):
        with open(path, "wb") as file:
            file.truncate(1000 * size)  # takes no room on the disk
    with pytest.raises(StorageError, match="more than 32 MiB"):
        read_json(tmp_path / "a.json")
    with pytest.raises(UserError, match="too large"):
        read_toml(tmp_path / "a.toml")


def test_a_small_table_cannot_stand_for_a_huge_one(tmp_path, monkeypatch):
    """Rows that are all equal take a few bytes."""
    path, zeros = tmp_path / "episodes.parquet", np.zeros(10**6, int)
    write_table(path, {name: zeros for name in ("run", "episode", "x", "y")})
    assert len(read_table(path)["x"]) == 10**6
    monkeypatch.setattr(tables, "LARGEST_UNASKED", 10**6)
    for read in (read_table, lambda path: list(tables.pieces_of(path))):
        with pytest.raises(StorageError, match="1,000,000 rows of 4 columns"):
            read(path)


def test_words_are_kept_once_and_other_columns_hold_numbers(tmp_path):
    path, long = tmp_path / "a.parquet", np.array(["x" * 10**3] * 10**4, object)
    keys = {"run": np.zeros(10**4, int), "episode": np.arange(10**4)}
    write_table(path, keys | {"domain": long})
    found = read_table(path, words=("domain",))["domain"]
    assert len(found) == 10**4 and found[0] is found[-1]
    with pytest.raises(StorageError, match="'domain' has no numbers"):
        read_table(path)


def test_episodes_that_are_not_counted_from_0_make_no_huge_table(tmp_path):
    from baddr.lab.statistics import per_run

    run = np.arange(1000)
    write_table(
        tmp_path / "episodes.parquet",
        {"run": run, "episode": np.where(run == 0, 10**6, 0), "discounted_return": run * 0.0},
    )
    with pytest.raises(UserError, match="do not count the episodes"):
        per_run(rows_of(tmp_path), "discounted_return")
