"""Trackers and the live picture: every episode once, whatever was left half-written."""

import json

import numpy as np
import pytest

from baddr.errors import StorageError, UserError
from baddr.files.store import Folder
from baddr.lab.track import Events, JsonLines, trackers
from baddr.lab.watch import Watch, braille, clock

RUNS = 3


def rows(*episodes: tuple[int, int]) -> dict[str, np.ndarray]:
    """(run, episode): its return is 10 * run + episode."""
    run, episode = (np.array(column, np.int64) for column in zip(*episodes, strict=True))
    value = 10.0 * run + episode
    columns = {"run": run, "episode": episode, "return": 2 * value, "discounted_return": value}
    return columns | {"length": episode + 1, "accuracy_mean_0": value / 100, "accuracy_histogram_0": value}


@pytest.fixture
def folder(tmp_path) -> Folder:
    folder = Folder(tmp_path)
    folder.write_manifest({"chunks": [[0, 2], [2, RUNS]]})
    return folder


def lines(folder: Folder) -> list[tuple[int, int]]:
    read = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    return [(row["run"], row["episode"]) for row in read]


@pytest.mark.parametrize("torn", [b"", b'{"run": 1, "epi', b"\0\0\0\n\0", b'{"run": 1, "episode": 0}'])
def test_json_lines_hold_every_episode_once(folder, torn):
    """A resumed run tells again what came after its last checkpoint."""
    first = JsonLines(folder)
    first(rows((0, 0), (1, 0), (0, 1)))
    first(rows((0, 2)))
    first.close()
    path = folder.path / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:3]) + torn)  # the last line is half-written or lost
    second = JsonLines(folder)
    second(rows((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)))
    second.close()
    assert lines(folder) == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (2, 0)]
    assert path.read_bytes().splitlines(keepends=True)[:4] == whole
    assert json.loads(path.read_text().splitlines()[-1])["discounted_return"] == 20.0


def scalars(path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_tensorboard_reads_the_means_of_each_chunk_and_of_all(folder, cut):
    """Also after the last event was cut, by so many bytes, and the rest is told again."""
    pytest.importorskip("tensorboard")
    first = Events(folder)
    first(rows((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)))
    first.close()
    path = folder.path / "tensorboard" / "runs-0-1" / "events.out.tfevents.baddr"
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    second = Events(folder)
    second(rows((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)))
    second(rows((2, 1), (0, 2)))  # nobody has all of episode 2, but for run 2 nothing is missing
    second.close()
    chunk = scalars(path.parent)
    assert set(chunk) == {"return", "discounted_return", "length", "accuracy_mean_0"}
    assert chunk["discounted_return"] == [(0, 5.0), (1, 6.0)] and chunk["length"] == [(0, 1.0), (1, 2.0)]
    assert scalars(folder.path / "tensorboard" / "runs-2-2")["return"] == [(0, 40.0), (1, 42.0)]
    assert scalars(folder.path / "tensorboard" / "runs-0-2")["return"] == [(0, 20.0), (1, 22.0)]


def test_events_need_tensorboard(folder, monkeypatch):
    """Asked for, it is missed in a sentence; a folder that has some is resumed without."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'baddr\[tensorboard\]'"):
        with trackers(("tensorboard",), folder):
            pass
    with trackers((), folder) as chosen:
        assert chosen == []
    (folder.path / "tensorboard").mkdir()
    with pytest.warns(UserWarning, match="TensorBoard is not installed"), trackers((), folder) as chosen:
        assert chosen == []


def test_a_folder_keeps_its_trackers(folder):
    with trackers(("jsonl",), folder) as chosen:
        assert [type(tracker) for tracker in chosen] == [JsonLines]
        chosen[0](rows((0, 0)))
    with trackers(("tensorboard",), folder) as chosen:
        assert [type(tracker) for tracker in chosen] == [JsonLines, Events]
    with trackers((), Folder(folder.path / "new")) as chosen:
        assert chosen == []


def test_a_tracker_that_cannot_write_says_so(folder):
    (folder.path / "metrics.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"Cannot write .*metrics\.jsonl"):
        JsonLines(folder)(rows((0, 0)))


# --- watch --------------------------------------------------------------------------------------------


def test_a_line_in_braille():
    """Two dots across, four up. A column of dots reaches back to the level of the one before."""
    assert braille(np.array([0.0, 1.0, 2.0, 3.0]), 2, 1, 0.0, 3.0) == ["⣠⠞"]
    up = braille(np.array([0.0, 0.0, 3.0, 3.0]), 2, 1, 0.0, 3.0)
    assert up == ["⣀⡏"]  # low, low; the rise, and high
    assert braille(np.full(4, 1.0), 2, 1, 1.0, 1.0) == ["⠒⠒"]  # all the same: in the middle
    assert braille(np.array([np.nan, 1.0]), 1, 1, 0.0, 1.0) == ["⠈"]


def test_the_picture_follows_the_episodes():
    watch = Watch("baddr on tiger")
    assert watch.lines(60)[0] == "baddr on tiger"
    watch.progress("pretraining", 3, 8, 0.5)
    assert "pre-training: 3/8 batches, loss 0.500" in watch.lines(60)[1]
    watch.progress("episodes", 0, 9, float("nan"))
    assert watch.lines(60)[1].startswith("0/9 episodes  ")  # no return before an episode has ended
    watch(rows((0, 0), (1, 0), (0, 1), (2, 0)))
    watch.progress("episodes", 4, 9, 1.25)
    lines = watch.lines(80)
    assert lines[1].split("|")[0].strip() == "10.00"  # the mean over three runs of episode 0
    assert lines[12].split("|")[0].strip() == "1.00"  # and of the one run that has ended episode 1
    assert "episode 1 to 2" in lines[13] and "4/9 episodes, recent return 1.25" in lines[14]
    assert "left" in lines[14] and lines[15] == "belief: accuracy_mean_0 0.010"
    assert all(len(line) <= 80 for line in lines)
    watch(rows(*((0, episode) for episode in range(2, 100))))
    lines = watch.lines(80)
    assert "episode 1 to 100" in lines[13] and lines[13].endswith("mean over runs and 3 episodes")
    assert lines[1].split("|")[0].strip() == "99.00"  # episode 99, which is a point alone
    assert lines[12].split("|")[0].strip() == "4.00"  # episodes 3, 4 and 5 of the run that has them


def test_the_picture_of_a_part_gives_way_to_that_of_the_next():
    watch = Watch("starting")
    watch.part("part 1 of 2", 0.25, "3/9 episodes")
    watch(rows((0, 0), (0, 1)))
    assert watch.lines(60)[0] == "part 1 of 2" and len(watch.lines(60)) == 1 + 12 + 1 + 1 + 1
    assert watch.lines(60)[14].startswith("25 % of all; 3/9 episodes  0:00:0")
    watch.part("part 2 of 2", 0.5, "compiling")
    assert watch.lines(60)[0] == "part 2 of 2" and len(watch.lines(60)) == 2


def test_a_clock():
    assert clock(59.9) == "0:00:59" and clock(3661.0) == "1:01:01"
