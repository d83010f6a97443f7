"""A POMDP whose every step ends the episode: nothing that is seen matters, and every agent copes."""

from pathlib import Path

import pytest

import baddr
from baddr.cli import main

DOMAIN = '''
import numpy as np

from baddr.domains import from_tables


def make_domain(horizon: int = 3):
    """A bet on one draw."""
    T, O = np.full((2, 2, 2), 0.5), np.tile(np.eye(2), (2, 1, 1))
    R = np.broadcast_to(np.eye(2), (2, 2, 2))
    return from_tables(T, O, R, [0.5, 0.5], 0.95, horizon=horizon, terminal=[0, 1])
'''
SMALL = "--runs 2 --episodes 2 --planner.num-simulations 16 --filter.num-particles 16"
NETWORK = " --network.hidden 8 --pretrain.batches 8 --pretrain.max-gap 100"


@pytest.mark.parametrize(
    "agent", ["ba-pomcp", *(pytest.param(x, marks=pytest.mark.slow) for x in ("baddr", "filtering", "pomcp"))]
)
def test_every_step_may_end_the_episode(agent: str, tmp_path: Path) -> None:
    path, out = tmp_path / "bet.py", tmp_path / "out"
    path.write_text(DOMAIN)
    with pytest.raises(SystemExit) as end:
        small = SMALL + NETWORK * (agent in ("baddr", "filtering"))
        main(["run", str(path), "--agent", agent, *small.split(), "--out", str(out)])
    assert end.value.code == 0
    results = baddr.load_results(out)
    assert results["length"].tolist() == [1] * 4
    assert set(results["return"]) <= {0.0, 1.0}
