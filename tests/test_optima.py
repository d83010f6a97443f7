"""The optima that figures draw: known values, which tests/solve/test_listing.py has the solver find."""

import json
from pathlib import Path

import pytest

from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.domains.gridverse.settings import GridverseSettings
from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.domains.tiger.settings import TigerSettings
from baddr.paper.optima import OPTIMA, optimum

VALUES = json.loads((Path(__file__).parent / "data" / "values.json").read_text())
KNOWN = {
    TigerSettings(): "tiger/optimal_gamma.95/disc",
    CollisionAvoidanceSettings(): "ca/N=5 gamma=0.95/pomdp",
    GridverseSettings(size=8, forward_length=4): "gridverse/walls strafe=False k=4/8/corner_return",
    GridverseSettings(size=16, forward_length=4): "gridverse/walls strafe=False k=4/16/corner_return",
    GridverseSettings(size=32, forward_length=8): "gridverse/walls strafe=False k=8/32/corner_return",
}
ROAD = RoadRacingSettings(lanes=3)


@pytest.mark.parametrize("settings", KNOWN, ids=str)
def test_they_are_the_known_ones(settings) -> None:
    """To four digits."""
    value = VALUES[KNOWN[settings]]["value"]
    assert all(abs(bound - value) <= 2e-4 * max(1, abs(value)) for bound in OPTIMA[settings])


def test_that_of_road_racing_is_bounded() -> None:
    """Others have found 46.868 to 47.618."""
    lower, upper = OPTIMA[ROAD]
    assert lower <= 46.868 and upper >= 47.618 and upper - lower < 1


@pytest.mark.slow
def test_the_solver_finds_these_bounds() -> None:
    """In about a minute."""
    from baddr.domains.road_racing import make_domain
    from baddr.domains.solving import true_model
    from baddr.solve.point_based import Budget, solve

    model, horizon = true_model(make_domain(lanes=3))
    found, (lower, upper) = solve(model, Budget(trials=800), horizon), OPTIMA[ROAD]
    assert found.lower >= lower - 0.02 and found.upper <= upper + 0.02


def test_only_known_settings_have_one() -> None:
    assert {*KNOWN, ROAD} == {*OPTIMA} and optimum(TigerSettings(accuracy=0.9)) is None
