"""What a planner is: from a belief to the values of the actions (Section 2, Alg. 2)."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action


class Plan(NamedTuple):
    """What planning found: values and visits of the actions, and what it took."""

    Q: Float[Array, "*runs A"]
    N: Float[Array, "*runs A"]  # an action of no visits is not chosen
    num_nodes: Int[Array, "*runs"]
    num_steps: Int[Array, "*runs"]  # steps of the model


class Planner(eqx.Module):
    """Plans from the beliefs of many runs at once: in a plain POMDP, or in a GBA-POMDP."""

    @abstractmethod
    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"],
    ) -> Plan:
        """The plan of each run from its belief, with so many steps left; of no meaning where not `active`."""


def best_action(key: Key[Array, ""], plan: Plan) -> Action:
    """argmax Q among the actions that were tried; ties at random."""
    return random_argmax(key, jnp.where(plan.N > 0, plan.Q, -jnp.inf))


def random_argmax(key: Key[Array, ""], score: Float[Array, " A"]) -> Action:
    tie_break = jr.uniform(key, score.shape)
    return jnp.argmax(jnp.where(score == jnp.max(score), tie_break, -1)).astype(jnp.int32)
