"""Road racing's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass, replace
from typing import ClassVar

from baddr.core.checks import wrong
from baddr.core.filters import Importance, Rejection
from baddr.domains.entry import Entry, Names, Preset, Quantity, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import LatentSettings, Network, Pretrain

MOST_LANES = 64  # each is a feature of the state, and a part of every program


@dataclass(frozen=True)
class RoadRacingSettings:
    """Road racing, and the prior over it."""

    name: ClassVar[str] = "road-racing"
    lanes: int = 3
    """n: the number of lanes. Each has one car."""
    certainty: float = 1000.0
    """c: simulators draw each lane's speed from Beta(c/2, c/2). 1000: the paper's; all speeds are close
    to 1/2. 4 to 10: a wide prior."""
    prior_total: float = 10.0
    """The prior's total count for each uncertain row. A flat table needs at most 2 lanes."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 20
    """K: the number of steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (1 <= self.lanes <= MOST_LANES, f"domain.lanes must lie between 1 and {MOST_LANES}"),
            (self.certainty > 0, "domain.certainty must be positive"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: RoadRacingSettings) -> Names:
    distances = tuple(map(str, range(6)))
    cars = [(f"distance in lane {i}", distances) for i in range(settings.lanes)]
    return Names(
        state=(("lane", tuple(map(str, range(settings.lanes)))), *cars),
        action=("up", "stay", "down"),
        observation=(("distance", distances),),
        model=(
            Quantity(
                "speed",
                "speed: p(a car comes nearer)",
                tuple(f"lane {i}" for i in range(settings.lanes)),
                tuple((i + 1) / (settings.lanes + 1) for i in range(settings.lanes)),
            ),
        ),
    )


# The networks predict the features of s' apart, but the agent's lane depends on where the cars have gone: no
# network comes closer than .103 nats with 3 lanes and .137 with 9 (docs/domains/road-racing.md).
MAX_GAP = 0.25

PAPER_3 = Preset(
    runs=1000,
    episodes=200,
    groups={
        "planner": PoUct(num_simulations=128, exploration=15.0, depth=3, in_flight=1),
        "filter": Rejection(num_particles=1024),
        # The table has an online learning rate for nine lanes only; that three lanes share it is our choice.
        "network": Network(hidden=32, dropout=0.1, learning_rate=0.0001),
        "pretrain": Pretrain(batches=2048, batch_size=64, learning_rate=0.005, max_gap=MAX_GAP),
    },
)
PAPER_9 = PAPER_3.changed(
    300,
    300,
    network={"hidden": 256},
    pretrain={"batches": 16384, "batch_size": 256, "learning_rate": 0.0025},
)

# For agent latent. Under the paper's certainty that all speeds are 1/2 a Bayesian must not learn others
# quickly. All simulators observe alike. Speeds of lanes that are not seen are carried by many particles:
# with few of them, or where they are resampled at every step, all soon share what one of them imagined
# (docs/latent.md).
WIDE = {"certainty": 4.0}
LATENT_3 = replace(
    PAPER_3.changed(
        PAPER_3.runs,
        PAPER_3.episodes,
        filter=Importance(num_particles=4096, resample_below=2048.0, tries=4),
        latent=LatentSettings(dimensions=6, hidden=64, learn_observation=False, max_gap=MAX_GAP),
    ),
    domain=WIDE,
)
LATENT_9 = LATENT_3.changed(
    PAPER_9.runs,
    PAPER_9.episodes,
    filter={"num_particles": 8192, "resample_below": 4096.0},
    latent={"dimensions": 12, "hidden": 128, "batch_size": 2048},
)

TREE = BeliefTree(num_expansions=16, num_particles=256)
MOST_LANES_OF_A_TREE = 5  # n 6^n states: more would be too many for its bounds


def presets(settings: RoadRacingSettings) -> dict[str, Preset]:
    """The paper has columns for 3 and 9 lanes; from 6 lanes on we take the latter."""
    large = settings.lanes >= 6
    paper = PAPER_9 if large else PAPER_3
    # With the table's SGD the networks hardly learn anything; with Adam, and longer, they fit. With larger
    # rates they fit better, but learn more slowly online (docs/domains/road-racing.md).
    fits = {"batches": 8192, "batch_size": 64, "learning_rate": 0.002, "optimizer": "adam"}
    ours = paper.changed(paper.runs, paper.episodes, planner=IMPROVED)
    quick = ours.changed(8, 20, pretrain=fits)
    if large:  # 1024 particles with networks of 256 nodes would take hours
        network, fits = {"hidden": 64, "inputs": "onehot"}, fits | {"learning_rate": 0.005}
        quick = ours.changed(4, 10, network=network, pretrain=fits)
    rate, episodes = (3e-4, 20_000) if large else (1e-3, 40_000)
    tree = {"planner": TREE} if settings.lanes <= MOST_LANES_OF_A_TREE else {}
    latent = LATENT_9 if large else LATENT_3
    presets = {
        "quick": ours.changed(64, 40, **tree),
        "quick/network": quick,
        "quick/latent": latent.changed(8, 20, **(tree or {"planner": IMPROVED})),
        "paper": paper,
        "paper/latent": latent,
        **learners(episodes, learning_rate=rate, num_particles=15),
    }
    return with_wide(presets, settings.lanes * 6**settings.lanes, **WIDE)


ENTRY = Entry(
    summary="change lanes to keep away from slower cars",
    settings=RoadRacingSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.road_racing.model"),
)
