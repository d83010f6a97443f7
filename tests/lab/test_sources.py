"""A result folder executes no code by surprise."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import baddr
from baddr.cli import main
from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.tables import write_table
from baddr.lab.experiment import of_folder, preset, to_config
from baddr.lab.prior import check_prior

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

MARK = "from pathlib import Path\nPath(__file__ + '.executed').touch()\n"


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def evil(tmp_path) -> Path:
    path = tmp_path / "evil.py"
    path.write_text(MARK)
    return path


def folder_that_names(path: Path, at: Path, manifest: dict) -> Folder:
    """A foreign folder: config.toml names the file as the domain."""
    at.mkdir()
    text = to_config(preset("tiger", "ba-pomcp")).decode()
    (at / "config.toml").write_text(text.replace('name = "tiger"', f'name = "{path}:make_domain"'))
    whole = {"status": "complete", "seeds": {}, "chunks": [[0, 32]], "wall_seconds": 0.0}
    (at / "manifest.json").write_text(json.dumps(whole | manifest))
    return Folder(at)


def exit_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def record(file: Path, **changed: str) -> dict:
    return {"sources": {"domain": {"path": str(file), "sha256": hash_of(file)} | changed}}


@pytest.mark.parametrize("command", [("resume",), ("compare", "--reference", "optimum")])
@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (lambda path: {}, "was not started with"),
        (lambda path: {"domain": "tiger"}, "has changed since"),
        (lambda path: record(path, path="/elsewhere/evil.py"), "was not started with"),
        (lambda path: record(path, sha256="0" * 64), "has changed since"),
        (lambda path: {"sources": {"domain": 3}, "domain": 3}, "is not a manifest"),
    ],
)
def test_a_file_that_differs_from_the_record_is_not_executed(
    command, manifest, sentence, evil, tmp_path, capsys
):
    folder = folder_that_names(evil, tmp_path / "foreign", manifest(evil))
    if command[0] == "compare":
        rows = {"run": [0], "episode": [0], "return": [0.0], "discounted_return": [0.0], "length": [1]}
        write_table(folder.episodes, {name: np.asarray(x) for name, x in rows.items()})
    assert exit_of(command[0], folder.path, *command[1:]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "evil.py.executed").exists()


def test_a_file_within_the_folder_is_not_executed(tmp_path, capsys):
    (tmp_path / "foreign").mkdir()
    evil = tmp_path / "foreign" / "evil.py"
    evil.write_text(MARK)
    saved = record(evil)
    shutil.rmtree(tmp_path / "foreign")
    folder = folder_that_names(evil, tmp_path / "foreign", saved)
    evil.write_text(MARK)
    assert exit_of("resume", folder.path) == 2
    assert "nothing was executed" in capsys.readouterr().err
    assert not (folder.path / "evil.py.executed").exists()


@pytest.mark.parametrize("command", ["resume", "explore"])
def test_trust_executes_it(command, evil, tmp_path, capsys):
    folder = folder_that_names(evil, tmp_path / "foreign", {})
    assert exit_of(command, folder.path) == 2 and "was not started with" in capsys.readouterr().err
    assert not (tmp_path / "evil.py.executed").exists()
    assert exit_of(command, folder.path, "--trust") == 2
    assert "has no function 'make_domain'" in capsys.readouterr().err
    assert (tmp_path / "evil.py.executed").exists()


@pytest.mark.parametrize("group", ["planner", "filter"])
def test_a_planner_that_differs_is_not_executed(group, evil, tmp_path):
    (tmp_path / "foreign").mkdir()
    text = to_config(preset("tiger", "ba-pomcp", kinds={"planner": "po-uct"})).decode()
    kind = {"planner": "po-uct", "filter": "importance"}[group]
    text = text.replace(f'kind = "{kind}"', f'kind = "{evil}:Mine"')
    (tmp_path / "foreign" / "config.toml").write_text(text)
    (tmp_path / "foreign" / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="was not started with"):
        of_folder(Folder(tmp_path / "foreign"))
    assert not (tmp_path / "evil.py.executed").exists()


def test_prior_compares_names_before_it_loads(evil, tmp_path):
    """The other folder names a file that this experiment does not: it is refused, not executed."""
    folder = folder_that_names(evil, tmp_path / "foreign", record(evil))
    with pytest.raises(UserError, match="same agent on the same domain"):
        check_prior(preset_with_prior("tiger", folder))
    (tmp_path / "other").mkdir()
    text = to_config(preset("tiger", "ba-pomcp", kinds={"planner": "po-uct"})).decode()
    text = text.replace('kind = "po-uct"', f'kind = "{evil}:Mine"')
    (tmp_path / "other" / "config.toml").write_text(text)
    (tmp_path / "other" / "manifest.json").write_bytes(folder.manifest.read_bytes())
    check_prior(preset_with_prior("tiger", Folder(tmp_path / "other")))  # whoever planned: the belief fits
    assert not (tmp_path / "evil.py.executed").exists()


def preset_with_prior(name: str, folder: Folder):
    return replace(preset(name, "ba-pomcp"), prior=str(folder.path))


SMALL = {"planner.kind": "uniform", "filter.num_particles": 8, "filter.rejuvenate": False}
SMALL |= {"chunk_size": 2, "runs": 2, "episodes": 1}


def test_a_prior_is_copied_and_nothing_is_changed_there(tmp_path, monkeypatch):
    """The path is absolute, the other folder may go, and a damaged checkpoint stays where it is."""
    baddr.run("tiger", "ba-pomcp", out=tmp_path / "first", keep_beliefs="yes", **SMALL)
    first = Folder(tmp_path / "first")
    damaged = first.path / "checkpoints" / "chunk-00000" / "99999999.ckpt"
    damaged.write_bytes(b"nonsense")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="is damaged"):
        rows = baddr.run("tiger", "ba-pomcp", out="second", prior="first", keep_beliefs="yes", **SMALL)
    assert damaged.exists()
    second = Folder(tmp_path / "second")
    assert of_folder(second).prior == str(tmp_path / "first")
    shutil.rmtree(first.path)
    monkeypatch.chdir("/")
    assert exit_of("resume", second.path, "--runs", 4) == 0
    longer = baddr.load_results(second.path)
    assert [tuple(longer[x][:2]) for x in rows] == [tuple(rows[x]) for x in rows] and len(longer["run"]) == 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": "running"}, "is not finished"),
        ({"lanes": 4}, "same domain of the same size"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(change, sentence, tmp_path):
    (tmp_path / "first").mkdir()
    text = to_config(preset("road-racing", "fba-pomcp")).decode()
    manifest = {"status": "complete", "seeds": {}, "chunks": [[0, 32]], "wall_seconds": 0.0}
    if "lanes" in change:
        text = text.replace("lanes = 3", "lanes = 4")
    else:
        manifest |= change
    (tmp_path / "first" / "config.toml").write_text(text)
    (tmp_path / "first" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=sentence):
        check_prior(replace(preset("road-racing", "fba-pomcp"), prior=str(tmp_path / "first")))
