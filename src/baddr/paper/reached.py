"""Episodes to equal return: when one agent first returns what another does. Needs no JAX."""

import numpy as np

from baddr.lab.statistics import NUM_RESAMPLES, Estimate, expanded, first_reached, moving_means
from baddr.paper.claims import Data, Finding, Measure, too_few, unseen_of
from baddr.paper.returns import Block, block_means, values_of


def reached(
    curve: str, other: str, other_block: Block = "last", within: int = 0, ratio: bool = True
) -> Measure:
    """Episodes that `curve` needs to reach the mean return of `other`'s block, by those that `other` had.

    `within`: of `other`, only so many episodes count. Where `curve` ends below the goal, the number is a
    lower bound. Both are resampled.
    """

    def measure(data: Data) -> Finding:
        slow, fast = data.sample(curve), data.sample(other)
        episodes = min(within or fast.episodes, fast.episodes)
        goals = values_of(block_means(fast, other_block, episodes))
        window = max(1, slow.episodes // 50)
        unit = episodes if ratio else 1
        means = moving_means(slow.table, window)
        value = first_reached(means, goals.mean(), window) / unit
        most, few = slow.episodes / unit, too_few([slow, fast], data, [curve, other])
        low, high = 0.0, np.inf
        if min(len(slow.ids), len(goals)) > 1:
            lower, higher = (unseen_of(data, float(goals.mean()), n) for n in (len(goals), len(slow.ids)))
            low, high = (x / unit for x in _resampled_reach(means, goals, window, (lower, higher)))
        found = Estimate(min(value, most), float(min(low, most)), float(high))
        units = (len(slow.ids), "learners"), (len(goals), fast.unit)
        never = bool(np.isinf(value))
        return Finding(found, f"{len(slow.ids)} learners", never, episodes, few, units)

    return measure


def _resampled_reach(
    means: np.ndarray, goals: np.ndarray, window: int, unseen: tuple[float, float]
) -> tuple[float, float]:
    """The 99.5 % interval of the first episode at which resampled learners reach resampled goals; its low end
    with goals that are lower by disasters that were not seen, its high end with learners that are."""
    generator = np.random.default_rng(0)
    draw = lambda n: generator.multinomial(n, np.full(n, 1 / n), size=NUM_RESAMPLES) / n
    weights, aims = draw(len(means)), draw(len(goals)) @ goals
    known = ~np.isnan(means)
    filled = np.where(known, means, 0.0)

    def first(weights: np.ndarray, aims: np.ndarray) -> np.ndarray:
        counted = weights @ known
        curves = weights @ filled / np.where(counted > 0, counted, np.nan)
        there = curves >= aims[:, None]
        return np.where(there.any(axis=1), there.argmax(axis=1) + window, np.inf)

    at_once = np.array_split(np.arange(NUM_RESAMPLES), 1 + NUM_RESAMPLES * means.shape[1] // 4_000_000)
    lower, upper = expanded(min(len(means), len(goals)))
    ends = (aims - unseen[0], lower), (aims + unseen[1], upper)
    low, high = (
        np.quantile(np.concatenate([first(weights[i], a[i]) for i in at_once]), q, method="inverted_cdf")
        for a, q in ends
    )
    return float(low), float(high)
