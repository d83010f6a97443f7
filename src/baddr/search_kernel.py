"""PO-UCT on tables, as one GPU kernel: a thread searches one run's tree, one simulation after the other.

Where a POMDP has few states, actions and observations, a simulation's dynamics are a handful of numbers, and
a simulated step is a few dependent look-ups. The loop of `planner.search` spends some thirty kernels on it;
here the whole search is one. It is PO-UCT as published (one lane), with random numbers of its own.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.pomdp import Tables
from baddr.prng import threefry

THREADS = 32  # of a program: one warp


class Statistics(NamedTuple):
    """Of the root of each run's tree: sums of returns and visits, and how much was searched."""

    total: Float[Array, "runs A"]
    N: Float[Array, "runs A"]
    num_nodes: Int[Array, " runs"]
    num_steps: Int[Array, " runs"]


class _Lane(NamedTuple):
    """A thread's simulation in progress; `planner._Simulation` says what the fields mean."""

    number: Array  # of simulations before this one
    s: Array
    node: Array
    in_tree: Array
    level: Array
    total: Array
    size: Array
    steps: Array


def search_tables(
    keys: Key[Array, " runs"],
    tables: Tables,
    s: Int[Array, "runs simulations"],
    limit: Int[Array, " runs"],
    active: Bool[Array, " runs"],
    *,
    discount: float,
    exploration: float,
    depth: int,
    interpret: bool = False,
) -> Statistics:
    """Alg. 2 from states s, one a simulation, of each run that is `active`, to a depth of its `limit`."""
    num_runs, num_simulations = s.shape
    S, A, _ = tables.row_O.shape
    Z = tables.O.shape[3] + 1
    num_entries = (num_simulations + 1) * A
    power = np.float32(discount) ** np.arange(depth + 1, dtype=np.float32)
    kernel = partial(_search, S, A, Z, num_simulations, depth, exploration)
    float_, int_ = partial(jnp.zeros, dtype=jnp.float32), partial(jnp.zeros, dtype=jnp.int32)
    # What the kernel writes, from zeros: N and the sum of returns of each entry (node, a); the children; for
    # each level of the path the entry that is pending (0: none, else 1 more), its simulation and the rewards
    # before it; the rewards of each simulation; at the end, nodes and steps.
    programs = math.ceil(num_runs / THREADS)
    threads = programs * THREADS
    memory = (
        float_((threads, 2 * num_entries)),
        int_((threads, num_entries * Z)),
        int_((threads, depth + 1)),
        int_((threads, depth + 1)),
        float_((threads, depth + 1)),
        float_((threads, num_simulations)),
        int_((threads,)),
        int_((threads,)),
    )
    inputs = (
        jr.key_data(keys),
        s,
        limit,
        active.astype(jnp.int32),
        tables.T,
        tables.O,
        jnp.asarray(tables.row_T),
        jnp.asarray(tables.row_O),
        tables.reward,
        tables.is_terminal.astype(jnp.int32),
        jnp.asarray(power),
    )
    flat = [x.reshape(-1) for x in (*inputs, *memory)]
    results = pl.pallas_call(
        partial(kernel, num_runs, tables.T.shape[1:], tables.O.shape[1:]),
        out_shape=[jax.ShapeDtypeStruct((x.size,), x.dtype) for x in memory],
        grid=(programs,),
        input_output_aliases={len(inputs) + i: i for i in range(len(memory))},
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
    )(*flat)
    root = results[0].reshape(threads, -1)[:num_runs, : 2 * A].reshape(num_runs, A, 2)
    return Statistics(root[..., 1], root[..., 0], *(x[:num_runs] for x in results[-2:]))


def _search(S, A, Z, num_simulations, depth, exploration, num_runs, shape_T, shape_O, *refs):
    """The kernel. All vectors have an element for each thread, so no thread reads what another one writes."""
    key, roots, limits, actives, T, O, row_T, row_O, reward, is_terminal, power = refs[:11]
    sums, children, pending, owner, before, totals, num_nodes, num_steps = refs[19:]
    own = pl.program_id(0) * THREADS + jnp.arange(THREADS, dtype=jnp.int32)  # the thread's memory
    exists, run = own < num_runs, jnp.minimum(own, num_runs - 1)
    num_entries, levels = (num_simulations + 1) * A, depth + 1

    def load(ref, i, mask):
        return triton.load(ref.at[i], mask=mask, other=0)

    def store(ref, i, value, mask):
        triton.store(ref.at[i], value, mask=mask)

    def backup(level, mask):
        """What is pending at a level: N(h, a) += 1, and its return to the sum."""
        at = own * levels + level
        entry = load(pending, at, mask) - 1
        mask = mask & (entry >= 0)
        total = load(totals, own * num_simulations + load(owner, at, mask), mask)
        G = (total - load(before, at, mask)) / load(power, level, exists)
        at = own * (2 * num_entries) + 2 * entry
        store(sums, at, load(sums, at, mask) + 1, mask)
        store(sums, at + 1, load(sums, at + 1, mask) + G, mask)

    def ucb(node, in_tree, u):
        """`planner.ucb`, an action at a time; not in the tree, all are unvisited."""
        at = own * (2 * num_entries) + 2 * A * node
        N = [load(sums, at + 2 * a, in_tree) for a in range(A)]
        Q = [load(sums, at + 2 * a + 1, in_tree) / jnp.maximum(N[a], 1) for a in range(A)]
        visits = jnp.log(1 + sum(N[1:], N[0]))
        bonus = [exploration * jnp.sqrt(visits / jnp.maximum(n, 1)) for n in N]
        score = [jnp.where(N[a] > 0, Q[a] + bonus[a], jnp.inf) for a in range(A)]
        best = score[0]
        for x in score[1:]:
            best = jnp.maximum(best, x)
        ties = [(x == best).astype(jnp.int32) for x in score]
        number = sum(ties[1:], ties[0])
        chosen = jnp.minimum((u * number.astype(jnp.float32)).astype(jnp.int32), number - 1)
        action, passed = jnp.zeros_like(number), jnp.zeros_like(number)
        for a in range(A):
            action = jnp.where((ties[a] == 1) & (passed == chosen), a, action)
            passed = passed + ties[a]
        return action

    def draw(ref, shape, row, number, u, mask):
        """A value from row `row` of the simulation's table, by inversion."""
        table = run * shape[0] + jnp.minimum(number, shape[0] - 1)
        at = (table * shape[1] + row) * shape[2]
        value = jnp.zeros_like(row)
        for m in range(shape[2]):
            value = value + (u >= load(ref, at + m, mask)).astype(jnp.int32)
        return jnp.where(mask, value, 0)

    def uniform(i, which):
        k0, k1 = (load(key, 2 * run + j, exists) for j in range(2))
        counter, which = (jnp.full((THREADS,), x, jnp.uint32) for x in (i, which))
        words = threefry((k0, k1), counter, which)
        return tuple((w >> np.uint32(8)).astype(jnp.int32).astype(jnp.float32) * 2.0**-24 for w in words)

    def step(carry):
        i, lane = carry
        live = works & (lane.number < num_simulations)
        in_tree = live & (lane.in_tree == 1)
        backup(lane.level, live)
        (u_action, u_s), (u_o, _) = uniform(i, 0), uniform(i, 1)
        a = ucb(lane.node, in_tree, u_action)
        row = load(row_T, lane.s * A + a, live)
        s_next = draw(T, shape_T, row, lane.number, u_s, live & (row >= 0))
        at = (lane.s * A + a) * S + s_next
        terminal = load(is_terminal, at, live) == 1
        end = live & (terminal | (lane.level + 1 >= limit))
        row = load(row_O, at, live)
        o = draw(O, shape_O, row, lane.number, u_o, live & ~end & (row >= 0))

        # Leave the step on the path, and find or make the child h' = (h, a, o).
        entry = lane.node * A + a
        path = own * levels + lane.level
        store(pending, path, jnp.where(in_tree, entry + 1, 0), live)
        store(owner, path, lane.number, in_tree)
        store(before, path, lane.total, in_tree)
        total = lane.total + load(power, lane.level, exists) * load(reward, at, live)
        slot = own * (num_entries * Z) + entry * Z + o
        known = load(children, slot, in_tree & ~end)
        leaf = in_tree & ~end & (known == 0)
        store(children, slot, lane.size, leaf)
        store(totals, own * num_simulations + lane.number, total, end)

        number = lane.number + end.astype(jnp.int32)
        first = load(roots, run * num_simulations + jnp.minimum(number, num_simulations - 1), end)
        lane = _Lane(
            number=number,
            s=jnp.where(end, first, s_next),
            node=jnp.where(end, 0, known),
            in_tree=(end | (known > 0)).astype(jnp.int32),
            level=jnp.where(end, 0, lane.level + 1),
            total=jnp.where(end, 0.0, total),
            size=lane.size + leaf.astype(jnp.int32),
            steps=lane.steps + live.astype(jnp.int32),
        )
        return i + 1, lane

    works = exists & (load(actives, run, exists) == 1)
    limit = load(limits, run, exists)
    zero = jnp.zeros((THREADS,), jnp.int32)
    lane = _Lane(
        number=jnp.where(works, 0, num_simulations),
        s=load(roots, run * num_simulations, exists),
        node=zero,
        in_tree=zero + 1,
        level=zero,
        total=zero.astype(jnp.float32),
        size=zero + 1,
        steps=zero,
    )
    _, lane = jax.lax.while_loop(
        lambda carry: jnp.min(carry[1].number) < num_simulations, step, (jnp.int32(0), lane)
    )
    jax.lax.fori_loop(0, levels, lambda level, _: backup(jnp.full((THREADS,), level, jnp.int32), works), None)
    store(num_nodes, own, lane.size, exists)
    store(num_steps, own, lane.steps, exists)
