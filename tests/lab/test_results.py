"""What `plot` and `compare` take of the folders that they are given."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baddr.cli import main
from baddr.errors import UserError
from baddr.files.rows import RowLog
from baddr.files.store import Folder
from baddr.files.tables import Arrays, write_table
from baddr.files.writing import write
from baddr.lab.experiment import preset, to_config
from baddr.lab.results import check_same_domain, labels, result_folders, results_of


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def rows(runs: int = 2, episodes: int = 4) -> Arrays:
    run, episode = (x.ravel() for x in np.indices((runs, episodes)))
    value = np.random.default_rng(0).normal(size=len(run))
    return {"run": run, "episode": episode, "return": value, "discounted_return": value}


def experiment(
    path: Path, domain: str = "tiger", finished: bool = True, table: Arrays | None = None, **changes
):
    """A folder as `run` leaves it, or as it is while it runs."""
    settings, folder = preset(domain, "random"), Folder(path)
    folder.write_manifest({"status": "complete" if finished else "running"})
    write(folder.config, to_config(replace(settings, domain=replace(settings.domain, **changes))))
    table = rows() if table is None else table
    if finished:
        write_table(folder.episodes, table)
    elif len(table["run"]):
        log = RowLog(folder.rows, folder.episodes)
        log(table)
        log.close()
    return path


NOTHING = {name: column[:0] for name, column in rows().items()}


@pytest.fixture
def results(tmp_path) -> Path:
    """An experiment, one that runs, a sweep, a reproduction, a picture and an empty folder."""
    experiment(tmp_path / "a")
    experiment(tmp_path / "b", finished=False)
    for part in ("seed=1", "seed=2"):
        experiment(tmp_path / "sweep" / part)
    write(tmp_path / "paper" / "reproduce.toml", b"")
    experiment(tmp_path / "paper" / "parts" / "tiger")
    write(tmp_path / "curves.png", b"")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_all_that_lies_there_is_taken_or_named(results, tmp_path):
    with pytest.warns(UserWarning) as told:
        found = result_folders(sorted(results.iterdir()))
    assert [str(path.relative_to(results)) for path in found] == ["a", "b", "sweep/seed=1", "sweep/seed=2"]
    said = [str(warning.message).removeprefix(f"{results}/") for warning in told]
    assert said == [
        "curves.png holds no experiment and is left out.",
        "empty holds no experiment and is left out.",
        f"paper holds figures of the paper and is left out; {results}/paper/parts has its experiments.",
        "sweep holds 2 experiments, and all of them are used.",
    ]
    with pytest.raises(UserError, match="missing holds no experiment"):
        result_folders([results / "a", results / "missing"])
    with pytest.warns(UserWarning), pytest.raises(UserError, match="empty holds no experiment"):
        result_folders([results / "empty"])


def test_plot_and_compare_take_results_that_lie_beside_other_things(results, capsys):
    paths = sorted(results.iterdir())
    assert baddr_main("plot", *paths, "--out", results / "all.svg") == 0
    said = capsys.readouterr()
    assert said.err.count("baddr: warning:") == 4
    picture = (results / "all.svg").read_text()
    assert all(f"random on tiger, {name} (2 runs)" in picture for name in ("a", "b", "seed=1", "seed=2"))
    assert baddr_main("compare", *paths) == 0
    assert capsys.readouterr().out.count("final mean") == 4


def test_an_experiment_without_a_row_is_left_out(tmp_path):
    paths = [experiment(tmp_path / name, finished=False, table=NOTHING) for name in "xy"]
    with pytest.raises(UserError, match="x has no finished episode yet"):
        results_of(paths[:1])
    with pytest.warns(UserWarning, match="has no finished episode yet and is left out"):
        found = results_of([experiment(tmp_path / "z", finished=False), paths[1]])
    assert list(found) == [tmp_path / "z"] and len(found[tmp_path / "z"]["run"]) == 8
    with pytest.raises(UserError, match="x has no finished episode yet"):
        results_of([experiment(tmp_path / "x", table=NOTHING)])


def test_folders_of_one_name_have_labels_of_their_own(tmp_path):
    paths = [
        experiment(tmp_path / "p" / "one"),
        experiment(tmp_path / "q" / "one"),
        experiment(tmp_path / "two"),
    ]
    assert labels(paths) == [f"random on tiger, {path}" for path in paths[:2]] + ["random on tiger, two"]


def test_domains_are_not_compared(tmp_path, capsys):
    tiger, other = experiment(tmp_path / "a"), experiment(tmp_path / "b", "sysadmin")
    assert baddr_main("compare", tiger, other) == 2
    assert f"{tiger} is on tiger and {other} on sysadmin: returns on different" in capsys.readouterr().err
    deaf = experiment(tmp_path / "c", accuracy=0.6)
    with pytest.warns(UserWarning, match="differ in the domain's settings"):
        check_same_domain([tiger, deaf])
    check_same_domain([tiger, experiment(tmp_path / "d")])
    assert baddr_main("plot", tiger, other, "--out", tmp_path / "both.png") == 0


def test_one_run_has_no_interval_in_words_and_none_in_json(tmp_path, capsys):
    path = experiment(tmp_path / "a", table=rows(runs=1))
    assert baddr_main("compare", path, "--level", 0) == 0
    assert capsys.readouterr().out.count("[no interval]") == 4
    assert baddr_main("compare", path, "--json") == 0
    assert '"low": null, "high": null' in capsys.readouterr().out
