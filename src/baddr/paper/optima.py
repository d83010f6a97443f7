"""The optima of the figures' domains, as `baddr solve` finds them: lower and upper bounds. Needs no JAX."""

from typing import Any

from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.domains.gridverse.settings import GridverseSettings
from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.domains.tiger.settings import TigerSettings

OPTIMA: dict[Any, tuple[float, float]] = {
    TigerSettings(): (3.770, 3.770),
    CollisionAvoidanceSettings(): (-40.35, -40.35),
    RoadRacingSettings(lanes=3): (46.84, 47.68),
    GridverseSettings(size=8, forward_length=4): (0.8145, 0.8145),
    GridverseSettings(size=16, forward_length=4): (0.6634, 0.6634),
    GridverseSettings(size=32, forward_length=8): (0.6634, 0.6634),
}


def optimum(domain: Any) -> tuple[float, float] | None:
    """Of a domain's settings; None where it is not known."""
    return OPTIMA.get(domain)
