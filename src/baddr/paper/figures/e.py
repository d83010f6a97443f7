"""Figure e: BADDr against DPFRL on tiger."""

from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import TIGER, tiger_baddr, tiger_dpfrl, tiger_pomcp
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.reached import reached
from baddr.paper.returns import difference, level


def curves(sizes: Sizes) -> Curves:
    return (
        tiger_baddr(sizes, paper="2.2 after 400"),
        tiger_dpfrl(sizes),
        tiger_pomcp(sizes),
    )


@risking(TIGER)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "DPFRL starts with a return of -40 by opening doors at random.",
            level("dpfrl", 100),
            "DPFRL, first 100 episodes",
            at_least=-50.0,
            at_most=-30.0,
            paper="-40",
            after=100,
        ),
        Claim(
            "BADDr has the better initial performance.",
            difference("baddr", "dpfrl", "first", 100),
            "BADDr's first tenth less DPFRL's first 100 episodes",
            at_least=0.0,
            after=400,
        ),
        Claim(
            "BADDr needs at least 40 times fewer episodes.",
            reached("dpfrl", "baddr"),
            "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
            at_least=40.0,
            paper="50",
            after=400,
        ),
        Claim(
            "The eventual performance is similar.",
            difference("dpfrl", "baddr", "last", "last"),
            "DPFRL less BADDr, last quarter of each",
            at_least=-0.5,
            after=20_000,
        ),
    )


FIGURE = Figure(
    "e",
    "Non-Bayesian comparison on tiger",
    "BADDr against DPFRL, which has no prior and no model; the axis of episodes is logarithmic.",
    curves,
    claims,
    log=True,
)
