"""The optima that figures draw are what the solver finds."""

import pytest

from baddr.domains.catalog import entry
from baddr.domains.solving import true_model
from baddr.domains.tiger.settings import TigerSettings
from baddr.paper.optima import OPTIMA, optimum
from baddr.solve.point_based import Budget, solve

SLOW = ("road-racing",)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(s, marks=pytest.mark.slow if s.name in SLOW else (), id=f"{s.name}-{i}")
        for i, s in enumerate(OPTIMA)
    ],
)
def test_what_is_drawn_is_what_is_found(settings) -> None:
    """To the digits that are given; the bounds of road racing are as wide as 2000 trials leave them."""
    lower, upper = OPTIMA[settings]
    model, horizon = true_model(entry(settings.name).make_domain(settings), settings)
    found = solve(model, Budget(1e-3, trials=2000, seconds=300.0), horizon)
    near = max(1e-3, 5e-4 * abs(lower))
    assert found.lower <= upper + near and found.upper >= lower - near
    assert lower <= found.lower + near and (upper >= found.upper - near or settings.name in SLOW)


def test_only_known_settings_have_one() -> None:
    assert optimum(TigerSettings()) is not None and optimum(TigerSettings(accuracy=0.9)) is None
