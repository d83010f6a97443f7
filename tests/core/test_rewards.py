"""Rewards as evidence: after opening a door, the belief knows which one was good."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import tiger
from baddr.planners.uniform import Uniform
from baddr.posteriors import Dirichlet

N = 4096
FILTERS = [Importance(N, rewards=True), Rejection(N, rewards=True)]
DOMAIN = tiger.make_domain()
GBA = GBAPOMDP(DOMAIN.pomdp, Dirichlet(DOMAIN.counts, *tiger.SIZES))


@pytest.mark.parametrize("how", FILTERS, ids=["importance", "rejection"])
@pytest.mark.parametrize(("r", "good"), [(10.0, 0), (-100.0, 1)])
def test_a_reward_tells_which_door_was_good(how, r, good):
    """Left is heard, then left is opened, and r seen: all particles have counted what they heard at the good
    door. Their share before was 5/8 to 3/8, and so is p(r)."""
    agent = Agent(GBA, how, Uniform())
    update = eqx.filter_jit(lambda b, a, o, r: agent.update(prng.key(1), b, a, o, False, True, r))
    belief = agent.initial_belief(prng.key(0))
    belief, _ = update(belief, jnp.int32(tiger.LISTEN), jnp.array([0], jnp.int32), jnp.float32(-1))
    belief, info = update(belief, jnp.int32(0), jnp.array([tiger.NULL], jnp.int32), jnp.float32(r))
    heard = np.asarray(belief.states.theta.O[:, tiger.LISTEN, :, 0]) - np.asarray(
        DOMAIN.counts.O[tiger.LISTEN, :, 0]
    )
    share = np.asarray(belief.weights) @ heard
    np.testing.assert_allclose(share, np.eye(2)[good], atol=1e-5)
    p = (5 / 8, 3 / 8)[good]
    assert abs(float(info.acceptance_rate) - p) < 5 * 0.5 / np.sqrt(N)


def test_without_rewards_the_door_stays_unknown():
    agent = Agent(GBA, Importance(N), Uniform())
    belief = agent.initial_belief(prng.key(0))
    for a, o, r in ((tiger.LISTEN, 0, -1.0), (0, tiger.NULL, 10.0)):
        seen = jnp.int32(a), jnp.array([o], jnp.int32)
        belief, _ = agent.update(prng.key(1), belief, *seen, r=jnp.float32(r))
    heard = np.asarray(belief.states.theta.O[:, tiger.LISTEN, 0, 0]) - float(
        DOMAIN.counts.O[tiger.LISTEN, 0, 0]
    )
    assert abs(np.asarray(belief.weights) @ heard - 5 / 8) < 5 * 0.5 / np.sqrt(N)
