"""Run-time: what a real step and a whole run of BADDr cost."""

from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.domains.tiger.settings import TigerSettings
from baddr.paper.claims import Claim
from baddr.paper.costs import hours_of_a_run, slower
from baddr.paper.figures.by_domain import room
from baddr.paper.figures.curves import timed
from baddr.paper.figures.figure import Curves, Figure, Sizes

# The paper's numbers of steps in a run: episodes x horizon.
RUN_STEPS = {"tiger": 400 * 30, "collision-avoidance": 500 * 4, "road-racing-3": 200 * 20}
RUN_STEPS |= {"road-racing-9": 300 * 20, "gridverse-8": 250 * 30, "gridverse-32": 250 * 30}
TIMED_DOMAINS = {
    "tiger": TigerSettings(),
    "collision-avoidance": CollisionAvoidanceSettings(),
    "road-racing-3": RoadRacingSettings(),
}


def curves(sizes: Sizes) -> Curves:
    pairs = [
        timed(sizes, domain, agent, label, name)
        for name, domain in TIMED_DOMAINS.items()
        for agent, label in (("baddr", "BADDr"), ("fba-pomcp", "FBA-POMCP"))
    ]
    large = {"road-racing-9": RoadRacingSettings(lanes=9), "gridverse-8": room(8), "gridverse-32": room(32)}
    return (*pairs, *(timed(sizes, domain, "baddr", "BADDr", name) for name, domain in large.items()))


def claims(sizes: Sizes) -> tuple[Claim, ...]:
    factors = [
        Claim(
            f"{name}: BADDr is slower than FBA-POMCP by a small factor at most.",
            slower(f"{name}/baddr", f"{name}/fba-pomcp"),
            "time of a step of BADDr by that of FBA-POMCP",
            at_most=10.0,
            paper="a small factor",
        )
        for name in TIMED_DOMAINS
    ]
    days = [
        Claim(
            f"{name}: a run ends within a day on a CPU.",
            hours_of_a_run(f"{name}/baddr", steps),
            "hours that a run of BADDr takes",
            at_most=24.0,
            paper="within 24",
        )
        for name, steps in RUN_STEPS.items()
    ]
    return (*factors, *days)


FIGURE = Figure(
    "runtime",
    "Run-time (Section 5)",
    "What a real step of BADDr costs beside one of FBA-POMCP, and how long a run takes.",
    curves,
    claims,
    kind="runtime",
    note="One run alone at the paper's sizes of planner, filter and network, compiled before it is "
    "timed. Times are of this machine.",
)
