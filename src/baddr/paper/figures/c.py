"""Figure c: BADDr against factored counts in collision avoidance."""

from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.paper.claims import Claim, risking
from baddr.paper.figures.by_domain import CRASH, collision
from baddr.paper.figures.curves import BOUND, TREE_NOTE, latent, with_tree
from baddr.paper.figures.figure import ORANGE, Curves, Figure, Sizes
from baddr.paper.returns import difference, level
from baddr.posteriors.settings import FactoredSettings


def curves(sizes: Sizes) -> Curves:
    uncertain = {"factored": FactoredSettings(graph="uncertain-observation")}
    baddr = collision(sizes, "baddr", "baddr", "BADDr", 32, paper="-102 after 500")
    return (
        baddr,
        collision(sizes, "fba-pomcp", "fba-pomcp", "FBA-POMCP", 64),
        collision(
            sizes,
            "uncertain",
            "fba-pomcp",
            "FBA-POMCP, uncertain prior",
            64,
            changes=uncertain,
            style=(ORANGE, "-.", "v"),
        ),
        collision(sizes, "pomcp", "pomcp", BOUND, 64),
        with_tree(baddr),
        latent(sizes, CollisionAvoidanceSettings(), 32, 100),
    )


@risking(CRASH)
def claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "BADDr performs nearly as well as FBA-POMCP.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-10.0,
            after=500,
        ),
        Claim(
            "FBA-POMCP's control of the prior's certainty gives it an advantage over BADDr.",
            difference("fba-pomcp", "baddr", "all"),
            "FBA-POMCP less BADDr, all episodes",
            at_least=0.0,
            after=500,
        ),
        Claim(
            "BADDr outperforms FBA-POMCP with an equally uncertain prior.",
            difference("baddr", "uncertain", "all"),
            "BADDr less FBA-POMCP with the uncertain prior, all episodes",
            at_least=0.0,
            after=500,
        ),
        Claim(
            "BADDr returns -102 after 500 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=-112.0,
            paper="-102",
            after=500,
        ),
    )


FIGURE = Figure(
    "c",
    "Bayesian comparison on collision avoidance",
    "BADDr between FBA-POMCP with a certain and with an uncertain prior about what it observes.",
    curves,
    claims,
    note="The paper does not say how large the grid is: 5 x 5 is our inference. One episode has a "
    f"standard deviation of about 230. {TREE_NOTE}",
)
