"""Light-Dark's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain


class Rules(NamedTuple):
    """One of the two problems of this name that are in use."""

    moves: tuple[int, ...]  # 0 stops
    right: float  # the reward for stopping at the goal
    wrong: float
    cost: float  # of a move


RULES = {
    "pomcpow": Rules((-10, -1, 0, 1, 10), 100.0, -100.0, 1.0),
    "1d": Rules((-1, 0, 1), 10.0, -10.0, 0.0),
}


@dataclass(frozen=True)
class LightDarkSettings:
    """Light-Dark on a line of cells, and the prior over where the light is."""

    name: ClassVar[str] = "light-dark"
    reach: int = 15
    """The line has the cells -reach to reach; the goal is cell 0."""
    rules: Literal["pomcpow", "1d"] = "pomcpow"
    """pomcpow: moves of 1 and 10, each at a cost of 1; stopping pays 100 at the goal and -100 elsewhere. 1d:
    moves of 1, at no cost; stopping pays 10 and -10."""
    light: int = 10
    """The true cell of the light, where the agent sees best."""
    slope: float = 1.0
    """The true noise: its standard deviation is slope times the distance to the light, and at least .1."""
    start_mean: float = 2.0
    """The mean of the first cell, which is drawn from a normal distribution."""
    start_deviation: float = 3.0
    """The standard deviation of the first cell."""
    prior_slope: float = 2.0
    """Simulators have a slope between 1 / prior_slope and prior_slope, and the light in any cell."""
    prior_total: float = 4.0
    """The prior's total count for each row of the observations, in tables and graphs."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 40
    """K: the most steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (2 <= self.reach <= 50, "domain.reach must lie between 2 and 50"),
            (abs(self.light) <= self.reach, "domain.light must be a cell of the line"),
            (self.slope > 0, "domain.slope must be positive"),
            (self.start_deviation > 0, "domain.start-deviation must be positive"),
            (self.prior_slope >= 1, "domain.prior-slope must be at least 1"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: LightDarkSettings) -> Names:
    cells = tuple(map(str, range(-settings.reach, settings.reach + 1)))
    moves = tuple("stop" if move == 0 else f"{move:+d}" for move in RULES[settings.rules].moves)
    return Names(state=(("cell", cells),), action=moves, observation=(("seen", cells),))


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=32,
    episodes=50,
    groups={
        "planner": PoUct(num_simulations=2048, exploration=100.0, in_flight=1),
        "filter": Importance(num_particles=512, resample_below=128.0),
        "network": Network(hidden=64, dropout=0.1, inputs="onehot", learning_rate=0.002),
        "pretrain": Pretrain(batches=8192, batch_size=64, learning_rate=0.005, optimizer="adam"),
    },
)


def presets(settings: LightDarkSettings) -> dict[str, Preset]:
    ours = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED)
    tree = BeliefTree(num_expansions=32, num_particles=128)
    quick = ours.changed(SIZES.runs, SIZES.episodes, planner=tree)
    small = quick.changed(8, SIZES.episodes, filter={"num_particles": 256})
    return {"quick": quick, "quick/network": small, "paper": SIZES, **learners()}


ENTRY = Entry(
    summary="go to the light to see well, then to the goal, and stop there",
    settings=LightDarkSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.light_dark.model"),
    suite={"light": 0, "slope": 0.5},  # one sees best at the goal; the prior's plan goes away to look
)
