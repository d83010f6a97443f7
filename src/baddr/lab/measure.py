"""What an experiment takes, measured: a few real steps of as many chunks as are computed at a time, at the
real size, with networks that are trained if that is quickly done."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from baddr.agents.base import Built
from baddr.agents.life import Life
from baddr.lab.chunk import Chunk, Work
from baddr.lab.experiment import AnyExperiment

SECONDS = 3.0  # of steps, once they are compiled; a step that takes longer is measured once
EPISODES_PER_RUN = 2  # that end, on average: then their length is known
TRAINING = 10.0  # seconds of training that are spent here, and kept for the run; longer ones are foreseen


class Pace(NamedTuple):
    """What was measured."""

    training: float  # seconds, of what is not trained yet
    compiling: float  # seconds, with the first step
    steps: int  # of a chunk, after that
    step: float  # seconds that one took
    length: float  # of an episode, in steps
    known: bool = True  # whether that was seen; the horizon otherwise
    growth: float = 1.0  # how much longer episodes of a learner may become: until the horizon

    def seconds(self, episodes: int, turns: int) -> float:
        """Of chunks of so many episodes, `turns` of them one after the other."""
        return self.training + self.compiling + self.step * self.length * episodes * turns

    def text(self, episodes: int, turns: int) -> str:
        """How the time is known."""
        lasts = f"episodes of {self.length:.1f} steps" if self.length >= 1 else "several episodes each"
        lasts = lasts if self.known else f"episodes until the horizon, {self.length:.0f} steps"
        training = f", {said(self.training)} of training" if self.training else ""
        if self.growth > 1:
            most = said(self._replace(length=self.length * self.growth).seconds(episodes, turns))
            lasts = (
                f"if episodes stay as short as the first ones (up to {most} if they last until the horizon)"
            )
        return (
            f"measured over {self.steps} steps: {said(self.step)} each, {lasts}; plus {said(self.compiling)} "
            f"of compilation{training}"
        )


def said(seconds: float) -> str:
    """A time that is not known well: two digits."""
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds)} seconds" if seconds >= 1 else f"{_two_digits(1e3 * seconds)} ms"


def _two_digits(x: float) -> str:
    return f"{float(f'{x:.2g}'):,.{1 if x < 9.95 else 0}f}".removesuffix(".0")


class _Foreseen(Exception):
    """Training takes longer than there is time for: so many seconds."""


def trained(built: Built, most: float = TRAINING) -> tuple[Life, float]:
    """The life with its networks, and 0; where their training would take more than `most` seconds, with zeros
    for networks, and how long it would."""
    started, first = time.monotonic(), (0, 0.0)

    def progress(done: int, total: int, loss: float) -> None:
        nonlocal first
        now = time.monotonic() - started
        if not first[0]:
            first = done, now  # with the compilation
        each = (now - first[1]) / (done - first[0]) if done > first[0] else 0.0
        whole = now + each * (total - done)
        if whole > most and each:
            raise _Foreseen(whole)

    try:
        return built.train(progress)[0], 0.0
    except _Foreseen as foreseen:
        zeros = lambda x: jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
        return jax.tree.map(zeros, built.life), foreseen.args[0]


def pace(
    experiment: AnyExperiment, built: Built, horizon: int, chunks: int, seconds: float = SECONDS
) -> Pace:
    """Train if that is quickly done, compile, and take a few steps of `chunks` chunks at a time."""
    life, training = trained(built)
    alone = replace(experiment, prior="", episodes=2**30, trace=-1)
    started, work = time.monotonic(), Work(alone, life)
    runs = min(experiment.runs, experiment.chunk_size)
    some = [Chunk(work, 0, runs, None) for _ in range(chunks)]
    for chunk in some:
        chunk.advance()
    compiled = time.monotonic()
    with ThreadPoolExecutor(chunks) as pool:
        done = list(pool.map(lambda chunk: _walk(chunk, EPISODES_PER_RUN * runs, seconds), some))
    took, steps = time.monotonic() - compiled, sum(n for n, _ in done)
    lengths = np.concatenate([lengths for _, lengths in done])
    known = not training and len(lengths) >= runs * chunks
    length = min(float(horizon), steps * runs / len(lengths)) if known else float(horizon)
    growth = 1.0 if life.blocks_are_short or not known else horizon / float(np.mean(lengths))
    step = max(1e-9, took) * chunks / steps
    return Pace(training, compiled - started, steps, step, length, known, growth)


def _walk(chunk: Chunk, episodes: int, seconds: float) -> tuple[int, np.ndarray]:
    """Steps that a chunk takes within some seconds, or until enough episodes ended; and how long these
    were. A step of a learner is a block of updates."""
    started, steps, lengths = time.monotonic(), 0, np.zeros(0)
    while not steps or (time.monotonic() - started < seconds and len(lengths) < episodes):
        steps += chunk.block if chunk.work.life.blocks_are_short else 1
        lengths = np.concatenate([lengths, chunk.advance()["length"]])
    return steps, lengths
