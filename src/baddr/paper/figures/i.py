"""Figure i: the belief about hearing, episode by episode."""

from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import MIRRORED, tiger_baddr
from baddr.paper.figures.figure import SKY, Curves, Figure, Sizes
from baddr.paper.hearing import belief, narrowing


def curves(sizes: Sizes) -> Curves:
    eight = () if sizes.quick else (tiger_baddr(sizes, 8, style=(SKY, "-", "v")),)
    return (tiger_baddr(sizes, paper=".85 after 20"), *eight)


@risking(MIRRORED)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    found = []
    for name, models in (("baddr", 8),) if sizes.quick else (("baddr", 1), ("baddr-8", 8)):
        of = f"{models} network{'s' * (models > 1)}"
        found += [
            Claim(
                f"{of}: initially the expectation is incorrect.",
                belief(name, "accuracy_mean", 1),
                "mean of the believed accuracy after 1 episode",
                at_most=0.75,
                after=20,
            ),
            Claim(
                f"{of}: over 20 episodes the belief converges to the true value of .85.",
                belief(name, "accuracy_mean", 20),
                "mean of the believed accuracy after 20 episodes",
                at_least=0.80,
                at_most=0.90,
                paper=".85",
                after=20,
            ),
            Claim(
                f"{of}: the belief becomes certain.",
                narrowing(name, 20),
                "its standard deviation after 20 episodes less that after 1",
                at_most=0.0,
                after=20,
            ),
        ]
    return tuple(found)


FIGURE = Figure(
    "i",
    "Belief about tiger's observation model",
    "The belief over the probability of hearing the good door, in one run, as it learns.",
    curves,
    claims,
    kind="histogram",
)
