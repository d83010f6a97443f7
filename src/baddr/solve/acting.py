"""A solution as a planner: the value of each action is that of its best vector. Importing it imports JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP, flat_index
from baddr.solve.point_based import Solution


class ByVectors(Planner):
    """Acts by vectors, those for the steps that are left; a place that holds none has action -1."""

    alphas: Float[Array, "layers S N"]
    actions: Int[Array, "layers N"]

    def __init__(self, solution: Solution):
        layers, where = np.unique(solution.steps_left, return_inverse=True)
        most = int(np.bincount(where).max())
        alphas = np.zeros((len(layers), solution.alphas.shape[1], most), np.float32)
        actions = np.full((len(layers), most), -1, np.int32)
        for layer in range(len(layers)):
            mine = np.flatnonzero(where == layer)
            alphas[layer, :, : len(mine)] = solution.alphas[mine].T
            actions[layer, : len(mine)] = solution.actions[mine]
        self.alphas, self.actions = jnp.asarray(alphas), jnp.asarray(actions)

    def plan(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"],
    ) -> Plan:
        layer = jnp.clip(steps_left - 1, 0, self.actions.shape[0] - 1)
        s = belief.states.s if isinstance(belief.states, AugmentedState) else belief.states
        number = jax.vmap(jax.vmap(lambda s: flat_index(s, pomdp.state_sizes)))(s)
        # One run after another: all at once would gather every particle's vectors of every run.
        each = lambda run: self._values(run[0], run[1], run[2], pomdp.num_actions)
        Q = jax.lax.map(each, (layer, number, belief.weights))
        none = jnp.zeros(keys.shape, jnp.int32)
        return Plan(Q, jnp.ones_like(Q), none, none)

    def _values(
        self,
        layer: Int[Array, ""],
        number: Int[Array, " particles"],
        weights: Float[Array, " particles"],
        num_actions: int,
    ) -> Float[Array, " A"]:
        """max over the vectors of each action of sum_i w_i alpha(s_i)."""
        values = weights @ self.alphas[layer, number]
        mine = self.actions[layer][None] == jnp.arange(num_actions, dtype=jnp.int32)[:, None]
        return jnp.max(jnp.where(mine, values[None], -jnp.inf), axis=1)
