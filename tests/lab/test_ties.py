"""A folder's parts belong together: what does not is refused by a sentence, before anything is computed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from baddr.errors import UserError
from baddr.files.store import Folder, load_results, pack, unpack
from baddr.lab import runner
from baddr.lab.experiment import extend, of_folder, preset, to_config
from baddr.lab.spans import MOST_LISTED, Spans, spans_in
from baddr.lab.ties import settings_hash

RANDOM = preset("tiger", "random")
FEW = RANDOM.changed(filter=replace(RANDOM.settings.filter, num_particles=8))
EXPERIMENT = replace(FEW, runs=3, episodes=6, chunk_size=2, keep_beliefs="yes")


def quiet(*_) -> None:
    pass


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Two finished experiments, of two seeds."""
    root = tmp_path_factory.mktemp("ties")
    for seed in (0, 1):
        runner.start(replace(EXPERIMENT, seed=seed), Folder(root / str(seed)), quiet)
    return root


@pytest.fixture
def folder(kept, tmp_path) -> Folder:
    return Folder(Path(shutil.copytree(kept / "0", tmp_path / "folder")))


def content(folder: Folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def refused(folder: Folder, sentence: str) -> None:
    """A resume for more episodes is refused, and changes nothing."""
    before = content(folder)
    with pytest.raises(UserError, match=sentence) as error:
        runner.resume(extend(of_folder(folder), None, 8), folder, quiet)
    assert content(folder) == before and len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed = 0", "seed = 1"),
        ("num_particles = 8", "num_particles = 9"),
        ("accuracy = 0.85", "accuracy = 0.9"),
        ("chunk_size = 2", "chunk_size = 3"),
        ('keep_beliefs = "yes"', 'keep_beliefs = "no"'),
    ],
)
def test_an_edited_config_is_refused(folder, old, new):
    text = folder.config.read_text()
    assert old in text
    folder.config.write_text(text.replace(old, new))
    refused(folder, "have changed since the experiment started")


@pytest.mark.parametrize("line", ["runs = 3", "episodes = 6"])
def test_fewer_runs_or_episodes_in_the_config_are_refused(folder, line):
    folder.config.write_text(folder.config.read_text().replace(line, f"{line[:-1]}2"))
    before = content(folder)
    with pytest.raises(UserError, match=r"has 2 (runs|episodes), but .* has \d"):
        runner.resume(of_folder(folder), folder, quiet)
    assert content(folder) == before


def test_swapped_chunks_are_refused(folder):
    one, other = (folder.path / "checkpoints" / f"chunk-0000{i}" for i in (0, 1))
    one.rename(folder.path / "away")
    other.rename(one)
    (folder.path / "away").rename(other)
    refused(folder, "checkpoint of chunk 0 belongs to other runs")


def test_a_checkpoint_of_another_seed_is_refused(folder, kept):
    shutil.rmtree(folder.path / "checkpoints")
    shutil.copytree(kept / "1" / "checkpoints", folder.path / "checkpoints")
    refused(folder, "belongs to another seed and other settings")


@pytest.mark.parametrize("name", ["streams", "method", "domain"])
def test_a_checkpoint_of_another_stream_is_refused(folder, name):
    path = next((folder.path / "checkpoints" / "chunk-00001").glob("*.ckpt"))
    arrays = unpack(path.read_bytes())
    note = json.loads(arrays["note"].tobytes())
    note["tie"][name] = "another"
    import numpy as np

    path.write_bytes(pack(arrays | {"note": np.frombuffer(json.dumps(note).encode(), np.uint8)}))
    refused(folder, "checkpoint of chunk 1 belongs to")


@pytest.mark.parametrize(
    "chunks",
    [[[0, 2], [1, 3]], [[0, 2], [0, 2]], [[0, 1], [2, 3]], [[0, 3], [2, 1]], [], [[0]], 3, [["a", 2]]],
)
def test_chunks_that_overlap_or_leave_runs_out_are_refused(folder, chunks):
    manifest = folder.read_manifest()
    folder.manifest.write_text(json.dumps(manifest | {"chunks": chunks}))
    refused(folder, "manifest.json|other runs")


def test_another_seed_in_the_manifest_is_refused(folder):
    manifest = folder.read_manifest()
    manifest["seeds"]["seed"] = 1
    folder.manifest.write_text(json.dumps(manifest))
    refused(folder, "belongs to another seed")


def test_what_belongs_together_is_resumed(folder):
    runner.resume(extend(of_folder(folder), 4, 8), folder, quiet)
    assert len(load_results(folder.path)["run"]) == 32


def test_a_manifest_that_has_lost_its_ties_is_refused(folder):
    """Otherwise whoever removes the hash may edit the settings."""
    manifest = folder.read_manifest()
    for name in ("settings", "sources", "episodes", "track"):
        del manifest[name]
    folder.write_manifest(manifest)
    refused(folder, "checkpoint of chunk 0 belongs to other settings")


def test_the_hash_is_of_what_matters():
    """Not of runs and episodes, which may grow, nor of how a number is written."""
    same = [replace(EXPERIMENT, runs=9), replace(EXPERIMENT, episodes=9), replace(EXPERIMENT, preset="paper")]
    same.append(EXPERIMENT.changed(filter=replace(EXPERIMENT.settings.filter, resample_below=128.0)))
    assert {settings_hash(e) for e in same} == {settings_hash(EXPERIMENT)}
    other = [replace(EXPERIMENT, seed=1), replace(EXPERIMENT, domain=replace(EXPERIMENT.domain, horizon=3))]
    other += [preset("tiger", "pomcp"), preset("tiger", "pomcp", kinds={"planner": "po-uct"})]
    assert len({settings_hash(e) for e in [EXPERIMENT, *other]}) == 5


def test_the_hash_survives_a_file(tmp_path):
    """What a config.toml says is what was hashed."""
    for agent in ("baddr", "pomcp", "dpfrl", "fba-pomcp"):
        experiment = preset("factored-tiger", agent)
        (tmp_path / "config.toml").write_bytes(to_config(experiment))
        (tmp_path / "manifest.json").write_text(json.dumps({"settings": settings_hash(experiment)}))
        assert of_folder(Folder(tmp_path)) == experiment


def test_chunks_are_computed_not_listed():
    spans = Spans().grown(10**9, 64)
    assert (len(spans) == 15_625_000 and spans[-1:] == []) or spans[15_624_999] == (10**9 - 64, 10**9)
    assert len(spans.listed()) == 1 and spans_in(spans.listed(), "here").stages == spans.stages
    few = Spans().grown(3, 2).grown(4, 2)
    assert list(few) == [few[i] for i in range(3)] == [(0, 2), (2, 3), (3, 4)]
    assert few.listed() == [[0, 2], [2, 3], [3, 4]] and list(spans_in(few.listed(), "here")) == list(few)
    assert few.runs == 4 and MOST_LISTED < len(spans)
