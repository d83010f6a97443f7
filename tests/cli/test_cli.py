"""The command line as its user meets it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import baddr
from baddr.cli import main
from baddr.cli.parse import flag_value
from baddr.files.store import unpack
from baddr.lab import runner
from baddr.lab.measure import Pace

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

DATA = Path(__file__).parent.parent / "data"
# One shape for all tests: what one of them compiled, the others find in the cache.
SMALL = ["--planner.num-simulations", "64", "--filter.num-particles", "64", "--chunk-size", "2"]
RUN = ["run", "tiger", "--agent", "ba-pomcp", "--runs", "4", *SMALL]


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


# After every block of steps, with time for what comes in between.
CHECKPOINT_ALWAYS = """
import time
from baddr.files.store import Folder
from baddr.lab import runner
runner.SECONDS_BETWEEN_CHECKPOINTS = 0
save = Folder.save
Folder.save = lambda *arguments: (save(*arguments), time.sleep(0.3))
"""


def start(*arguments: object, checkpoint_always: bool = False) -> subprocess.Popen:
    code = "import sys; from baddr.cli import main\n" + CHECKPOINT_ALWAYS * checkpoint_always
    command = [sys.executable, "-c", code + "main(sys.argv[1:])", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_checkpoints(process: subprocess.Popen, folder: Path, number: int) -> None:
    """Until some chunk has written its `number`-th checkpoint."""
    deadline = time.monotonic() + 120
    while not list(folder.glob(f"checkpoints/*/{number:08d}.ckpt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("cli") / "finished"
    assert baddr_main(*RUN, "--episodes", "30", "--out", folder) == 0
    return folder


def test_run_leaves_a_complete_result_folder(finished, capsys):
    assert {
        "config.toml",
        "manifest.json",
        "episodes.parquet",
        "curve.png",
        "curve.svg",
        "belief.png",
    } <= set(os.listdir(finished))
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["status"] == "complete" and manifest["chunks"] == [[0, 2], [2, 4]]
    assert {"baddr", "jax", "device", "commit", "started", "wall_seconds", "seeds"} <= manifest.keys()
    results = baddr.load_results(finished)
    assert list(results["run"]) == [r for r in range(4) for _ in range(30)]
    assert list(results["episode"]) == list(range(30)) * 4
    assert {"return", "discounted_return", "length", "accuracy_mean_0"} <= results.keys()
    assert np.all(results["length"] >= 1) and np.all(results["discounted_return"] <= 10)


def test_kill_and_resume_equals_an_uninterrupted_run(finished, tmp_path):
    folder = tmp_path / "killed"
    process = start(*RUN, "--episodes", "30", "--out", folder, checkpoint_always=True)
    wait_for_checkpoints(process, folder, 2)
    process.kill()
    process.communicate()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
    assert baddr_main("resume", folder) == 0
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


def test_ctrl_c_checkpoints_and_resume_goes_on(finished, tmp_path):
    folder = tmp_path / "interrupted"
    process = start(*RUN, "--episodes", "30", "--out", folder, checkpoint_always=True)
    wait_for_checkpoints(process, folder, 0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130 and "baddr resume" in error and "Traceback" not in error
    assert baddr_main("resume", folder) == 0
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_only_the_work_since_the_one_before(finished, tmp_path, capsys):
    folder = tmp_path / "damaged"
    process = start(*RUN, "--episodes", "30", "--out", folder, checkpoint_always=True)
    wait_for_checkpoints(process, folder, 2)
    process.kill()
    process.communicate()
    newest = sorted((folder / "checkpoints" / "chunk-00000").glob("*.ckpt"))[-1]
    newest.write_bytes(newest.read_bytes()[:200])
    assert baddr_main("resume", folder) == 0
    assert "damaged" in capsys.readouterr().err
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


def test_resume_extends_a_finished_experiment(finished, tmp_path, capsys):
    folder = tmp_path / "extended"
    assert (
        baddr_main(*RUN[: -len(SMALL) - 2], "--runs", "2", *SMALL, "--episodes", "12", "--out", folder) == 0
    )
    capsys.readouterr()
    assert baddr_main("resume", folder) == 0
    assert "is complete" in capsys.readouterr().out
    (folder / "curve.png").unlink()  # as if a kill had come before the pictures
    assert baddr_main("resume", folder) == 0
    assert (folder / "curve.png").exists() and "2 runs of 12 episodes" in capsys.readouterr().out
    before = (folder / "episodes.parquet").read_bytes()
    assert baddr_main("resume", folder, "--episodes", "11") == 2
    assert (folder / "episodes.parquet").read_bytes() == before
    assert baddr_main("resume", folder, "--episodes", "30", "--runs", "4") == 0
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


@pytest.mark.slow
def test_beliefs_that_are_not_kept(finished, tmp_path, capsys):
    """The same results, interrupted or not; more runs, but no more episodes, and no prior for others."""
    folder = tmp_path / "dropped"
    run = [*RUN, "--keep-beliefs", "no"]
    process = start(*run, "--episodes", "30", "--out", folder, checkpoint_always=True)
    wait_for_checkpoints(process, folder, 2)
    process.kill()
    process.communicate()
    assert baddr_main("resume", folder) == 0
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()
    for chunk in (0, 1):
        [path] = (folder / "checkpoints" / f"chunk-{chunk:05d}").glob("*.ckpt")
        kept = sorted((finished / "checkpoints" / f"chunk-{chunk:05d}").glob("*.ckpt"))[-1]
        assert not any(name.startswith("state/") for name in unpack(path.read_bytes()))
        assert path.stat().st_size < kept.stat().st_size / 2
    capsys.readouterr()
    assert baddr_main("resume", folder, "--episodes", "31") == 2
    assert "did not keep its beliefs, so its runs end at 30 episodes" in capsys.readouterr().err
    assert baddr_main(*RUN, "--prior", folder, "--out", tmp_path / "after") == 2
    assert "did not keep its beliefs" in capsys.readouterr().err
    assert baddr_main("resume", folder, "--runs", "6") == 0
    more, before = baddr.load_results(folder), baddr.load_results(finished)
    assert list(more["run"]) == [r for r in range(6) for _ in range(30)]
    assert all(np.array_equal(more[name][:120], before[name]) for name in before)


def test_an_experiment_of_other_random_streams_does_not_go_on(finished, tmp_path, capsys):
    folder = tmp_path / "older"
    shutil.copytree(finished, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["seeds"]["streams"]  # as it was before they had a number
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert baddr_main("resume", folder, "--episodes", "31") == 2
    assert "drew other random numbers" in capsys.readouterr().err
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


def test_dry_run_says_what_would_happen_and_does_nothing(tmp_path, capsys, monkeypatch):
    """What is measured is in tests/lab/test_measure.py."""
    monkeypatch.setattr(runner, "pace", lambda *_: Pace(0.0, 1.0, steps=8, step=1.0, length=4.0))
    assert baddr_main(*RUN, "--dry-run", "--out", tmp_path / "new") == 0
    out = capsys.readouterr().out
    assert "4 runs" in out and "MiB" in out and "measured over 8 steps" in out
    assert not (tmp_path / "new").exists()


def test_one_runs_steps_can_be_traced(finished, tmp_path):
    """Run 3 of the same experiment, step by step; its returns are those of the untraced run."""
    folder = tmp_path / "traced"
    assert baddr_main(*RUN, "--episodes", "3", "--trace", "3", "--out", folder) == 0
    steps = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    results = baddr.load_results(finished)
    for episode in range(3):
        mine = [step for step in steps if step["episode"] == episode]
        row = (results["run"] == 3) & (results["episode"] == episode)
        assert [step["step"] for step in mine] == list(range(results["length"][row][0]))
        assert sum(step["reward"] for step in mine) == results["return"][row][0]
        assert [step["ended"] for step in mine] == [False] * (len(mine) - 1) + [True]
    assert all(sum(step["visits"]) == 64 and len(step["Q"]) == 3 for step in steps)
    assert all(abs(sum(step["belief"]["state"]["features"][0]) - 1) < 1e-5 for step in steps)
    assert all(0 < p < 1 for step in steps for p in step["belief"]["model"]["accuracy_mean"])


def test_a_learned_belief_is_the_prior_of_a_later_run(finished, tmp_path, capsys):
    """Run i goes on from what run i had learned; an agent that it does not fit is refused at once."""
    folder = tmp_path / "later"
    assert baddr_main(*RUN, "--episodes", "1", "--prior", finished, "--out", folder) == 0
    learned, later = baddr.load_results(finished), baddr.load_results(folder)
    before = learned["accuracy_mean_0"][learned["episode"] == 29]
    change = np.abs(later["accuracy_mean_0"] - before)
    assert np.all(change < 0.05) and np.any(np.abs(before - 0.625) > 0.05)
    refused = ["run", "tiger", "--agent", "pomcp", "--prior", finished, "--out", tmp_path / "refused"]
    assert baddr_main(*refused) == 2
    assert "same agent" in capsys.readouterr().err and not (tmp_path / "refused").exists()


def test_baddr_trains_a_prior_once_and_uses_it_again(tmp_path, capsys, monkeypatch):
    """Here with too little training: the network that failed to fit is named."""
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path / "cache"))
    small = ["--network.hidden", "8", "--pretrain.batches", "32", "--pretrain.num-networks", "1", *SMALL]
    arguments = ["run", "tiger", "--runs", "2", "--episodes", "2", *small]
    assert baddr_main(*arguments, "--out", tmp_path / "a") == 0
    error = capsys.readouterr().err
    assert "pre-training" in error and "network 0 failed to fit" in error
    assert baddr_main(*arguments, "--seed", "0", "--out", tmp_path / "b") == 0
    assert "pre-training" not in capsys.readouterr().err
    same = [(tmp_path / name / "episodes.parquet").read_bytes() for name in "ab"]
    assert same[0] == same[1]
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert len(manifest["prior"]["gap"]) == 1
    assert baddr_main("cache") == 0
    assert "trained priors: 1" in capsys.readouterr().out
    assert baddr_main("cache", "--clear") == 0
    assert not (tmp_path / "cache" / "priors").exists()


def test_the_last_of_two_flags_counts(capsys):
    """Also of those that decide what the defaults are."""
    assert baddr_main("run", "tiger", "--agent", "random", "--agent", "ba-pomcp", "--help") == 0
    assert "ba-pomcp on tiger" in " ".join(capsys.readouterr().out.split())
    assert flag_value(["--agent", "a", "--agent=b", "--preset", "c"], "agent", "d") == "b"


def test_plot_draws_several_folders(finished, tmp_path, capsys):
    picture = tmp_path / "curves.svg"
    assert baddr_main("plot", finished, finished, "--out", picture) == 0
    assert picture.read_text().startswith("<?xml")


def test_compare_says_the_numbers_and_their_intervals(finished, tmp_path, capsys):
    """A result against itself: no difference, and four runs that do not differ are no interval; and a level
    that it never reaches."""
    twice = tmp_path / "again"
    shutil.copytree(finished, twice)
    assert baddr_main("compare", finished, twice, "--last", 10, "--level", 1000, "--json") == 0
    compared = json.loads(capsys.readouterr().out)
    first, second = compared["results"].values()
    results = baddr.load_results(finished)
    last = results["discounted_return"][results["episode"] >= results["episode"].max() - 9]
    assert first["final"]["value"] == pytest.approx(last.mean()) and "difference" not in first
    assert second["difference"] == {"value": 0, "low": None, "high": None}
    assert first["episodes_to_level"] == {"value": None, "low": None, "high": None}
    assert baddr_main("compare", finished, twice) == 0
    assert "less the first" in capsys.readouterr().out
    assert baddr_main("compare", finished, "--last", 1000) == 2
    assert "--last 1000 is more than" in capsys.readouterr().err
    assert baddr_main("compare", finished, "--level", "nan") == 2
    assert "--level must be a finite number" in capsys.readouterr().err


def write_history(path: Path, *episodes: tuple[list[int], list[list[int]]]) -> Path:
    path.write_text(json.dumps({"episodes": [{"actions": a, "observations": o} for a, o in episodes]}))
    return path


def test_belief_after_a_history_is_the_exact_one(tmp_path, capsys):
    """h11: three episodes. 4096 particles; within 5 standard errors of the exact posterior."""
    oracle = json.loads((DATA / "tiger_exact_beliefs.json").read_text())["histories"]
    exact = oracle["h11_3ep_LLL_open_RR_open_L"]["steps"][-1]
    listen = lambda heard: ([2] * len(heard), [[h] for h in heard])
    (a1, o1), (a2, o2) = listen([0, 0, 0]), listen([1, 1])
    episodes = [([*a1, 0], [*o1, [2]]), ([*a2, 1], [*o2, [2]]), listen([0])]
    history = write_history(tmp_path / "h.json", *episodes)
    arguments = ["belief", "tiger", "--agent", "ba-pomcp", "--history", history, "--particles", 4096]
    assert baddr_main(*arguments) == 0
    belief = json.loads(capsys.readouterr().out)
    n = belief["effective_sample_size"] / 4
    assert belief["num_particles"] == 4096
    left = belief["state"]["features"][0][0]
    assert abs(left - exact["p_state_L"]) < 5 * np.sqrt(0.25 / n)
    assert abs(belief["model"]["accuracy_mean"][0] - exact["mean_acc_L"]) < 5 * np.sqrt(
        exact["var_acc_L"] / n
    )
    assert belief["model"]["accuracy_std"][1] ** 2 == pytest.approx(exact["var_acc_R"], rel=0.15)
    heard = belief["next_observation"]["2"]["features"][0]
    assert abs(heard[0] - exact["p_hearL_if_listen"]) < 5 * np.sqrt(0.25 / n) and heard[2] == 0
    assert belief["next_observation"]["0"]["features"][0] == [0, 0, 1]


def test_plan_opens_the_door_that_was_heard_often(tmp_path, capsys):
    history = write_history(tmp_path / "h.json", ([2] * 6, [[0]] * 6))
    arguments = ["plan", "tiger", "--agent", "pomcp", "--history", history, "--simulations", 512]
    assert baddr_main(*arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["action"] == 0 and sum(plan["visits"]) == 512
    assert baddr_main(*arguments) == 0
    assert json.loads(capsys.readouterr().out) == plan


@pytest.mark.parametrize(
    ("episodes", "sentence"),
    [
        ([([3], [[0]])], "action 3"),
        ([([-1], [[0]])], "action -1"),
        ([([2], [[3]])], "feature 0 is 3"),
        ([([2], [[0, 0]])], "list of 1 feature"),
        ([([2, 2], [[0]])], "2 actions but 1 observations"),
        ([([0], [[0]])], "no particle can explain"),
        ([([0, 2], [[2], [0]])], "ended one step earlier"),
        ([([2] * 31, [[0]] * 31)], "more than the horizon"),
    ],
)
def test_an_impossible_history_gets_a_sentence(tmp_path, capsys, episodes, sentence):
    history = write_history(tmp_path / "h.json", *episodes)
    arguments = ["belief", "tiger", "--agent", "ba-pomcp", "--history", history, "--particles", "64"]
    assert baddr_main(*arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "tigr"], "did you mean 'tiger'"),
        (["run"], "Name a domain"),
        (["rnu"], "did you mean 'run'"),
        (["run", "tiger", "--agent", "bapomcp"], "did you mean 'ba-pomcp'"),
        (["run", "tiger", "--preset", "huge"], "no preset"),
        (["run", "tiger", "--runs", "0"], "--runs must be at least 1"),
        (["run", "tiger", "--episodes", "-1"], "--episodes must be at least 1"),
        (["run", "tiger", "--runs", "many"], "--runs"),
        (["run", "tiger", "--planer.depth", "3"], "perhaps you meant --planner.depth"),
        (["run", "tiger", "--planner.num-simulations", "0"], "num-simulations must be at least 1"),
        (["run", "tiger", "--filter.num-particles", "-3"], "num-particles must be at least 1"),
        (["run", "tiger", "--domain.accuracy", "1.5"], "accuracy must lie in"),
        (["run", "tiger", "--config", "missing.toml"], "no file missing.toml"),
        (["run", "tiger", "--trace", "64"], "--trace must name a run"),
        (["run", "tiger", "--network.dropout", "1"], "network.dropout must be"),
        (["run", "tiger", "--prior", "missing"], "holds no experiment"),
        (["resume", "missing"], "holds no experiment"),
        (["plot", "missing"], "holds no experiment"),
        (["belief", "tiger"], "--history"),
        (["belief", "tiger", "--history", "missing.json"], "no history file"),
        (["plan", "tiger", "--history", "x", "--agent", "random"], "does not plan"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baddr_main(*arguments) == 2
    error = capsys.readouterr().err.strip()
    assert sentence in error and "\n" not in error and error.startswith("baddr: ")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_holds_another_experiment_is_refused(finished, capsys):
    before = sorted((p, p.stat().st_mtime_ns) for p in finished.rglob("*"))
    assert baddr_main(*RUN, "--out", finished) == 2
    assert "already holds an experiment" in capsys.readouterr().err
    assert before == sorted((p, p.stat().st_mtime_ns) for p in finished.rglob("*"))


def test_a_folder_that_cannot_be_written_gets_a_sentence(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert baddr_main(*RUN, "--episodes", "1", "--out", tmp_path / "file" / "below") == 2
    assert "Cannot write" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_finished(finished, tmp_path, capsys, monkeypatch):
    """The disk fills up after the first checkpoints; resume goes on once there is room again."""
    from baddr.files import store
    from baddr.lab import runner

    folder, writes, write = tmp_path / "full", [], store.write

    def full(path, data):
        writes.append(path)
        if len(writes) > 5:
            raise store.StorageError(f"Cannot write {path}: no space left on device.")
        write(path, data)

    monkeypatch.setattr(runner, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", full)
        assert baddr_main(*RUN, "--episodes", "30", "--out", folder) == 2
    assert "no space left" in capsys.readouterr().err
    assert baddr_main("resume", folder) == 0
    assert (folder / "episodes.parquet").read_bytes() == (finished / "episodes.parquet").read_bytes()


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["run", "tiger", "--help"]])
def test_help_and_list_do_not_load_jax(arguments):
    code = "import sys; from baddr.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "baddr" in done.stdout or "tiger" in done.stdout


def test_modules_need_no_import_of_their_own():
    """In a process that has imported nothing else."""
    code = "import baddr\nbaddr.domains.from_tables, baddr.exact.mixture_update, baddr.gym.make_vec"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["belief", "plan", "explore"])
def test_commands_that_start_from_the_prior_refuse_another(command, capsys, tmp_path):
    """It was accepted, and ignored."""
    (tmp_path / "h.json").write_text('{"episodes": [{"actions": [2], "observations": [[0]]}]}')
    history = [] if command == "explore" else ["--history", tmp_path / "h.json"]
    words = [command, "tiger", "--agent", "ba-pomcp", *history, "--prior", tmp_path]
    assert baddr_main(*words) == 2
    assert "leave out --prior" in capsys.readouterr().err


def test_list_as_json_names_every_number(capsys):
    assert baddr_main("list", "--json") == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["domains"]["tiger"]["actions"] == ["open-left", "open-right", "listen"]
    assert "ba-pomcp" in listing["agents"] and set(listing["presets"]) == {"quick", "paper"}


DESTRUCTOR = """
import os, signal, time
from baddr.cli import list, main

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # here Python raises KeyboardInterrupt, and drops it

def slow(arguments):
    Interrupted()
    time.sleep(20)
    return 0

list.main = slow
main()
"""


def test_ctrl_c_inside_a_destructor_is_not_lost():
    done = subprocess.run(
        [sys.executable, "-c", DESTRUCTOR, "list"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 130 and done.stderr == "baddr: interrupted.\n"
