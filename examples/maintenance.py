"""A machine wears out. 0 run it, 1 inspect it, 2 replace it. How fast it wears must be learned."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

from baddr.core.pomdp import POMDP, Dynamics, Table
from baddr.domains.domain import Domain
from baddr.posteriors import Counts

RUN, INSPECT, BROKEN = 0, 1, 3  # two of the actions, and the wear of a machine that is broken; 0 is new
RATTLES = jnp.array([[0.1, 0.2, 0.3, 0.4], [0.05, 0.35, 0.65, 0.95], [0.1] * 4])  # p(rattle | a, wear)


class Maintenance(POMDP):
    dynamics: Dynamics
    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True, default=0.95)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(4,))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(2,))
    num_actions: int = eqx.field(static=True, default=3)

    def initial_state(self, key):
        return jnp.zeros((1,), jnp.int32)

    def initial_observation(self, key, s):
        return jnp.zeros((1,), jnp.int32)

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        profit = jnp.where(s_next[0] == BROKEN, -10.0, 2.0)
        return jnp.where(a == RUN, profit, jnp.where(a == INSPECT, -0.5, -4.0))

    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def tables(wear):
    """T[s, a, s'] and O[a, s', o]: running wears the machine by one step with probability `wear`."""
    stay, worn, new = (jnp.eye(4)[jnp.array(to)] for to in ([0, 1, 2, 3], [1, 2, 3, 3], [0, 0, 0, 0]))
    T = jnp.stack([(1 - wear) * stay + wear * worn, stay, new], axis=1)
    return T, jnp.stack([1 - RATTLES, RATTLES], axis=-1)


def make_domain(wear: float = 0.5, prior_wear: float = 0.1, prior_total: float = 10.0, horizon: int = 20):
    """A machine that wears faster than one would think."""
    dynamics = lambda wear: Table(*tables(wear), (4,), (2,))
    beta = prior_wear * prior_total, (1 - prior_wear) * prior_total  # the prior about `wear`
    T, O = tables(prior_wear)
    return Domain(
        name="maintenance",
        pomdp=Maintenance(dynamics(wear), horizon),
        sample_simulator=lambda key: dynamics(jr.beta(key, *beta)),  # what might be
        expected_simulator=dynamics(prior_wear),  # what is to be expected
        counts=Counts(T * prior_total, O * 10_000.0),  # the same for a table
        learned="T",  # networks learn T; how it rattles is known
    )
