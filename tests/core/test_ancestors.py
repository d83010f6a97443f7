"""How many particles of a run's start a belief descends from, against tags that particles carry."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.posterior import Posterior
from baddr.core.rejuvenation import Moves
from baddr.domains import tiger
from baddr.fast.runs import advance, start
from baddr.life import run as life
from baddr.life.record import num_living, since_move
from baddr.planners.uniform import Uniform

DOMAIN = tiger.make_domain()
N = 16


class Tagged(Posterior):
    """A model that stays as it is: theta is an accuracy, and no two particles draw the same."""

    def prior(self, key):
        return jr.uniform(key, minval=0.55, maxval=0.95)

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        T, O = tiger.model.tables(np.eye(2))
        hears = jnp.stack([jnp.stack([theta, 1 - theta]), jnp.stack([1 - theta, theta])])
        return tiger.model.Table(T, O.at[tiger.LISTEN, :, :2].set(hears), (2,), (3,))

    def update(self, key, theta, s, a, s_next, o):
        return theta


@pytest.mark.parametrize("how", [Importance(N, resample_below=8.0), Importance(N, 100.0), Rejection(N)])
def test_distinct_ancestors_are_the_tags_that_are_left(how):
    agent = Agent(GBAPOMDP(DOMAIN.pomdp, Tagged()), how, Uniform(), shows=tiger.shows)
    run, seen = life.start(prng.key(3), agent, DOMAIN.pomdp), np.zeros(2, int)
    step, counts = jax.jit(lambda run: life.step(run, agent, DOMAIN.pomdp, jnp.int32(20))), []
    for _ in range(40):
        s = np.asarray(run.s)
        run, record = step(run)
        alive = np.isfinite(np.asarray(run.belief.log_weights))
        left = len(np.unique(np.asarray(run.belief.states.theta)[alive]))
        # The record is of the belief before the next episode's states, whose weights are the same.
        assert int(record.distinct_ancestors) == left
        counts.append(left)
        seen += (int(record.a) == tiger.LISTEN) * (np.arange(2) == s[0])
        np.testing.assert_array_equal(record.sights["accuracy"], seen)
    assert counts[0] > counts[-1] >= 1 and seen.min() > 0


def test_many_runs_count_as_one_does():
    agent = Agent(GBAPOMDP(DOMAIN.pomdp, Tagged()), Importance(N, 100.0), Uniform(), shows=tiger.shows)
    keys = jr.split(prng.key(5), 3)
    _, steps = advance(start(keys, agent, DOMAIN.pomdp), agent, DOMAIN.pomdp, jnp.int32(4), 12)
    one = jax.jit(lambda run: life.step(run, agent, DOMAIN.pomdp, jnp.int32(4)))
    for i in range(3):
        run = life.start(keys[i], agent, DOMAIN.pomdp)
        for t in range(12):
            run, record = one(run)
            assert record.distinct_ancestors == steps.distinct_ancestors[t, i]
            np.testing.assert_array_equal(record.sights["accuracy"], steps.sights["accuracy"][t, i])


def test_a_particle_without_weight_counts_no_more():
    from baddr.core.particles import Particles

    belief = Particles((), jnp.array([-jnp.inf, -jnp.inf, 0.0, -1.0]))
    assert int(num_living(jnp.array([0, 1, 2, 2]), belief)) == 1
    moved = Moves(jnp.int32(1), jnp.int32(0), jnp.int32(4))
    assert since_move(jnp.array([2, 2, 2, 2]), moved).tolist() == [0, 1, 2, 3]


def test_a_filter_that_does_not_tell_leaves_no_column():
    class Silent:
        num_particles, learn_terminal = N, True

        def update(self, *given):
            after, info = Importance(N).update(*given)
            return after, info._replace(ancestors=None)

    agent = Agent(GBAPOMDP(DOMAIN.pomdp, Tagged()), Silent(), Uniform())
    run, record = life.step(life.start(prng.key(0), agent, DOMAIN.pomdp), agent, DOMAIN.pomdp, jnp.int32(1))
    assert record.distinct_ancestors is None and run.memory.roots == () and record.sights == {}
