"""Figure b: BADDr against factored counts on the road with 3 lanes."""

from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import ROAD_NOTE, STUCK, road_baddr, road_latent, road_pomcp
from baddr.paper.figures.curves import LATENT_NOTE, curve
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.returns import difference, gain, level


def curves(sizes: Sizes) -> Curves:
    road = RoadRacingSettings(lanes=3)
    return (
        road_baddr(sizes, 3),
        curve(sizes, "fba-pomcp", "FBA-POMCP", road, "fba-pomcp", {"runs": 24, "episodes": 30}),
        road_pomcp(sizes, 3),
        road_latent(sizes, 3),
    )


@risking(STUCK)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "The difference between BADDr and tables of counts is non-existent.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-0.5,
            at_most=0.5,
            after=200,
        ),
        Claim(
            "BADDr returns 45.2 after 200 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=44.7,
            paper="45.2",
            after=200,
        ),
        Claim(
            "BADDr learns.", gain("baddr"), "BADDr, last quarter less first tenth", at_least=0.0, after=200
        ),
    )


FIGURE = Figure(
    "b",
    "Bayesian comparison on road racing, 3 lanes",
    "BADDr against factored counts.",
    curves,
    claims,
    note=f"{ROAD_NOTE} {LATENT_NOTE}",
)
