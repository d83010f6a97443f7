"""Figure g: BADDr in gridverse's rooms."""

from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import LOST, room_curve
from baddr.paper.figures.curves import LATENT_NOTE
from baddr.paper.figures.figure import BLUE, GREEN, VERMILION, Curves, Figure, Sizes
from baddr.paper.returns import difference, difference_of_gaps

ROOMS = {8: (BLUE, "-", "o", ".80"), 16: (VERMILION, "--", "s", ".62"), 32: (GREEN, "-.", "^", ".62")}


def curves(sizes: Sizes) -> Curves:
    found = []
    for size, (colour, line, marker, paper) in ROOMS.items():
        reaches = f"{paper} after 50"
        found += [
            room_curve(sizes, size, "baddr", style=(colour, line, marker), paper=reaches),
            room_curve(sizes, size, "pomcp", style=(colour, ":", "")),
            room_curve(sizes, size, "latent", style=(colour, line, "P")),
        ]
    return tuple(found)


@risking(LOST)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    near = [
        Claim(
            f"{size} x {size}: BADDr performs nearly as well as if given the true model.",
            difference(f"baddr-{size}", f"pomcp-{size}", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_least=-0.05,
            after=50,
        )
        for size in ROOMS
    ]
    larger = Claim(
        "A larger room has only a small visible effect.",
        difference_of_gaps("baddr-32", "pomcp-32", "baddr-8", "pomcp-8"),
        "how much further BADDr stays below POMCP in the room of 32 than in that of 8",
        at_most=0.05,
        after=50,
    )
    return (*near, larger)


FIGURE = Figure(
    "g",
    "BADDr on gridverse",
    "BADDr in rooms of 8, 16 and 32 cells a side, with POMCP on the true model as upper bounds.",
    curves,
    claims,
    note="The paper's returns (.80, .62, .62) are impossible with one cell a step: forward walks 4 "
    "cells here, and 8 in the room of 32 (optima .8145, .6634, .6634). The table's 512 batches do "
    f"not train the networks; here they have 4096 (`quick`) or 16,384. {LATENT_NOTE}",
)
