"""What an experiment takes, measured: a few real steps of one chunk, at the real size."""

import time
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from baddr.agents.life import Life
from baddr.domains.catalog import DOMAINS
from baddr.lab.chunk import Chunk, Work
from baddr.lab.experiment import AnyExperiment

SECONDS = 5.0  # of steps, once they are compiled; a step that takes longer is measured once
EPISODES_PER_RUN = 2  # that end, on average: then their length is known


class Pace(NamedTuple):
    """What was measured of one chunk."""

    compiling: float  # seconds, with the first step
    steps: int  # after that
    seconds: float  # that these took
    episodes: float  # that end in a step, over all runs of the chunk; 0 where too few did

    def of_chunk(self, experiment: AnyExperiment, horizon: int) -> float:
        """The seconds that a chunk takes. Where too few episodes have ended, each lasts until the horizon."""
        step = self.seconds / self.steps
        if not self.episodes:
            return step * horizon * experiment.episodes
        return step * experiment.chunk_size * experiment.episodes / self.episodes

    @property
    def text(self) -> str:
        """How the time is known."""
        said = f"by {self.steps} steps of a chunk, measured here in {self.seconds:.1f} s"
        lasts = "" if self.episodes else ", if every episode lasts until the horizon"
        return f"{said} after {self.compiling:.0f} s of compilation{lasts}"


def has_no_figure(experiment: AnyExperiment, platform: str) -> bool:
    """Whether nobody knows what a step takes: of files, of users' own domains, planners and filters, and of
    agents that do not plan."""
    groups = experiment.settings.groups().values()
    own = any(type(group).__module__.partition(".")[0] != "baddr" for group in groups)
    return experiment.name not in DOMAINS or own or not experiment.settings.seconds_per_step(platform)


def pace(experiment: AnyExperiment, life: Life, seconds: float = SECONDS) -> Pace:
    """Build a chunk, compile it, and take a few steps. Networks that are not trained yet are zeros."""
    zeros = lambda x: jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x
    alone = replace(experiment, prior="", episodes=2**30, trace=-1)
    started = time.monotonic()
    runs = min(experiment.runs, experiment.chunk_size)
    chunk = Chunk(Work(alone, jax.tree.map(zeros, life)), 0, runs, None)
    chunk.advance()
    first = time.monotonic()
    steps, ended, now = 0, 0, first
    while not steps or (now - first < seconds and ended < EPISODES_PER_RUN * runs):
        steps += chunk.block if life.blocks_are_short else 1
        ended += len(chunk.advance()["run"])
        now = time.monotonic()
    known = ended >= EPISODES_PER_RUN * runs
    each = ended / steps * experiment.chunk_size / runs if known else 0.0
    return Pace(first - started, steps, max(1e-9, now - first), each)
