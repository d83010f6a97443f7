"""Fuzzers at small size: whatever comes in, only sentences come out, quickly, and none is long.

`make faults` runs more of the same against whole programs.
"""

import copy
import json
import os
import re
import shutil
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baddr.agents.kinds import kinds_in
from baddr.domains import tiger
from baddr.errors import UserError
from baddr.files.machine import peak_memory
from baddr.files.rows import RowLog, read_results, read_rows
from baddr.files.settings import problems
from baddr.files.store import Folder, load_results, pack
from baddr.files.tables import write_table
from baddr.files.toml import read_toml, to_toml
from baddr.lab import history
from baddr.lab.experiment import from_toml, merged, of_folder, preset, to_config
from baddr.lab.output import sentence
from baddr.lab.spans import spans_in

EXAMPLES = int(os.environ.get("BADDR_FUZZ", "40"))  # of each test
FEW = settings(max_examples=EXAMPLES, deadline=10_000, suppress_health_check=[*HealthCheck], derandomize=True)
WORLD = tiger.make_domain().pomdp
START = preset("tiger", "ba-pomcp", kinds={"planner": "po-uct"})
EXAMPLE = Path(__file__).parent.parent / "examples" / "tiger.pomdp"
ROCK = Path(__file__).parent / "data" / "rock.pomdpx"
MOST_MEMORY = 2 << 30

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ODD = [10**20, -1, 2**31, 1e39, "tiger", "pomcp", "po-uct", "x.py:y", "\x1b[31m", "a" * 999]
KNOWN = (
    "name agent preset runs episodes domain planner filter kind num_particles actions observations chunks "
)
KNOWN += "seeds status prior track sources seed own method settings wall_seconds failures gap"
scalars |= st.sampled_from(ODD)
names = st.text(max_size=6) | st.sampled_from(KNOWN.split())
values = st.recursive(
    scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(names, x, max_size=4), max_leaves=12
)
tables = st.dictionaries(names, values, max_size=6)


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Nothing that is read makes a program large."""
    before = peak_memory()
    yield
    assert peak_memory() - before < MOST_MEMORY


def told(function: Any, *arguments: Any) -> Any:
    """What it gives; a sentence is all that it may raise."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return function(*arguments)
    except UserError as error:
        said = sentence(error)
        assert said and len(said) <= 520 and "\n" not in said and "\x1b" not in said
        return None


def flipped(content: bytes, places: list[tuple[int, int]], cut: int) -> bytes:
    """Some bytes changed, and the end cut off."""
    changed = bytearray(content)
    for place, value in places:
        changed[place % len(changed)] = value
    return bytes(changed[: len(changed) - cut % (2 * len(changed)) if cut % 2 else len(changed)])


damage = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6), st.integers(0, 10**6)


@FEW
@given(tables)
def test_settings_in_toml(table):
    """Those that TOML can write, whatever their types."""
    path = Path("/nowhere/c.toml")
    told(kinds_in, table)
    found = told(merged, START, table, str(path))
    if found is not None:
        told(found.check_values)


@FEW
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_toml_files(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("toml") / "c.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
    told(read_toml, path)
    told(from_toml, path, START)


@FEW
@given(st.data())
def test_values_of_settings(data):
    """In Python: any value for any field of any group."""
    groups = {"domain": START.domain, **START.settings.groups()}
    name = data.draw(st.sampled_from(sorted(groups)))
    changed = copy.copy(groups[name])
    for field in fields(changed):
        if data.draw(st.booleans()):
            object.__setattr__(changed, field.name, data.draw(scalars))
    for said in problems(changed, f"{name}."):
        assert len(sentence(said)) <= 520 and said.startswith(name)


@FEW
@given(tables | values)
def test_histories(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("history") / "h.json"
    path.write_text(json.dumps(value))
    told(history.read, path, WORLD)


@FEW
@given(st.lists(st.fixed_dictionaries({"actions": values, "observations": values}), max_size=3))
def test_histories_of_the_right_form(tmp_path_factory, episodes):
    path = tmp_path_factory.mktemp("history") / "h.json"
    path.write_text(json.dumps({"episodes": episodes}))
    told(history.read, path, WORLD)


@FEW
@given(*damage)
def test_pomdp_files(tmp_path_factory, places, cut):
    from baddr.domains.cassandra.format import read  # which may move

    path = tmp_path_factory.mktemp("pomdp") / "a.pomdp"
    path.write_bytes(flipped(EXAMPLE.read_bytes(), places, cut))
    told(read, str(path))


@FEW
@given(*damage)
def test_pomdpx_files(tmp_path_factory, places, cut):
    from baddr.domains.cassandra.format import read

    path = tmp_path_factory.mktemp("pomdpx") / "a.pomdpx"
    path.write_bytes(flipped(ROCK.read_bytes(), places, cut))
    told(read, str(path))


PARTS = re.split(r"([\s<>\"=]+)", ROCK.read_text())  # words, and what stands between them
WORDS = [*dict.fromkeys(PARTS[::2]), "1e400", "nan", "-1", "9" * 30, "x" * 999, "\x1b[31m"]


@FEW
@given(st.lists(st.tuples(st.integers(0, len(PARTS) // 2), st.sampled_from(WORDS)), max_size=4))
def test_pomdpx_files_with_other_words(tmp_path_factory, changes):
    """Well-formed more often than not: what they say is wrong."""
    from baddr.domains.cassandra.format import read

    parts = [*PARTS]
    for place, word in changes:
        parts[2 * place] = word
    path = tmp_path_factory.mktemp("pomdpx") / "a.pomdpx"
    path.write_text("".join(parts))
    told(read, str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Folder:
    """As a killed run leaves it: without JAX."""
    folder = Folder(tmp_path_factory.mktemp("folder"))
    rows = {name: np.arange(6) for name in ("run", "length")} | {"episode": np.zeros(6, np.int64)}
    rows |= {name: np.linspace(0, 1, 6) for name in ("return", "discounted_return")}
    write_table(folder.episodes, rows)
    log = RowLog(folder.rows, folder.path / "none")
    log(rows)
    log.close()
    folder.config.write_bytes(to_config(START))
    folder.write_manifest({"status": "running", "seeds": {}, "chunks": [[0, 6]], "wall_seconds": 0.0})
    folder.keep(0, pack({"note": np.frombuffer(b"{}", np.uint8), "state/0": np.zeros(3)}))
    return folder


@FEW
@given(st.sampled_from(["config.toml", "manifest.json", "episodes.parquet", "episodes.log"]), *damage)
def test_damaged_result_folders(folder, tmp_path_factory, name, places, cut):
    path = Path(shutil.copytree(folder.path, tmp_path_factory.mktemp("damaged") / "x"))
    (path / name).write_bytes(flipped((path / name).read_bytes(), places, cut))
    damaged = Folder(path)
    told(of_folder, damaged)
    manifest = told(damaged.read_experiment_manifest)
    if manifest is not None:
        told(spans_in, manifest["chunks"], "here")
    told(load_results, path)
    told(read_rows, damaged.rows)
    told(read_results, damaged.rows, damaged.episodes)
    damaged.note(0)


@FEW
@given(*damage)
def test_damaged_checkpoints(folder, tmp_path_factory, places, cut):
    path = Path(shutil.copytree(folder.path, tmp_path_factory.mktemp("damaged") / "x"))
    (checkpoint,) = (path / "checkpoints" / "chunk-00000").iterdir()
    before = checkpoint.read_bytes()
    checkpoint.write_bytes(flipped(before, places, cut))
    changed = checkpoint.read_bytes() != before
    found = told(Folder(path).load, 0)
    assert (found is None) == changed
    Folder(path).note(0)


@FEW
@given(tables)
def test_manifests(folder, tmp_path_factory, table):
    other = Folder(tmp_path_factory.mktemp("manifest"))
    other.config.write_bytes(folder.config.read_bytes())
    other.manifest.write_text(json.dumps({"status": "running", "chunks": [[0, 6]]} | table))
    told(of_folder, other)
    told(other.read_experiment_manifest)


@FEW
@given(tables)
def test_foreign_configs(folder, tmp_path_factory, table):
    other = Folder(tmp_path_factory.mktemp("config"))
    other.manifest.write_bytes(folder.manifest.read_bytes())
    try:
        text = to_toml({"name": "tiger", "agent": "ba-pomcp", "preset": "quick"} | table)
    except (TypeError, ValueError, AttributeError):  # no TOML: null, for example
        return
    other.config.write_bytes(text.encode(errors="surrogatepass"))
    told(of_folder, other)
