"""Figure f: BADDr against DPFRL on the road."""

from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import ROAD_NOTE, STUCK, road_baddr, road_dpfrl, road_pomcp
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.reached import reached
from baddr.paper.returns import difference


def curves(sizes: Sizes) -> Curves:
    found = []
    for lanes in (3, 9):
        panel = f"{lanes} lanes"
        found += [
            road_baddr(sizes, lanes, name=f"baddr-{lanes}", panel=panel),
            road_dpfrl(sizes, lanes, panel=panel),
            road_pomcp(sizes, lanes, name=f"pomcp-{lanes}", panel=panel),
        ]
    return tuple(found)


@risking(STUCK)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    found = []
    for lanes, ratio in ((3, "100"), (9, "40")):
        found += [
            Claim(
                f"{lanes} lanes: BADDr has the better initial performance.",
                difference(f"baddr-{lanes}", f"dpfrl-{lanes}", "first", 100),
                "BADDr's first tenth less DPFRL's first 100 episodes",
                at_least=0.0,
                after=200,
            ),
            Claim(
                f"{lanes} lanes: DPFRL takes thousands of episodes to get where BADDr starts.",
                reached(f"dpfrl-{lanes}", f"baddr-{lanes}", "first", ratio=False),
                "episodes until DPFRL reaches BADDr's first tenth",
                at_least=1000.0,
                paper="thousands",
                after=200,
            ),
            Claim(
                f"{lanes} lanes: BADDr needs at least 40 times fewer episodes.",
                reached(f"dpfrl-{lanes}", f"baddr-{lanes}"),
                "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
                at_least=40.0,
                paper=ratio,
                after=200,
            ),
        ]
    return tuple(found)


FIGURE = Figure(
    "f",
    "Non-Bayesian comparison on road racing, 3 and 9 lanes",
    "BADDr against DPFRL; the axis of episodes is logarithmic.",
    curves,
    claims,
    log=True,
    note=ROAD_NOTE,
)
