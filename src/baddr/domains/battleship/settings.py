"""Battleship's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from baddr.core.checks import wrong
from baddr.core.filters import Importance
from baddr.domains.entry import Entry, Names, Preset, by_module, learners
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import Network, Pretrain

Cells = tuple[int, ...]  # of a ship, by number: row * size + column


@dataclass(frozen=True)
class BattleshipSettings:
    """Battleship, and the prior over where ships are placed."""

    name: ClassVar[str] = "battleship"
    size: int = 5
    """n: rows and columns of the sea (published: 10)."""
    ships: tuple[int, ...] = (3, 2)
    """The lengths of the ships (published: 5 4 3 2)."""
    rules: Literal["apart", "free"] = "apart"
    """apart: ships do not touch, not even at corners (Silver and Veness). free: ships may touch, but not
    overlap."""
    edge: float = 2.0
    """How strongly ships are truly drawn to the edge: the weight of a place is exp(edge * the share of its
    cells on the edge). Published: 0."""
    prior_edge: float = 3.0
    """Simulators have a domain.edge between -prior_edge and prior_edge."""
    discount: float = 1.0
    """The discount factor gamma."""

    @property
    def horizon(self) -> int:
        """One step in which the fleet is put, and one for each cell."""
        return self.size**2 + 1

    def problems(self) -> list[str]:
        return wrong(
            (2 <= self.size <= 10, "domain.size must lie between 2 and 10"),
            (
                1 <= len(self.ships) <= 5 and all(1 <= length <= self.size for length in self.ships),
                "domain.ships must be one to five lengths, each at most domain.size",
            ),
            (sum(self.ships) * 2 <= self.size**2, "domain.ships must cover at most half of the sea"),
            (self.prior_edge > 0, "domain.prior-edge must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
        )


def places(size: int, length: int) -> list[Cells]:
    """Where a ship can lie: across, then down (once, where it has one cell)."""
    start = [(y, x) for y in range(size) for x in range(size)]
    across = [tuple(y * size + x + i for i in range(length)) for y, x in start if x + length <= size]
    down = [tuple((y + i) * size + x for i in range(length)) for y, x in start if y + length <= size]
    return across if length == 1 else across + down


def names(settings: BattleshipSettings) -> Names:
    n = settings.size
    cell = lambda i: f"({i // n},{i % n})"
    fleet = tuple(
        (f"ship {i}", ("not yet", *("-".join(map(cell, (at[0], at[-1]))) for at in places(n, length))))
        for i, length in enumerate(settings.ships)
    )
    sea = tuple((f"cell {cell(i)}", ("free", "shot")) for i in range(n * n))
    return Names(
        state=(*fleet, *sea),
        action=tuple(f"shoot {cell(i)}" for i in range(n * n)),
        observation=(("seen", ("nothing", "miss", "hit")),),
    )


SIZES = Preset(  # not in the paper: the sizes are ours
    runs=16,
    episodes=20,
    groups={
        "planner": PoUct(num_simulations=1024, exploration=25.0, depth=12, in_flight=1),
        "filter": Importance(num_particles=1024, resample_below=256.0),
        "network": Network(hidden=64, dropout=0.1, learning_rate=0.0005),
        "pretrain": Pretrain(batches=8192, batch_size=64, learning_rate=0.005, optimizer="adam"),
    },
)


def presets(settings: BattleshipSettings) -> dict[str, Preset]:
    quick = SIZES.changed(SIZES.runs, SIZES.episodes, planner=IMPROVED)
    return {
        "quick": quick,
        "quick/network": quick.changed(4, SIZES.episodes, filter={"num_particles": 256}),
        "paper": SIZES,
        **learners(),
    }


ENTRY = Entry(
    summary="sink a hidden fleet with as few shots as possible",
    settings=BattleshipSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.battleship.model"),
)
