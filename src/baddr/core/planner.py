"""What a planner is: from a belief to the values of the actions (Section 2, Alg. 2)."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action

Keys = Key[Array, " runs"]
Steps = Int[Array, " runs"]
Active = Bool[Array, " runs"]
EQUAL = 1e-5  # values of actions that are closer, in proportion to them, differ by rounding


class Plan(NamedTuple):
    """What planning found: values and visits of the actions, and what it took."""

    Q: Float[Array, "*runs A"]
    N: Float[Array, "*runs A"]  # an action of no visits is not chosen
    num_nodes: Int[Array, "*runs"]
    num_steps: Int[Array, "*runs"]  # steps of the model
    upper: Float[Array, "*runs A"] | None = None  # of a planner with bounds, whose Q are those from below

    @property
    def gap(self) -> Float[Array, "*runs"] | None:
        """How far the value of the belief may lie above what the plan secures."""
        return None if self.upper is None else jnp.max(self.upper, axis=-1) - jnp.max(self.Q, axis=-1)


class Planner(eqx.Module):
    """Plans from the beliefs of many runs at once: in a plain POMDP, or in a GBA-POMDP."""

    @abstractmethod
    def plan(self, keys: Keys, pomdp: POMDP, belief: Particles, steps_left: Steps, active: Active) -> Plan:
        """The plan of each run from its belief, with so many steps left; of no meaning where not `active`."""


class PreparedPlanner(Planner):
    """A planner that works something out before an episode (bounds on values, say), for all plans of it."""

    @abstractmethod
    def prepare(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> PyTree:
        """What the plans of an episode need that starts from the belief of one run."""

    @abstractmethod
    def plan_prepared(
        self, keys: Keys, pomdp: POMDP, belief: Particles, steps_left: Steps, active: Active, prepared: PyTree
    ) -> Plan:
        """`plan`, given what each run prepared."""

    def plan(self, keys: Keys, pomdp: POMDP, belief: Particles, steps_left: Steps, active: Active) -> Plan:
        prepared = jax.vmap(lambda key, belief: self.prepare(jr.fold_in(key, 1), pomdp, belief))(keys, belief)
        return self.plan_prepared(keys, pomdp, belief, steps_left, active, prepared)


def best_action(key: Key[Array, ""], plan: Plan) -> Action:
    """argmax Q among the actions that were tried; of those as good as equal the one that may be worth more,
    where the plan has bounds from above; ties at random."""
    Q = jnp.where(plan.N > 0, plan.Q, -jnp.inf)
    if plan.upper is None:
        return random_argmax(key, Q)
    most = jnp.max(Q)
    return random_argmax(key, jnp.where(Q >= most - EQUAL * (1 + jnp.abs(most)), plan.upper, -jnp.inf))


def random_argmax(key: Key[Array, ""], score: Float[Array, " A"]) -> Action:
    tie_break = jr.uniform(key, score.shape)
    return jnp.argmax(jnp.where(score == jnp.max(score), tie_break, -1)).astype(jnp.int32)
