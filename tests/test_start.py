"""The way to the first episode: compiled beside the training, a step at a time, in few programs."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import world_and_agent

from baddr import prng
from baddr.agents import networks
from baddr.fast.pretrain import LONGEST_BLOCK, Fit, blocks
from baddr.fast.runs import advance, start
from baddr.files.store import Folder
from baddr.lab import runner
from baddr.lab.chunk import STEPS_PER_BLOCK, Chunk, Program, Work, compiled, jitted
from baddr.lab.engine import Local, _unless
from baddr.lab.experiment import preset
from baddr.planners.po_uct import PoUct


def small(agent="ba-pomcp", **changes):
    experiment = preset("tiger", agent)
    smaller = {
        "filter": {"num_particles": 8, "rejuvenate": False},
        "network": {"hidden": 4},
        "pretrain": {"num_networks": 2, "batches": 4, "max_gap": 1e9},
    }
    groups = experiment.settings.groups()
    smaller = {name: replace(groups[name], **changed) for name, changed in smaller.items() if name in groups}
    planner = {"planner": PoUct(num_simulations=8, in_flight=1)} if "planner" in groups else {}
    experiment = experiment.changed(**smaller, **planner)
    return replace(experiment, runs=4, episodes=3, chunk_size=4, **changes)


def same(one, other) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True))


@pytest.mark.slow  # tests/core/test_agent.py compares the returns of two lengths
def test_blocks_of_any_length_are_the_same_steps():
    """1, 3 and 4 steps leave what 8 at once do."""
    world, agent = world_and_agent(num_particles=32)
    first = start(jax.random.split(prng.key(0), 3), agent, world)
    last, steps = advance(first, agent, world, jnp.int32(5), 8)
    runs, parts = first, []
    for count in (1, 3, 4):
        runs, part = advance(runs, agent, world, jnp.int32(5), count)
        parts.append(jax.device_get(part))
    assert same(jax.tree.map(lambda *x: np.concatenate(x), *parts), jax.device_get(steps))
    raw = lambda runs: runs._replace(key=jax.random.key_data(runs.key))
    assert same(jax.device_get(raw(runs)), jax.device_get(raw(last)))


@pytest.mark.slow
def test_blocks_are_single_steps_until_an_episode_has_ended():
    experiment = small()
    work = Work(experiment, runner.resolve(experiment).life)
    asked, ends = [], [0, 0, 2, 0, 1, 1, 1]  # steps of each block, and how many of their episodes end

    def advance(runs, life, episodes):
        _, record = nothing(runs, life, jnp.int32(0))
        ended = np.zeros(record.ended.shape, bool)
        ended[0, : ends[len(asked) - 1] if asked[-1] == 0 else 0] = True
        asked[-1] += 1
        return runs, record._replace(ended=jnp.asarray(ended))

    program, nothing = jitted(work), jitted(work).advance
    chunk = Chunk(work, 0, 4, None, lambda: Program(advance, program.no_rows))
    for end in ends:
        asked.append(0)
        assert len(chunk.advance()["run"]) == end
    assert asked == [1, 1, 1, 2, 2, 4, STEPS_PER_BLOCK]


SLOW = [pytest.param(agent, marks=pytest.mark.slow) for agent in ("ba-pomcp", "filtering", "random")]


@pytest.mark.parametrize("agent", ["baddr", *SLOW])
def test_what_was_compiled_from_shapes_computes_the_same(agent, tmp_path, monkeypatch):
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path))
    experiment, told = small(agent), []
    experiment, _, trained, _ = runner.resolve(experiment, None, None, told.append)
    [shapes] = told
    arrays = [x for x in jax.tree.leaves(shapes.life) if isinstance(x, jax.ShapeDtypeStruct)]
    assert len(arrays) == (agent in ("baddr", "filtering"))  # the ensemble, before it was trained
    work = Work(experiment, trained)
    chunks = [Chunk(work, 0, 3, None, program) for program in (lambda: compiled(shapes), None)]
    told = [0, 0]
    for i, chunk in enumerate(chunks):
        while not chunk.finished:
            told[i] += len(chunk.advance()["run"])
    one, other = (chunk.checkpoint() for chunk in chunks)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert told == [9, 9]


def test_it_compiles_while_the_prior_trains(tmp_path, monkeypatch):
    """In a thread of its own, which has begun before the training does."""
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path))
    begun, training = threading.Event(), []

    def train(*arguments):
        training.append(begun.wait(60))
        return trained(*arguments)

    trained = networks.train
    monkeypatch.setattr(networks, "train", train)
    monkeypatch.setattr("baddr.lab.engine.compiled", lambda work: begun.set())
    with Local().opened() as local:
        runner.resolve(small("baddr"), None, local.place(), local.compile)
        assert training == [True]
        assert local.program is not None


def begin(folder, **patches):
    """Run it; what happened first: episodes ended, or the prior was tested."""
    told, measure = [], networks.measure_fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BADDR_CACHE", str(folder / "cache"))
        patch.setattr(networks, "measure_fit", lambda *x: (told.append("test"), measure(*x))[1])
        for name, value in patches.items():
            patch.setattr(Chunk, name, value)
        listeners = [lambda rows: told.append("episodes")]
        go = runner.resume if (folder / "results").exists() else runner.start
        with suppress(runner.Interrupted):
            go(small("baddr"), Folder(folder / "results"), lambda *news: None, listeners=listeners)
    return told, Folder(folder / "results").read_manifest()


def test_the_prior_is_tested_after_the_first_episodes(tmp_path):
    told, manifest = begin(tmp_path)
    assert told[0] == "episodes" and told.count("test") == 1
    fit = Fit(**{name: np.array(x) for name, x in manifest["prior"].items()})
    assert len(fit.gap) == 2
    np.testing.assert_allclose(fit.gap, fit.cross_entropy - fit.entropy, rtol=1e-5)


def test_what_was_stopped_before_is_tested_when_it_goes_on(tmp_path):
    def advance(chunk):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        return chunk.rows  # none

    told, manifest = begin(tmp_path, advance=advance)
    assert told == [] and manifest["prior"] is None and manifest["status"] == "running"
    told, manifest = begin(tmp_path)
    assert told[0] == "episodes" and told.count("test") == 1
    assert len(manifest["prior"]["gap"]) == 2 and manifest["status"] == "complete"


def test_an_estimate_trains_nothing(monkeypatch):
    monkeypatch.setattr(networks, "train", None)
    monkeypatch.setattr(networks, "cached_prior", None)
    estimate = runner.estimate(replace(small("baddr"), chunk_size=0))
    assert estimate["memory_bytes"] > 0
    larger = small("baddr")
    larger = larger.changed(network=replace(larger.settings.network, hidden=32))
    assert runner.estimate(replace(larger, chunk_size=0))["memory_bytes"] > 2 * estimate["memory_bytes"]


CODE = """
import json, sys
import jax.monitoring
from baddr.cli import main
programs = []
note = lambda event, duration, **_: programs.append(duration) if "backend_compile" in event else None
jax.monitoring.register_event_duration_secs_listener(note)
arguments = "run tiger --runs 4 --episodes 2 --planner.num-simulations 8 --filter.num-particles 8"
arguments += " --network.hidden 4 --pretrain.num-networks 2 --pretrain.batches 4 --pretrain.max-gap 1000"
try:
    main([*arguments.split(), "--out", sys.argv[1]])
finally:
    print(json.dumps(len(programs)))
"""


def test_a_run_is_few_programs(tmp_path):
    """Every eager operation is a program of its own: once there were 110 up to the first episode."""
    environment = os.environ | {"BADDR_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CODE, str(tmp_path / "results")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) < 30


COMPILES_FOR_MINUTES = """
import time
from baddr.lab import chunk
compile = chunk._compile
def slowly(*arguments):
    compile(*arguments)
    time.sleep(300)
chunk._compile = slowly
from baddr.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--pretrain.batches", "300000"], ["--agent", "random"]])
def test_an_interruption_does_not_wait_for_the_compiler(arguments, tmp_path):
    """Ctrl-C while the prior trains, or while chunks wait for their program, and the real steps compile for
    five more minutes. The main thread may itself be in the compiler, for the training: a few seconds, on a
    busy machine 10."""
    environment = os.environ | {"BADDR_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", COMPILES_FOR_MINUTES, "run", "tiger", *arguments]
    command += ["--out", str(tmp_path / "results")]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "compiling" in process.stderr.readline()
        time.sleep(3 if "--agent" not in arguments else 10)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=90) == 130
        finally:
            process.kill()


def test_who_is_to_stop_waits_for_no_program():
    stop, program = threading.Event(), Future[Any]()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(runner.Interrupted):
        _unless(stop, program)
    program.set_result(Program(print, {}))
    assert _unless(stop, program).advance is print  # its chunk has a checkpoint to write


@pytest.mark.parametrize("batches", [0, 5, 16, 4100, 300_000, 10**8])
def test_training_looks_up_often(batches):
    """A Ctrl-C waits for a block, and blocks are of two lengths at most: programs."""
    spans = list(blocks(batches))
    lengths = [last - first for first, last in spans]
    assert sum(lengths) == batches and all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert max(lengths, default=0) <= LONGEST_BLOCK and len(set(lengths)) <= 2
    assert len(spans) >= min(batches, 16)
