"""Figure h: what is lost where networks are re-weighted and never trained."""

from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import TIGER, tiger_networks, tiger_pomcp
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.returns import difference, trend


def models_of(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    if sizes.quick:
        return {"baddr": (1, 8), "filtering": (1, 8, 128)}
    return {agent: tuple(2**i for i in range(8)) for agent in ("baddr", "filtering")}


def curves(sizes: Sizes) -> Curves:
    networks = [tiger_networks(sizes, agent, n) for agent, models in models_of(sizes).items() for n in models]
    return (*networks, tiger_pomcp(sizes))


@risking(TIGER)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    names = {
        agent: {n: tiger_networks(sizes, agent, n).name for n in models}
        for agent, models in models_of(sizes).items()
    }
    rises = [
        Claim(
            f"{title} gets better with the number of models.",
            trend(names[agent]),
            "last quarter",
            at_least=0.0,
            after=400,
        )
        for agent, title in (("baddr", "BADDr"), ("filtering", "Filtering"))
    ]
    same = [
        Claim(
            f"With {n} model{'s' * (n > 1)} BADDr is better than filtering.",
            difference(names["baddr"][n], names["filtering"][n], "last"),
            f"BADDr less filtering, {n} each, last quarter",
            at_least=0.0,
            after=400,
        )
        for n in (1, 8)
    ]
    enough = Claim(
        "Filtering 128 models performs as BADDr with 8 does.",
        difference(names["filtering"][128], names["baddr"][8], "last"),
        "filtering with 128 less BADDr with 8, last quarter",
        at_least=-0.5,
        at_most=0.5,
        after=400,
    )
    return (*rises, *same, enough)


FIGURE = Figure(
    "h",
    "Ablation on tiger: re-weighting without updates",
    "BADDr (solid) against filtering (dotted), which re-weights its networks and never trains them, "
    "by the number of networks.",
    curves,
    claims,
    kind="models",
    note="All runs of an ensemble share its networks, so the ensemble is the unit that is resampled. "
    "A single network is trained on the expected model, several on a draw from the prior each.",
)
