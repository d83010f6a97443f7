"""What agents cost: the time of a step, the hours of a run, memory. Needs no JAX."""

import numpy as np

from baddr.lab.statistics import NUM_RESAMPLES, Estimate, expanded, sum_of_means
from baddr.paper.claims import Data, Finding, Measure

FEWEST_STEPS = 8  # that are timed


def slower(curve: str, other: str) -> Measure:
    """The time of a real step of one agent by that of another."""

    def measure(data: Data) -> Finding:
        x, y = (np.array(data.timings[name]["seconds"]) for name in (curve, other))
        generator = np.random.default_rng(0)
        again = lambda v: v[generator.integers(len(v), size=(NUM_RESAMPLES, len(v)))].mean(axis=1)
        few = min(len(x), len(y))
        low, high = np.quantile(again(x) / again(y), expanded(max(few, 2)))
        found = Estimate(float(x.mean() / y.mean()), float(low), float(high))
        return Finding(found, f"{len(x)} and {len(y)} steps", too_few=_few_steps(few))

    return measure


def _few_steps(steps: int) -> str:
    return f"{steps} of {FEWEST_STEPS} timed steps" if steps < FEWEST_STEPS else ""


def hours_of_a_run(curve: str, steps: int) -> Measure:
    """What `steps` real steps take at the measured time of one."""

    def measure(data: Data) -> Finding:
        seconds = np.array(data.timings[curve]["seconds"])
        hours = sum_of_means([1.0], [seconds * steps / 3600], True)
        basis = f"{steps:,} steps at most, from {len(seconds)} timed"
        return Finding(hours, basis, too_few=_few_steps(len(seconds)))

    return measure


def memory_needed(bytes_needed: int) -> Measure:
    """A number of bytes by the memory of this machine."""

    def measure(data: Data) -> Finding:
        share = bytes_needed / max(data.memory, 1)
        return Finding(Estimate(share, share, share), f"of {data.memory / 2**30:,.0f} GiB")

    return measure
