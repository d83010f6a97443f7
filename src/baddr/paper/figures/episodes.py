"""Table: the episodes that DPFRL needs to return what BADDr does."""

from dataclasses import replace

from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.paper.claims import Claim, with_worst
from baddr.paper.figures.by_domain import (
    WORST,
    collision,
    road_baddr,
    road_dpfrl,
    room,
    room_curve,
    tiger_baddr,
    tiger_dpfrl,
)
from baddr.paper.figures.curves import AGENT_STYLES, dpfrl
from baddr.paper.figures.figure import Curve, Curves, Figure, Sizes
from baddr.paper.reached import reached

TABLE = {  # the paper's table: BADDr's episodes, DPFRL's, the return of both
    "tiger": (400, 20_000, 2.2),
    "collision-avoidance": (500, 600_000, -102.0),
    "road-racing-3": (200, 20_000, 45.2),
    "road-racing-9": (200, 8_000, 52.3),
    "gridverse-8": (50, 5_950, 0.8),
    "gridverse-16": (50, 13_000, 0.62),
    "gridverse-32": (50, None, 0.62),
}


def curves(sizes: Sizes) -> Curves:
    """All domains of the table; `quick` has those whose learners figures e and f have, too."""

    def row(name: str, baddr: Curve, learner: Curve) -> Curves:
        ours = replace(baddr, name=f"{name}/baddr", label="BADDr", panel=name, style=AGENT_STYLES["baddr"])
        return ours, replace(learner, name=f"{name}/dpfrl", panel=name)

    rows = [
        row("tiger", tiger_baddr(sizes), tiger_dpfrl(sizes)),
        row("road-racing-3", road_baddr(sizes, 3), road_dpfrl(sizes, 3)),
    ]
    if not sizes.quick:
        flying = CollisionAvoidanceSettings()
        others = [("gridverse-8", 8), ("gridverse-16", 16), ("gridverse-32", 32)]
        rows += [
            row("collision-avoidance", collision(sizes, "", "baddr", "", 0), dpfrl(sizes, "", flying, 0)),
            row("road-racing-9", road_baddr(sizes, 9), road_dpfrl(sizes, 9)),
            *(row(n, room_curve(sizes, s, "baddr"), dpfrl(sizes, "", room(s), 0)) for n, s in others),
        ]
    return tuple(curve for pair in rows for curve in pair)


def claims(sizes: Sizes) -> tuple[Claim, ...]:
    found = []
    for name in dict.fromkeys(curve.panel for curve in curves(sizes)):
        ours, theirs, value = TABLE[name]
        paper = f"{theirs / ours:g} at {value:g}" if theirs else f"never reached {value:g}"
        claim = Claim(
            f"{name}: BADDr needs at least 40 times fewer episodes.",
            reached(f"{name}/dpfrl", f"{name}/baddr", within=ours),
            "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
            at_least=40.0,
            paper=paper,
            after=ours,
        )
        worst = next(value for domain, value in WORST.items() if name.startswith(domain))
        found.append(with_worst(claim, worst))
    return tuple(found)


FIGURE = Figure(
    "episodes",
    "Table: episodes to equal return",
    "How many episodes DPFRL needs to reach the return that BADDr has at its end.",
    curves,
    claims,
    kind="episodes",
    note="At reduced size the goal is what BADDr returns after few episodes, and `quick` has two of "
    "the seven rows.",
)
