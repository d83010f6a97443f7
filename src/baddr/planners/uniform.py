"""No planning at all: every action is as good as any other."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP


class Uniform(Planner):
    """Draws actions uniformly at random."""

    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"],
    ) -> Plan:
        nothing, none = jnp.zeros((keys.shape[0], pomdp.num_actions)), jnp.zeros(keys.shape, jnp.int32)
        return Plan(nothing, nothing + 1, none, none)
