"""How what a domain describes is distributed over a belief's models: a histogram for each entry.

A particle's own models are taken to be spread as the Beta variable of their mean and variance, which those of
counts are exactly. Where all models of a particle agree, it is a point.
"""

from typing import Any

import numpy as np

NUM_BINS = 20
POINT = 1e-3  # a standard deviation below is none


def distributions(weights: np.ndarray, each: dict[str, np.ndarray]) -> dict[str, Any]:
    """NAME_distribution: the bins' upper end (they start at 0), and the mass in each bin by entry.

    `each` holds NAME_mean and NAME_std of the particles, [particle, entry]. Where the domain gives a
    histogram of its own, there is no other.
    """
    stems = [name.removesuffix("_mean") for name in each if name.endswith("_mean")]
    wanted = [x for x in stems if f"{x}_std" in each and f"{x}_histogram" not in each]
    return {f"{x}_distribution": _binned(weights, each[f"{x}_mean"], each[f"{x}_std"]) for x in wanted}


def _binned(weights: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    top = float(max(1.0, np.ceil(np.max(mean + std))))
    below = _below(np.linspace(0, 1, NUM_BINS + 1), np.clip(mean / top, 0, 1), std / top)
    return {"top": top, "mass": (np.diff(below.astype(float), axis=0) @ weights).T.tolist()}


def _below(edges: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The mass below each edge, [edge, entry, particle]."""
    from scipy.special import betainc

    mean, std, x = mean.T, std.T, edges[:, None, None]
    count = np.maximum(mean * (1 - mean) / np.maximum(std, POINT) ** 2 - 1, 1e-3)
    spread = betainc(np.maximum(mean * count, 1e-6), np.maximum((1 - mean) * count, 1e-6), x)
    point = (mean < x) | (x == 1)
    return np.where(std < POINT, point & (x > 0), spread)
