"""Figure a: BADDr against tables of counts on tiger."""

from baddr.domains.tiger.settings import TigerSettings
from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import TIGER, tiger_baddr, tiger_pomcp
from baddr.paper.figures.curves import TREE_NOTE, curve, latent, with_tree
from baddr.paper.figures.figure import SKY, Curves, Figure, Sizes
from baddr.paper.returns import difference, level


def curves(sizes: Sizes) -> Curves:
    paper = "2.2 after 400"
    eight = () if sizes.quick else (tiger_baddr(sizes, 8, style=(SKY, "-", "v"), paper=paper),)
    return (
        tiger_baddr(sizes, paper=paper),
        *eight,
        curve(sizes, "ba-pomcp", "BA-POMCP", TigerSettings(), "ba-pomcp", {"runs": 64, "episodes": 100}),
        curve(sizes, "fba-pomcp", "FBA-POMCP", TigerSettings(), "fba-pomcp", {"runs": 64, "episodes": 100}),
        tiger_pomcp(sizes),
        with_tree(tiger_baddr(sizes)),
        latent(sizes, TigerSettings(), 24, 40),
    )


@risking(TIGER)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "Tables have a slight advantage at first.",
            difference("ba-pomcp", "baddr", "first"),
            "BA-POMCP less BADDr, first tenth",
            at_least=0.0,
            after=400,
        ),
        Claim(
            "BADDr catches up with BA-POMCP and reaches the same performance.",
            difference("baddr", "ba-pomcp", "last"),
            "BADDr less BA-POMCP, last quarter",
            at_least=-0.5,
            after=400,
        ),
        Claim(
            "BADDr is competitive with FBA-POMCP.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-0.5,
            after=400,
        ),
        Claim(
            "BADDr returns 2.2 after 400 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=1.7,
            paper="2.2",
            after=400,
        ),
        Claim(
            "POMCP on the true model is an upper bound.",
            difference("baddr", "pomcp", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_most=0.0,
            after=400,
        ),
    )


FIGURE = Figure(
    "a",
    "Bayesian comparison on tiger",
    "BADDr against tables of counts (BA-POMCP) and factored ones (FBA-POMCP), with POMCP on the true "
    "model as the upper bound.",
    curves,
    claims,
    note=f"PO-UCT at this budget is worth 3.3 on the true model; the optimum is 3.77. {TREE_NOTE}",
)
