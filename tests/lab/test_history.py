"""The belief after a history, and where its last episode stands."""

import numpy as np
import pytest

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import from_tables
from baddr.errors import UserError
from baddr.lab.history import Episode, replay
from baddr.planners.po_uct import PoUct
from baddr.posteriors import Known


def toggle(ends: bool):
    """A switch between two states, seen as it is with probability .7. The step ends the episode, or does
    not."""
    T = np.zeros((2, 1, 2))
    T[0, 0, 1] = T[1, 0, 0] = 1
    O = np.array([[[0.7, 0.3], [0.3, 0.7]]])
    terminal = np.zeros((2, 1, 2), bool)
    terminal[[0, 1], 0, [1, 0]] = ends
    domain = from_tables(T, O, np.zeros((2, 1)), np.array([0.5, 0.5]), 0.9, horizon=5, terminal=terminal)
    gba = GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics))
    return domain.pomdp, Agent(gba, Importance(num_particles=64, resample_below=1000.0), PoUct(8))


@pytest.mark.parametrize("ends", [True, False])
def test_an_episode_is_over_where_its_steps_end_it(ends):
    """Whether (s, a, s') ends it depends on both: a state before an update and another particle's after it
    say nothing, and every update resamples here."""
    pomdp, agent = toggle(ends)
    episodes = [Episode([0], [[1]])]
    assert replay(prng.key(0), agent, pomdp, episodes).over == ends
    two = [Episode([0, 0], [[1], [0]])]
    if not ends:
        assert replay(prng.key(0), agent, pomdp, two).t == 2
        return
    with pytest.raises(UserError, match="the episode ended one step earlier"):
        replay(prng.key(0), agent, pomdp, two)
