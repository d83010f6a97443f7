"""The life of many runs: `life.run`, stage by stage over all of them.

On a CPU a stage goes from run to run; loops over few bytes are each compiled into one function. A run whose
episode ended starts the next at once, so none waits for another.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.agent import Agent
from baddr.core.particles import tree_at_index
from baddr.core.planner import Plan
from baddr.core.pomdp import POMDP
from baddr.fast.choose import fast_agent
from baddr.fast.loops import one_by_one, one_by_one_in_place
from baddr.fast.tuning import FEW_AT_ONCE
from baddr.life import run as alone
from baddr.life.record import Step
from baddr.life.run import Mind, Outcome, Run, StepKeys


@eqx.filter_jit
def start(keys: Key[Array, " runs"], agent: Agent, world: POMDP) -> Run:
    """Runs before their first step."""
    return jax.vmap(lambda key: alone.start(key, agent, world))(keys)


def advance(
    runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""], num_steps: int
) -> tuple[Run, Step]:
    """`num_steps` real steps of every run that has not ended its `num_episodes` episodes."""
    return _advance(runs, fast_agent(agent), world, num_episodes, num_steps)


@eqx.filter_jit
def _advance(
    runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""], num_steps: int
) -> tuple[Run, Step]:
    return jax.lax.scan(lambda runs, _: one_step(runs, agent, world, num_episodes), runs, length=num_steps)


def one_step(runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
    """`life.run.step` of every run."""
    active = (runs.episode < num_episodes) & ~runs.failed
    keys = one_by_one(alone.step_keys)(runs.key, runs.episode, runs.t)
    plan = agent.plan(keys.plan, runs.belief, world.horizon - runs.t, active, runs.prepared)
    outcome = one_by_one(partial(alone.act, world))(keys, runs.s, plan)
    last = active & (outcome.terminal | (runs.t + 1 >= world.horizon))
    learn = one_by_one_in_place(partial(_learn, agent))
    mind, seen = learn((runs.belief, runs.memory), keys, outcome, last, active, runs.prepared)
    move = one_by_one(partial(_move, agent, world))
    runs, record = move(runs._replace(belief=(), memory=()), outcome, plan, seen, last, active)
    return runs._replace(belief=mind[0], memory=mind[1]), record


def _learn(
    agent: Agent,
    mind: Mind,
    keys: StepKeys,
    outcome: Outcome,
    last: Bool[Array, ""],
    active: Bool[Array, ""],
    prepared: PyTree,
) -> tuple[Mind, "Packed"]:
    mind, seen = alone.learn(agent, mind, keys, outcome, last, active, prepared, where=if_any)
    return mind, pack(seen)


def _move(
    agent: Agent,
    world: POMDP,
    run: Run,
    outcome: Outcome,
    plan: Plan,
    seen: "Packed",
    last: Bool[Array, ""],
    active: Bool[Array, ""],
) -> tuple[Run, Step]:
    return alone.move(agent, world, run, outcome, plan, seen.unpack(), last, active)


class Packed(eqx.Module):
    """A few small arrays as one of 32-bit words: each array less is a kernel less to compile.

    Types of another size pass through single precision.
    """

    words: Int[Array, "*runs words"]
    structure: Any = eqx.field(static=True)
    like: tuple[tuple[tuple[int, ...], Any], ...] = eqx.field(static=True)  # shapes and types

    def unpack(self) -> Any:
        leaves, start = [], 0
        for shape, dtype in self.like:
            end = start + math.prod(shape)
            words, start = self.words[start:end].reshape(shape), end
            leaves.append(jax.lax.bitcast_convert_type(words, _of_a_word(dtype)).astype(dtype))
        return jax.tree.unflatten(self.structure, leaves)


def pack(tree: PyTree) -> Packed:
    leaves, structure = jax.tree.flatten(tree)
    word = lambda x: jax.lax.bitcast_convert_type(x.astype(_of_a_word(x.dtype)), jnp.int32)
    words = jnp.concatenate([word(x).reshape(-1) for x in leaves])
    return Packed(words, structure, tuple((x.shape, x.dtype) for x in leaves))


def _of_a_word(dtype: Any) -> Any:
    return dtype if dtype.itemsize == 4 else jnp.float32


def if_any(
    function: Callable[..., Any], needed: Bool[Array, ""], *arguments: PyTree, few: bool = False
) -> Any:
    """`life.run.masked`, but under `vmap` the function runs only if anybody needs it; where `few` do, for
    blocks of those alone."""

    def either(function: Callable[..., Any], needed: Bool[Array, ""], arguments: PyTree) -> Any:
        function = jax.jit(function)  # so that it is traced once
        nothing = zeros_like_result(function, *arguments)
        return jax.lax.cond(needed, function, lambda *_: nothing, *arguments)

    one = custom_vmap(lambda needed, arguments: either(function, needed, arguments))

    @one.def_vmap
    def many(n: int, batched: PyTree, needed: Bool[Array, "*n"], arguments: PyTree) -> tuple[PyTree, PyTree]:
        mine = jnp.broadcast_to(needed, (n,))
        if few:
            every = jax.tree.map(
                lambda x, has_axis: x if has_axis else jnp.broadcast_to(x, (n, *x.shape)),
                arguments,
                batched[1],
            )
            found = in_blocks(function, mine, every)
            return found, jax.tree.map(lambda _: True, found)
        in_axes = tuple(jax.tree.map(lambda has_axis: 0 if has_axis else None, batched[1]))
        # A select would compute it for all runs at every step.
        found = either(jax.vmap(function, in_axes), jnp.any(needed), arguments)
        found = jax.vmap(lambda mine, x: jax.tree.map(lambda x: jnp.where(mine, x, 0), x))(mine, found)
        return found, jax.tree.map(lambda _: True, found)

    return one(needed, arguments)


def in_blocks(function: Callable[..., Any], needed: Bool[Array, " n"], arguments: PyTree) -> PyTree:
    """The function of those who need it, a block of them at a time; zeros for the others."""
    n, size = needed.shape[0], min(needed.shape[0], FEW_AT_ONCE)
    order = jnp.argsort(~needed, stable=True).astype(jnp.int32)  # who needs it, first
    number = jnp.sum(needed, dtype=jnp.int32)
    nothing = zeros_like_result(jax.vmap(function), *arguments)

    def block(now: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        done, found = now
        place = done + jnp.arange(size, dtype=jnp.int32)
        who = order[jnp.minimum(place, n - 1)]
        new = jax.vmap(function)(*tree_at_index(arguments, who))
        out = jnp.where(place < number, who, n)
        return done + size, jax.tree.map(lambda x, y: x.at[out].set(y, mode="drop"), found, new)

    return jax.lax.while_loop(lambda now: now[0] < number, block, (jnp.int32(0), nothing))[1]


def zeros_like_result(function: Callable[..., Any], *arguments: PyTree) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *arguments))
