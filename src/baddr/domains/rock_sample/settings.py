"""RockSample's settings, names, maps and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain

Cell = tuple[int, int]  # (x, y): x grows to the east, y to the north

# The maps that everybody uses, by (size, rocks): where the rover starts, and the rocks.
MAPS: dict[tuple[int, int], tuple[Cell, tuple[Cell, ...]]] = {
    (4, 4): ((0, 2), ((3, 1), (2, 1), (1, 3), (1, 0))),
    (7, 8): ((0, 3), ((2, 0), (0, 1), (3, 1), (6, 3), (2, 4), (3, 4), (5, 5), (1, 6))),
    (11, 11): (
        (0, 5),
        ((0, 3), (0, 7), (1, 8), (2, 4), (3, 3), (3, 8), (4, 3), (5, 8), (6, 1), (9, 3), (9, 9)),
    ),
}
MOST_ROCKS = 12  # of bounds that are tables over all sets of rocks
MOST_SOLVED_STATES = 512  # of simulators whose policies the tree knows


@dataclass(frozen=True)
class RockSampleSettings:
    """RockSample(n, k), and the prior over its sensor."""

    name: ClassVar[str] = "rock-sample"
    size: int = 4
    """n: columns and rows of the map."""
    rocks: int = 4
    """k: the number of rocks. (n, k) = (4, 4), (7, 8) and (11, 11) have the usual maps."""
    half_distance: float = 20.0
    """The true distance at which the sensor's efficiency is 1/2."""
    rules: Literal["standard", "pomcp"] = "standard"
    """What happens on moving off the map or sampling bare ground. standard: nothing. pomcp: the reward is
    -100 and the episode ends."""
    prior_low: float = 0.25
    """The smallest half-distance of a simulator. The logarithm is drawn uniformly."""
    prior_high: float = 40.0
    """The largest half-distance of a simulator."""
    prior_total: float = 4.0
    """The prior's total count for each row of the sensor, in tables and graphs."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 100
    """K: the most steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (self.size >= 2, "domain.size must be at least 2"),
            (
                1 <= self.rocks <= min(self.size**2, MOST_ROCKS),
                f"domain.rocks must lie between 1 and {MOST_ROCKS}, and fit on the map",
            ),
            (self.half_distance > 0, "domain.half-distance must be positive"),
            (
                0 < self.prior_low <= self.prior_high,
                "domain.prior-low must be positive and at most domain.prior-high",
            ),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount < 1, "domain.discount must lie in [0, 1)"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def layout(size: int, rocks: int) -> tuple[Cell, tuple[Cell, ...]]:
    """The start and the rocks: of the usual map, or of one drawn with a fixed seed."""
    if (size, rocks) in MAPS:
        return MAPS[size, rocks]
    cells = np.random.default_rng(0).permutation(size**2)[:rocks].tolist()
    return (0, size // 2), tuple(divmod(cell, size) for cell in cells)


def names(settings: RockSampleSettings) -> Names:
    cells, rocks = tuple(map(str, range(settings.size))), range(settings.rocks)
    return Names(
        state=(("x", cells), ("y", cells), *((f"rock {i}", ("bad", "good")) for i in rocks)),
        action=("north", "east", "south", "west", "sample", *(f"check {i}" for i in rocks)),
        observation=(("sensor", ("none", "bad", "good")),),
    )


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=32,
    episodes=20,
    groups={
        "planner": PoUct(num_simulations=2048, exploration=20.0, in_flight=1),
        "filter": Importance(num_particles=512, resample_below=128.0),
        "network": Network(hidden=64, dropout=0.1, learning_rate=0.0005),
        "pretrain": Pretrain(batches=4096, batch_size=64, learning_rate=0.005, optimizer="adam"),
    },
)


def presets(settings: RockSampleSettings) -> dict[str, Preset]:
    """Few particles in a plan are fast; more rocks need more of them."""
    particles = 1024 if settings.rocks > 8 else 256
    solved = 8 if settings.size**2 * 2**settings.rocks <= MOST_SOLVED_STATES else 0
    tree = BeliefTree(num_expansions=32, num_particles=particles, num_solved=solved)
    ours = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED)
    filtered = {"num_particles": particles, "resample_below": particles / 4}
    quick = ours.changed(ours.runs, ours.episodes, planner=tree, filter=filtered)
    found = {
        "quick": quick,
        "quick/network": quick.changed(8, ours.episodes),
        "paper": SIZES,
        **learners(),
    }
    return with_wide(found, names(settings).num_states)


ENTRY = Entry(
    summary="find the good rocks with a noisy sensor, sample them, and leave",
    settings=RockSampleSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.rock_sample.model"),
)
