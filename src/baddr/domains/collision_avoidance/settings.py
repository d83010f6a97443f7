"""Collision avoidance's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass, replace
from typing import ClassVar

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, Quantity, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import LatentSettings, Network, Pretrain

LARGEST_SIZE = 1289  # its n^3 states are numbered with 32 bits


@dataclass(frozen=True)
class CollisionAvoidanceSettings:
    """Collision avoidance, and the prior over it. An episode has size - 1 steps."""

    name: ClassVar[str] = "collision-avoidance"
    size: int = 5
    """N: columns and rows of the grid. An odd number: the paper does not say which, but 5 fits its
    returns."""
    down: float = 0.25
    """The true probability that the obstacle moves down."""
    up: float = 0.25
    """The true probability that the obstacle moves up. Otherwise it stays."""
    noise: float = 1.0
    """The standard deviation of the noise on the obstacle's observed row."""
    prior_down: float = 0.05
    """The prior's expectation of domain.down."""
    prior_up: float = 0.05
    """The prior's expectation of domain.up."""
    certainty: float = 10_000.0
    """c: each simulator draws (down, stay, up) from Dirichlet(c * expectation), once for all cells. 10,000:
    the paper's; all draws are close to the expectation. 4 to 10: a wide prior."""
    prior_total: float = 10.0
    """The prior's total count for each row of the obstacle's moves. A flat table needs a size of at most
    5."""
    prior_observation_total: float = 10.0
    """The prior's total count for the obstacle's observed row, in fba-pomcp's graph uncertain-observation."""
    discount: float = 0.95
    """The discount factor gamma."""

    def problems(self) -> list[str]:
        return wrong(
            (self.size >= 3 and self.size % 2 == 1, "domain.size must be an odd number, at least 3"),
            (self.size <= LARGEST_SIZE, f"domain.size must be at most {LARGEST_SIZE}"),
            (
                min(self.down, self.up) >= 0 and self.down + self.up <= 1,
                "domain.down and domain.up must not be negative and add up to at most 1",
            ),
            (
                min(self.prior_down, self.prior_up) > 0 and self.prior_down + self.prior_up < 1,
                "domain.prior-down and domain.prior-up must be positive and add up to less than 1",
            ),
            (self.noise > 0, "domain.noise must be positive"),
            (self.certainty > 0, "domain.certainty must be positive"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (self.prior_observation_total > 0, "domain.prior-observation-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
        )


def names(settings: CollisionAvoidanceSettings) -> Names:
    cells = tuple(map(str, range(settings.size)))
    features = (("column", cells), ("row", cells), ("obstacle's row", cells))
    moves = ("down", "stay", "up")
    truth = (settings.down, 1 - settings.down - settings.up, settings.up)
    model = Quantity("obstacle", "p(the obstacle moves)", moves, truth)
    return Names(state=features, action=moves, observation=features, model=(model,))


PAPER = Preset(
    runs=35000,
    episodes=500,
    groups={
        "planner": PoUct(num_simulations=256, exploration=1000.0, in_flight=1),
        "filter": Importance(num_particles=128, resample_below=32.0),
        "network": Network(hidden=64, dropout=0.5, learning_rate=0.0005, learn_observation=False),
        "pretrain": Pretrain(batches=8192, batch_size=32, learning_rate=0.05, optimizer="sgd"),
    },
)

OURS = PAPER.changed(PAPER.runs, PAPER.episodes, planner=IMPROVED)
TREE = BeliefTree(num_expansions=16, num_particles=256)

# Under the paper's certainty of a wrong policy a Bayesian must not learn it quickly. All simulators observe
# alike. Most of the wide prior's hardly move: one Gaussian would not do.
WIDE = {"certainty": 4.0}
LATENT = replace(
    PAPER.changed(
        PAPER.runs,
        PAPER.episodes,
        filter={"num_particles": 8192, "resample_below": 4096.0, "tries": 8},
        latent=LatentSettings(hidden=64, width=0.4, learn_observation=False),
    ),
    domain=WIDE,
)
FEWER = {"num_particles": 4096, "resample_below": 2048.0, "tries": 4}  # for two cores


def presets(settings: CollisionAvoidanceSettings) -> dict[str, Preset]:
    presets = {
        "quick": OURS.changed(64, 100, planner=TREE),
        "quick/network": OURS.changed(32, 100, planner=TREE),
        "quick/latent": LATENT.changed(32, 100, planner=TREE, filter=FEWER),
        "paper": PAPER,
        "paper/latent": LATENT,
        **learners(600_000, learning_rate=1e-4, num_particles=30),
    }
    return with_wide(presets, settings.size**3, **WIDE)


ENTRY = Entry(
    summary="fly past a moving obstacle that is seen through noise",
    settings=CollisionAvoidanceSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.collision_avoidance.model"),
    suite={"down": 0.05, "up": 0.5},  # beside the paper's truth the prior's plan is as good as can be
)
