"""Figure d: BADDr on the road with 9 lanes, where the tables of counts do not fit."""

from baddr.paper.claims import Claim, risking
from baddr.paper.costs import memory_needed
from baddr.paper.figures.by_domain import ROAD_NOTE, STUCK, road_baddr, road_latent, road_pomcp
from baddr.paper.figures.curves import LATENT_NOTE
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.returns import difference, gain, level

# Counts of one particle where all tables of the paper's graph of 9 lanes are stored (docs/factored.md).
COUNTS_9_LANES = 4_081_467_852


def curves(sizes: Sizes) -> Curves:
    return road_baddr(sizes, 9), road_pomcp(sizes, 9), road_latent(sizes, 9)


@risking(STUCK)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "BADDr nearly reaches the performance of POMCP on the true model.",
            difference("baddr", "pomcp", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_least=-2.5,
            paper="52.3 less 54.3",
            after=200,
        ),
        Claim(
            "BADDr returns 52.3 after 200 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=51.8,
            paper="52.3",
            after=200,
        ),
        Claim(
            "BADDr learns.", gain("baddr"), "BADDr, last quarter less first tenth", at_least=0.0, after=200
        ),
        Claim(
            "FBA-POMCP has 10^13 entries and runs out of memory.",
            memory_needed(4 * 1024 * COUNTS_9_LANES),
            "memory that 1024 particles with all tables need, by this machine's",
            at_least=1.0,
            paper="10^13 entries",
        ),
    )


FIGURE = Figure(
    "d",
    "BADDr on road racing, 9 lanes",
    "BADDr where the tables of FBA-POMCP do not fit.",
    curves,
    claims,
    note=f"{ROAD_NOTE} Where only what is uncertain is stored, FBA-POMCP does fit here: 8,748 "
    "counts a particle. `quick` has 256 particles in place of 1024, and networks of 64 nodes with "
    f"one-hot inputs in place of 256. {LATENT_NOTE}",
)
