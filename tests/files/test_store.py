"""Result folders: nothing half-written, damage noticed, one owner."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.errors import StorageError, UserError
from baddr.files import store
from baddr.files.store import Folder
from baddr.lab.experiment import extend, from_toml, of_folder, preset, to_config


def test_a_checkpoint_survives_the_round_trip(tmp_path):
    folder = Folder(tmp_path)
    arrays = {"a": np.arange(5), "b/c": np.array([[1.5, -np.inf]], np.float32)}
    folder.save(3, arrays)
    loaded = folder.load(3)
    assert loaded is not None and loaded.keys() == arrays.keys()
    assert all(np.array_equal(loaded[k], arrays[k]) and loaded[k].dtype == arrays[k].dtype for k in arrays)
    assert folder.load(0) is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path, damage):
    folder = Folder(tmp_path)
    for i in range(4):
        folder.save(0, {"i": np.array(i)})
    files = sorted((tmp_path / "checkpoints" / "chunk-00000").iterdir())
    assert len(files) == store.KEPT
    data = bytearray(files[-1].read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    files[-1].write_bytes({"truncate": data[:100], "flip": data, "empty": b""}[damage])
    with pytest.warns(UserWarning, match="damaged"):
        loaded = folder.load(0)
    assert loaded is not None and loaded["i"] == 2
    folder.save(0, {"i": np.array(9)})
    assert folder.load(0)["i"] == 9  # type: ignore[index]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_failed_write_leaves_the_old_file_and_says_why(tmp_path, monkeypatch, code):
    path = tmp_path / "file"
    store.write(path, b"old")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=os.strerror(code).lower()):
        store.write(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_settings_survive_the_round_trip_through_toml(tmp_path):
    experiment = preset("tiger", "pomcp", "paper")
    experiment = replace(experiment, seed=7)
    experiment = experiment.changed(planner=replace(experiment.settings.planner, exploration=3.5))
    (tmp_path / "config.toml").write_bytes(to_config(experiment))
    (tmp_path / "manifest.json").write_text("{}")
    assert of_folder(Folder(tmp_path)) == experiment


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[planner]\ndepht = 3", "no setting 'depht'"),
        ("[planner]\ndepth = 'x'", "must be of type int"),
        ("planner = 3", "must be a table"),
        ("runs = [", "not valid TOML"),
        ("name = 'road-racing'", "is for the domain"),
        ("runs = true", "must be of type int"),
    ],
)
def test_a_wrong_config_file_gets_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        from_toml(path, preset("tiger"))


def test_config_files_replace_the_preset(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("runs = 5\n[planner]\nexploration = 3\nnum-simulations = 7\n")
    experiment = from_toml(path, preset("tiger", kinds={"planner": "po-uct"}))
    assert experiment.runs == 5 and experiment.settings.planner.num_simulations == 7
    assert experiment.settings.planner.exploration == 3.0 and isinstance(
        experiment.settings.planner.exploration, float
    )


def test_an_experiment_can_only_grow():
    experiment = preset("tiger")
    assert extend(experiment, 100, None).runs == 100
    with pytest.raises(UserError, match="only grow"):
        extend(experiment, 1, None)


def test_a_folder_has_one_owner(tmp_path):
    with Folder(tmp_path / "f").owned():
        with pytest.raises(UserError, match="Another program"):
            with Folder(tmp_path / "f").owned():
                pass
    with Folder(tmp_path / "f").owned():
        pass


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        Folder(tmp_path).check_new()
    with pytest.raises(UserError, match="holds no experiment"):
        Folder(tmp_path).check_existing()
    Folder(Path(tmp_path / "new")).check_new()


def test_what_a_damaged_checkpoint_notes_is_not_read(tmp_path):
    """Cut anywhere, or with any byte changed: no note, or the one that was there."""
    folder = Folder(tmp_path)
    folder.save(0, {"note": np.frombuffer(b'{"tie": 1}', np.uint8), "state/0": np.zeros(4)})
    (path,) = (tmp_path / "checkpoints" / "chunk-00000").iterdir()
    whole = path.read_bytes()
    assert folder.note(0) == {"tie": 1}
    for i in range(len(whole)):
        path.write_bytes(whole[:i])
        assert folder.note(0) is None
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        assert folder.note(0) in (None, {"tie": 1})
