"""Banks of models: points of a grid, or draws, in place of a Dirichlet, for beliefs that are tables."""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

MOST_ON_A_GRID = 2  # Dirichlets of two categories each
NUM_DRAWN = 256  # models, where there are more


def bank_of(
    alphas: Sequence[Float[np.ndarray, " _"]], grid: int, seed: int = 0
) -> tuple[Float[np.ndarray, "G counts"], Float[np.ndarray, " G"]]:
    """Models of a few Dirichlets, their parameters side by side, and the prior's weights of the models."""
    uncertain = [alpha for alpha in alphas if len(alpha) > 1]
    if len(uncertain) <= MOST_ON_A_GRID and all(len(alpha) == 2 for alpha in uncertain):
        return _grid(alphas, grid)
    random = np.random.default_rng(seed)
    drawn = [random.dirichlet(alpha, NUM_DRAWN) for alpha in alphas]
    return np.concatenate(drawn, axis=1), np.full(NUM_DRAWN, 1 / NUM_DRAWN)


def _grid(
    alphas: Sequence[Float[np.ndarray, " _"]], grid: int
) -> tuple[Float[np.ndarray, "G counts"], Float[np.ndarray, " G"]]:
    """Equal steps in (0, 1) for each, weighed by its density."""
    p = (np.arange(grid) + 0.5) / grid
    points, weights = [], []
    for alpha in alphas:
        one = len(alpha) == 1
        points.append(np.ones((1, 1)) if one else np.stack([p, 1 - p], axis=1))
        log = np.zeros(1) if one else (alpha[0] - 1) * np.log(p) + (alpha[1] - 1) * np.log1p(-p)
        weights.append(np.exp(log - log.max()) / np.exp(log - log.max()).sum())
    chosen = list(itertools.product(*(range(len(w)) for w in weights)))
    rows = [[y for x, i in zip(points, pick, strict=True) for y in x[i]] for pick in chosen]
    mass = [np.prod([w[i] for w, i in zip(weights, pick, strict=True)]) for pick in chosen]
    return np.array(rows).reshape(len(chosen), -1), np.array(mass)
