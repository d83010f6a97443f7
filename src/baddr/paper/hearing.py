"""The belief over the hearing accuracy, and how certain it becomes. Needs no JAX."""

from dataclasses import replace

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.statistics import Sample, sample, sum_of_means
from baddr.paper.claims import Data, Finding, Measure, allowing, too_few, unseen_of


def belief(curve: str, column: str, episode: int) -> Measure:
    """A column of the belief about both doors after an episode (from 1; the last where it is fewer)."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], column)
        return _of_units(s, s.table[:, min(episode, s.episodes) - 1], data, curve)

    return measure


def _of_units(s: Sample, values: np.ndarray, data: Data, curve: str) -> Finding:
    seen = sum_of_means([1.0], [values[~np.isnan(values)]], True)
    found = allowing(seen, (unseen_of(data, seen.value, len(s.ids)), 0.0), data.times)
    units, few = ((len(s.ids), s.unit),), too_few([s], data, [curve])
    basis = f"{len(s.ids)} {s.unit}"
    return Finding(found, basis, episodes=s.episodes, too_few=few, units=units, seen=seen)


def accuracy(results: dict[int, Arrays], column: str) -> Sample:
    """`column` of the belief about hearing, the mean over both doors."""
    both = lambda columns: {**columns, "both": (columns[f"{column}_0"] + columns[f"{column}_1"]) / 2}
    return sample({seed: both(columns) for seed, columns in results.items()}, "both")


def narrowing(curve: str, episode: int) -> Measure:
    """The standard deviation of the belief after an episode, less that after the first."""

    def measure(data: Data) -> Finding:
        s = accuracy(data.results[curve], "accuracy_std")
        narrower = s.table[:, min(episode, s.episodes) - 1] - s.table[:, 0]
        return _of_units(s, narrower, replace(data, worst=None), curve)

    return measure
