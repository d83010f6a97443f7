"""Hostile and unlucky input: odd names, foreign files, an unwritable cache, two programs at once."""

import json
import os
import shutil
import stat
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.bench.folder import Suite
from baddr.bench.scoreboard import write_scoreboard
from baddr.cli import main
from baddr.cli.folders import interruptible, new_folder, stem_of
from baddr.errors import ClusterError, StorageError, UserError
from baddr.files import cache
from baddr.files.store import Folder, load_results
from baddr.files.tables import write_table
from baddr.files.writing import LONGEST_NAME, file_name, write
from baddr.lab import cluster, runner
from baddr.lab.experiment import preset, to_config
from baddr.lab.output import Visible, sentence, visible
from baddr.lab.plots import plot_curves
from baddr.lab.track import JSONL, trackers
from baddr.paper.folder import Reproduction

ROWS = {"run": [0, 0], "episode": [0, 1], "return": [1.0, 2.0], "discounted_return": [1.0, 2.0]}
ROWS = {name: np.asarray(values) for name, values in ROWS.items()} | {"length": np.array([1, 1])}
WHOLE = {"status": "running", "seeds": {"streams": 1}, "chunks": [[0, 1]], "wall_seconds": 0.0}


def exit_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def result(path: Path, **manifest: object) -> Folder:
    """A folder as a run leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_bytes(to_config(preset("tiger", "pomcp")))
    (path / "manifest.json").write_text(json.dumps(WHOLE | manifest))
    write_table(path / "episodes.parquet", ROWS)
    return Folder(path)


# Files of somebody else.

DEEP = 100_000
FOREIGN = {
    "manifest.json": [
        b"",
        b"[]",
        b"3",
        b"\xff\xfe",
        b"[" * DEEP,
        b'{"a":' * DEEP,
        json.dumps(WHOLE | {"chunks": 3}).encode(),
        json.dumps(WHOLE | {"chunks": [[0, "x"]]}).encode(),
        json.dumps(WHOLE | {"seeds": []}).encode(),
        json.dumps(WHOLE | {"status": 3}).encode(),
        json.dumps(WHOLE | {"wall_seconds": "x"}).encode(),
        b"{}",
    ],
    "config.toml": [
        b"name = 3",
        b"\xff",
        b"a = " + b"[" * DEEP,
        b"a" + b".a" * DEEP + b" = 1",
        b'name = "tiger"\nagent = []',
        b'name = "tiger"\nagent = "pomcp"\npreset = "quick"\n[planner]\nkind = 3',
        b'name = "tiger"\nagent = "pomcp"\npreset = "quick"\nruns = ' + b"9" * 5000,
        b'name = "tiger"\nagent = "pomcp"\npreset = "quick"\ndomain = 3',
        b"[domain]",
        b"",
    ],
}


@pytest.mark.parametrize(("name", "number"), [(n, i) for n, xs in FOREIGN.items() for i in range(len(xs))])
def test_a_foreign_file_gets_a_sentence(name, number, tmp_path, capsys):
    result(tmp_path / "folder")
    (tmp_path / "folder" / name).write_bytes(FOREIGN[name][number])
    assert exit_of("resume", tmp_path / "folder") == 2
    error = capsys.readouterr().err
    assert error.count("\n") <= 2 and len(error) < 550 and "Error" not in error


PARTS = [{"parts": 3}, {"parts": {"a": 3}}, {"parts": {"a": {}}}, {"refused": []}, {"started": 3}]


@pytest.mark.parametrize("manifest", PARTS, ids=range(len(PARTS)))
def test_a_foreign_manifest_of_a_suite_or_of_figures_gets_a_sentence(manifest, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for folder in (Suite(tmp_path), Reproduction(tmp_path)):
        with pytest.raises(StorageError, match="is not a manifest"):
            folder.read_parts()


def test_a_suite_whose_manifest_says_nothing_has_a_scoreboard(tmp_path):
    """It ended in a raw exception."""
    (tmp_path / "suite.toml").write_text('agents = ["random"]\ndomains = ["tiger"]\n')
    (tmp_path / "manifest.json").write_text("{}")
    write_scoreboard(Suite(tmp_path))
    assert json.loads((tmp_path / "suite.json").read_text())["status"] == "running"


def parquet(**columns: object) -> dict[str, np.ndarray]:
    return ROWS | {name: np.asarray(values) for name, values in columns.items()}


@pytest.mark.parametrize(
    "rows",
    [
        {"x": np.zeros(2)},
        parquet(run=["a", "b"]),
        parquet(run=[0.5, 1.5]),
        parquet(run=[-1, 0]),
        parquet(run=[0, 10**18]),
        parquet(episode=[0, 10**9]),
        parquet(discounted_return=["a", "b"]),
        {name: values for name, values in ROWS.items() if name != "discounted_return"},
    ],
    ids=range(8),
)
def test_a_foreign_table_gets_a_sentence(rows, tmp_path, capsys):
    folder = result(tmp_path / "folder")
    write_table(folder.episodes, rows)
    assert exit_of("compare", folder.path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 550 and "Error" not in error


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1" * 100, bytes(range(1, 255)) * 2, b"\0" * 2000], ids=range(5)
)
def test_what_is_no_table_gets_a_sentence(content, tmp_path, capsys):
    folder = result(tmp_path / "folder")
    folder.episodes.write_bytes(content)
    assert exit_of("compare", folder.path) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "cannot be read as Parquet" in error


def test_a_folder_in_the_place_of_a_file_gets_a_sentence(tmp_path, capsys):
    folder = result(tmp_path / "folder")
    for path in (folder.episodes, folder.manifest, folder.config):
        path.unlink()
        path.mkdir()
        assert exit_of("compare" if path == folder.episodes else "resume", folder.path) == 2
        assert capsys.readouterr().err.count("\n") == 1
        path.rmdir()
        result(tmp_path / "folder")


# What a terminal is shown.


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x07", "\r", "\x9b", "\udcff", "\u202e"])
def test_control_characters_are_not_printed_raw(character, tmp_path, capsys):
    assert exit_of("run", f"no{character}such.pomdp") == 2
    assert exit_of("resume", tmp_path / f"no{character}such") == 2
    assert exit_of(f"ru{character}n") == 2
    said = capsys.readouterr()
    assert character not in said.err + said.out and "\\" in said.err


def test_what_is_printed_is_visible(capsys):
    """Also by warnings, and in a terminal that knows few characters."""
    assert visible("a\x1b[31mb\nc\t\u00e9") == "a\\x1b[31mb\nc\t\u00e9"
    assert sentence("a\nb") == "a\\nb" and len(sentence("x" * 10_000)) <= 520
    import io

    few = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Visible(few).write("\u00e9\udcff")
    few.flush()
    assert few.buffer.getvalue() == b"\\xe9\\udcff"


# Names.


@pytest.mark.parametrize("name", ["a\x7fb", "a\nb", "x" * 250, "é" * 120, "a$b$", "a b'c", "a[b]"])
def test_odd_names_of_files_and_folders(name, tmp_path, monkeypatch, capsys):
    """Of a domain, of its results, and in a picture."""
    monkeypatch.chdir(tmp_path)
    source = Path(__file__).parent.parent.parent / "examples" / "tiger.pomdp"
    path = tmp_path / f"{name[:240]}.pomdp" if name.isascii() else tmp_path / f"{name}.pomdp"
    shutil.copy(source, path)
    experiment = preset(str(path), "random")
    folder = tmp_path / name
    result(folder)
    (folder / "config.toml").write_bytes(to_config(experiment))
    assert Folder(folder).config.read_bytes() and load_results(folder)
    from baddr.lab.experiment import of_folder

    assert of_folder(Folder(folder)) == experiment
    with new_folder(None, stem_of(experiment)) as new:
        write(new / ("y" * 255), b"")  # the longest name that there is
        assert new.name.endswith("-1") and len(os.fsencode(new.name)) < 255
    picture = tmp_path / f"{name}.png"
    capsys.readouterr()
    assert exit_of("plot", folder, "--out", picture) == 0 and picture.stat().st_size > 1000
    assert capsys.readouterr().out.count("\n") == 1  # also where a name has an end of line


def test_a_name_that_is_too_long_gets_a_sentence(tmp_path, capsys):
    for command in (["run", "tiger", "--out"], ["resume"], ["compare"]):
        assert exit_of(*command, tmp_path / ("x" * 256)) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_names_that_are_not_utf8_are_refused(tmp_path, capsys):
    for name in ("\udcff.py", "\udcff.pomdp"):
        (tmp_path / name).write_text("")
        assert exit_of("run", tmp_path / name) == 2
        assert "UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_names_of_files_are_short_and_stay_in_their_folder():
    assert file_name("a/b\\c\x1bd") == "a-b-c-d"
    long = [file_name("é" * 200 + end) for end in "ab"]
    assert long[0] != long[1] and all(len(name.encode()) <= LONGEST_NAME for name in long)


def test_a_folder_whose_name_is_not_utf8_is_read(tmp_path, capsys):
    """Its run was computed, and then its table could not be read."""
    folder = result(tmp_path / "\udcffout")
    assert len(load_results(folder.path)["run"]) == 2
    assert exit_of("plot", folder.path, "--out", tmp_path / "curves.png") == 0
    assert "warning" not in capsys.readouterr().err


def test_names_in_pictures_are_visible_and_fit(tmp_path):
    with warnings.catch_warnings(action="error"):
        plot_curves({"a\x7f\x1b\udcff": ROWS, "x" * 255: ROWS}, "y" * 255, [tmp_path / "a.svg"])
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_dollars_are_no_mathematics(tmp_path):
    """`$` in a name lost the end of a run: what stands between two is read as TeX."""
    plot_curves({"a$\\frac$": ROWS, "$": ROWS}, "$\\x$", [tmp_path / "a.svg"])
    assert (tmp_path / "a.svg").stat().st_size > 1000


# Folders and files.


def test_two_programs_at_once_have_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, barrier = [], threading.Barrier(8)

    def claim() -> None:
        barrier.wait()
        with new_folder(None, "tiger") as path:
            (path / "file").touch()
            found.append(path)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name for path in found} == {f"tiger-{i}" for i in range(1, 9)}


def test_a_folder_into_which_nothing_came_goes_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError), new_folder(None, "tiger"):
        raise UserError("refused")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027])
def test_umask_is_obeyed(mask, tmp_path):
    old = os.umask(mask)
    try:
        write(tmp_path / "file", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_a_cache_that_cannot_be_written_is_warned_of(tmp_path, monkeypatch):
    """It may be a file, or another's. What was computed is used."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path / "file"))
    assert not cache.is_writable(cache.compiled_code())
    with (
        pytest.warns(UserWarning, match="is not kept on disk for the next time"),
        cache.optional("a solution"),
    ):
        write(cache.solutions() / "a.npz", b"")
    from baddr.solve.point_based import Budget
    from baddr.solve.stored import stored_solution

    sys.path.insert(0, str(Path(__file__).parent.parent / "solve"))
    from small import random_model

    with pytest.warns(UserWarning, match="a solution is not kept"):
        assert stored_solution(random_model(0), Budget(1.0, trials=1)).lower <= 1e9
    monkeypatch.delenv("BADDR_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert cache.root().name == "baddr"


def test_the_cache_of_compiled_code_is_bounded(tmp_path):
    for i in range(10):
        (tmp_path / str(i)).write_bytes(bytes(100))
        os.utime(tmp_path / str(i), (1000 + i, 1000 + i))
    assert cache.bound(tmp_path, 1000) == 0
    assert cache.bound(tmp_path, 500) == 600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6", "7", "8", "9"]
    assert cache.bound(tmp_path / "none") == 0


# Resuming.


def test_trackers_survive_a_kill_before_the_first_episode(tmp_path):
    folder = result(tmp_path, track=["jsonl"])
    with trackers((), folder) as chosen:
        assert [tracker.name for tracker in chosen] == ["jsonl"]
        chosen[0](ROWS)
    assert (tmp_path / JSONL).read_text().count("\n") == 2


def test_a_run_notes_its_trackers_when_it_starts(tmp_path, monkeypatch):
    """Before anything is computed."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    random = preset("tiger", "random")
    few = replace(random, runs=1, episodes=1).changed(filter=replace(random.settings.filter, num_particles=2))
    monkeypatch.setattr(runner, "_run", killed)
    with trackers(("jsonl",), Folder(tmp_path)) as listeners, pytest.raises(KeyboardInterrupt):
        runner.start(few, Folder(tmp_path), lambda *_: None, listeners=listeners)
    assert Folder(tmp_path).read_manifest()["track"] == ["jsonl"]
    with trackers((), Folder(tmp_path)) as again:
        assert len(again) == 1


@pytest.mark.parametrize("error", [StorageError("The disk is full."), ClusterError("It was lost.")])
def test_resume_is_named_only_where_it_helps(error, tmp_path):
    def fail() -> None:
        raise error

    def said(folder: Folder) -> str:
        with pytest.raises(type(error)) as caught:
            interruptible(folder, fail)
        return str(caught.value)

    folder = result(tmp_path / "a b")
    assert said(folder) == f"{error} Resume with: baddr resume '{folder.path}'"
    assert said(Folder(tmp_path / "none")) == str(error)
    for path in (folder.manifest, folder.config):
        content = path.read_bytes()
        path.write_bytes(b"[")
        assert said(folder) == str(error)
        path.write_bytes(content)


# The cluster.


def test_ray_of_this_machine_listens_on_the_loopback(monkeypatch):
    import ray

    asked = {}
    monkeypatch.setattr(ray, "init", lambda address, **options: asked.update(options, address=address))
    for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "1")
    cluster._joined("local")
    assert asked["_node_ip_address"] == "127.0.0.1"
    assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"


def test_a_lost_head_is_a_sentence_of_ours():
    from ray.exceptions import RaySystemError

    assert cluster._sentence(RaySystemError("GCS at 1.2.3.4 " * 50)).startswith("The Ray cluster was lost")
    assert len(cluster._sentence(RuntimeError("x" * 5000))) < 400


def test_rewards_beyond_float32_are_refused(tmp_path, capsys):
    from baddr.domains.finite import from_tables

    T, O, start = np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.ones(1)
    for reward in (1e39, -1e31):
        with pytest.raises(UserError, match="rewards must be at most 1e"):
            from_tables(T, O, np.full((1, 1), reward), start, 0.9)
    text = "discount: .9\nvalues: reward\nstates: 1\nactions: 1\nobservations: 1\n"
    text += "start: 1\nT: *\n1\nO: *\n1\nR: * : * : * : * 1e39\n"
    (tmp_path / "large.pomdp").write_text(text)
    with warnings.catch_warnings(action="ignore"):
        assert exit_of("run", tmp_path / "large.pomdp", "--agent", "random", "--out", tmp_path / "out") == 2
    assert "rewards must be at most" in capsys.readouterr().err and not (tmp_path / "out").exists()
