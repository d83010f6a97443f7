"""Searches for the tests of planners: in the tiger that is known, and in a chain."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.planner import Plan, Planner
from baddr.core.pomdp import POMDP, Dynamics, Table
from baddr.domains import tiger
from baddr.fast.search import FastSearch
from baddr.fast.tables import rows_that_matter
from baddr.planners.tree_search import TreeSearch
from baddr.posteriors import Known

TIGER = tiger.make_domain()
TRUE = GBAPOMDP(TIGER.pomdp, Known(TIGER.pomdp.dynamics))
WAYS = ["plain", "loop", "interpreted kernel"]

_plan = eqx.filter_jit(lambda planner, *arguments: planner.plan(*arguments))


def planner_of(pomdp: POMDP, way: str, how: TreeSearch, most: int = 1000) -> Planner:
    """The search itself, or its fast form by a tree, a loop or a kernel."""
    if way == "plain":
        return how
    return FastSearch(how, rows_that_matter(getattr(pomdp, "pomdp", pomdp), most), way)


def search(keys, pomdp, belief, *, steps_left, active=None, way="plain", **settings: Any) -> Plan:
    active = jnp.ones(keys.shape, bool) if active is None else active
    return _plan(planner_of(pomdp, way, TreeSearch(**settings)), keys, pomdp, belief, steps_left, active)


def plan(gba, num_runs=1, seed=0, num_particles=64, **settings: Any) -> Plan:
    """From first beliefs."""
    settings = {"num_simulations": 256, "exploration": 100.0, "depth": 30, "steps_left": 30} | settings
    keys = jr.split(prng.key(seed), num_runs)
    beliefs = jax.vmap(lambda k: initial_belief(k, gba, num_particles))(keys)
    steps_left = jnp.full((num_runs,), settings.pop("steps_left"))
    return search(keys, gba, beliefs, steps_left=steps_left, **settings)


class Chain(POMDP):
    """States 0, 1, 2, ... walked by action 1; action 0 stays. The reward is the state arrived in."""

    dynamics: Dynamics
    discount: float = eqx.field(static=True, default=0.5)
    horizon: int = eqx.field(static=True, default=4)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(8,))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(2,))
    num_actions: int = eqx.field(static=True, default=2)
    end: int = eqx.field(static=True, default=99)

    def initial_state(self, key):
        return jnp.zeros((1,), jnp.int32)

    def initial_observation(self, key, s):
        return jnp.zeros((1,), jnp.int32)

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return s_next[0].astype(jnp.float32)

    def is_terminal(self, s, a, s_next):
        return s_next[0] >= self.end


def chain(**fields) -> Chain:
    T = np.zeros((8, 2, 8), np.float32)
    for s in range(8):
        T[s, 0, s] = T[s, 1, min(s + 1, 7)] = 1
    O = np.zeros((2, 8, 2), np.float32)
    O[:, :, 1] = 1  # always the same
    return Chain(dynamics=Table(jnp.asarray(T), jnp.asarray(O), (8,), (2,)), **fields)


def plain_tiger(random, D, s, a):
    """A step of tiger for `core.plain`: hearing is right with probability D."""
    if a == 2:
        return s, s if random.random() < D else 1 - s, -1.0, False
    return int(random.integers(2)), 2, 10.0 if a == s else -100.0, True


def plain_chain(random, D, s, a):
    """A step of the chain for `core.plain`."""
    return min(s + a, 7), 1, float(min(s + a, 7)), False


def known(pomdp: POMDP) -> GBAPOMDP:
    """Small enough, and with enough observations, for a search in a kernel."""
    return GBAPOMDP(pomdp, Known(pomdp.dynamics))
