"""Tag's settings, names, map and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain

Cell = tuple[int, int]  # (x, y)
TOWER_X, TOWER_Y = range(5, 8), range(2, 5)  # on top of a corridor that is wide enough


@dataclass(frozen=True)
class TagSettings:
    """Tag, and the prior over the opponent's policy."""

    name: ClassVar[str] = "tag"
    width: int = 10
    """Cells in each of the corridor's two rows. From 8 on, another 3 x 3 cells lie above them."""
    flee: float = 0.8
    """The true probability that the opponent runs away, along the axis that it considers."""
    approach: float = 0.0
    """The true probability that the opponent comes nearer. Otherwise it stays."""
    walls: Literal["stay", "spread"] = "stay"
    """What the opponent does when a wall stops it. stay: it stays. spread: it makes one of its other
    moves."""
    prior_total: float = 3.0
    """Simulators have (flee, approach, stay) ~ Dirichlet(total / 3, total / 3, total / 3)."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 100
    """K: the most steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (2 <= self.width <= 20, "domain.width must lie between 2 and 20"),
            (
                min(self.flee, self.approach) >= 0 and self.flee + self.approach <= 1,
                "domain.flee and domain.approach must not be negative and add up to at most 1",
            ),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount < 1, "domain.discount must lie in [0, 1)"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def cells(width: int) -> list[Cell]:
    """All cells, row by row from below: 29 of them in the published map."""
    corridor = [(x, y) for y in range(2) for x in range(width)]
    tower = [(x, y) for y in TOWER_Y for x in TOWER_X] if width >= TOWER_X.stop else []
    return corridor + tower


def names(settings: TagSettings) -> Names:
    where = tuple(f"({x},{y})" for x, y in cells(settings.width))
    return Names(
        state=(("robot", where), ("opponent", where)),
        action=("north", "east", "south", "west", "tag"),
        observation=(("robot", (*where, "with the opponent")),),
    )


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=16,
    episodes=20,
    groups={
        "planner": PoUct(num_simulations=2048, exploration=20.0, in_flight=1),
        "filter": Importance(num_particles=1024, resample_below=256.0),
        "network": Network(hidden=64, dropout=0.1, inputs="onehot", learning_rate=0.0005),
        "pretrain": Pretrain(batches=8192, batch_size=64, learning_rate=0.002, optimizer="adam"),
    },
)
TREE = BeliefTree(num_expansions=24, num_particles=256)


def presets(settings: TagSettings) -> dict[str, Preset]:
    quick = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED).changed(
        SIZES.runs, SIZES.episodes, planner=TREE
    )
    found = {
        "quick": quick,
        "quick/network": quick.changed(4, SIZES.episodes, filter={"num_particles": 256}),
        "paper": SIZES,
        **learners(),
    }
    return with_wide(found, names(settings).num_states)


ENTRY = Entry(
    summary="find an opponent that runs away, and tag it",
    settings=TagSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.tag.model"),
)
