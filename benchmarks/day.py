"""What a long run keeps: memory, open files and threads against the episodes that have ended (Linux).

    python benchmarks/day.py                                  # 10^5 episodes of 10 runs, then of 10^4 runs
    python benchmarks/day.py --runs 64 --episodes 100000      # one that takes longer

The agent is `random` with 8 particles on tiger: the cheapest, so that what is kept of an episode is most of
what there is. Each line is a moment of the run; the last is after the table was written. A line through the
second half of them says how many bytes an episode leaves in memory.
"""

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from baddr.files.store import Folder
from baddr.files.tables import Arrays
from baddr.lab import runner
from baddr.lab.experiment import AnyExperiment, preset

MOMENTS = 20  # of a run


def cheapest(runs: int, episodes: int, chunk_size: int) -> AnyExperiment:
    random = preset("tiger", "random")
    few = random.changed(filter=replace(random.settings.filter, num_particles=8))
    return replace(few, runs=runs, episodes=episodes, chunk_size=chunk_size)


def held() -> tuple[float, int, int]:
    """MiB of memory that is this process's own, open files, threads."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1024, len(os.listdir("/proc/self/fd")), int(status["Threads"])


class Meter:
    """A listener: looks at this process every so many episodes."""

    def __init__(self, every: int):
        self.every, self.ended = every, 0
        self.moments: list[tuple[int, float, int, int]] = []

    def __call__(self, rows: Arrays) -> None:
        before, self.ended = self.ended, self.ended + len(rows["run"])
        if self.ended // self.every > before // self.every:
            self.look()

    def look(self) -> None:
        self.moments.append((self.ended, *held()))
        print("{:12,d} episodes {:8.1f} MiB {:5d} files {:5d} threads".format(*self.moments[-1]), flush=True)

    def bytes_per_episode(self) -> float:
        """The slope over the second half, when all is compiled."""
        late = np.array(self.moments[len(self.moments) // 2 :], float)
        return float(np.polyfit(late[:, 0], late[:, 1], 1)[0]) * 2**20 if len(late) > 2 else float("nan")


def measure(experiment: AnyExperiment) -> Meter:
    total = experiment.runs * experiment.episodes
    print(f"{experiment.runs:,} runs of {experiment.episodes:,} episodes", flush=True)
    meter = Meter(max(1, total // MOMENTS))
    with tempfile.TemporaryDirectory() as folder:
        runner.start(experiment, Folder(Path(folder) / "run"), lambda *_: None, listeners=[meter])
        print(f"{meter.bytes_per_episode():.1f} bytes an episode over the second half; at the end:")
        meter.look()
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.ckpt"))
        print(f"{size / 2**20:.1f} MiB of checkpoints\n", flush=True)
    return meter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--chunk-size", type=int, default=0)
    options = parser.parse_args()
    sizes = [(options.runs, options.episodes)] if options.runs else [(10, 10_000), (10_000, 10)]
    for runs, episodes in sizes:
        measure(cheapest(runs, episodes, options.chunk_size))


if __name__ == "__main__":
    main()
