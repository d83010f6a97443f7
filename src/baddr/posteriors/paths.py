"""Whole state histories of many models, drawn given all that was done and seen: forward filtering, backward
sampling. Only their counts are kept.

Particles are the last axis: what is done to a step of all of them is a loop over long rows.
"""

from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from baddr.posteriors.memory import Codes, Memory, Step
from baddr.prng import uniform_pairs

FEW_STATES = 8  # of which running sums are written out


class Tables(NamedTuple):
    """A model for each particle; an observation beyond the last is none, and has probability one."""

    p0: Float[Array, " S"]
    T: Float[Array, "A S S n"]
    O: Float[Array, "A Z S n"]  # of o, given a and s'
    ends: Bool[Array, "A S S"] | None = None  # which (s, a, s') end an episode, where the state has a say

    def transition(self, step: Step) -> Float[Array, "S S n"]:
        """p(s' | s, a), of those that end the episode or not, as it did."""
        T = at(self.T, step.a)
        if self.ends is None:
            return T
        fits = (self.ends[step.a] == step.ended) | ~step.learned
        return jnp.where(fits[:, :, None], T, 0)


class Paths(NamedTuple):
    """What drawn histories add up to."""

    T: Float[Array, "A S S n"]  # how often s, a, s'
    O: Float[Array, "A Z S n"]  # how often a, o, s'
    s: Int[Array, " n"]  # the last state
    possible: Bool[Array, " n"]  # whether the model can explain what was seen


def draw_paths(key: Key[Array, ""], model: Tables, memory: Memory, codes: Codes, rows_at_once: int) -> Paths:
    """States ~ p(. | h, model) for each particle. Rows of `memory` are whole episodes, which are independent
    of each other given the model."""
    S, n = model.T.shape[1], model.T.shape[-1]
    unseen = jnp.ones((model.O.shape[0], 1, S, n), model.O.dtype)
    model = model._replace(O=jnp.concatenate([model.O, unseen], axis=1))
    num_rows = memory.codes.shape[0]
    blocks = -(-num_rows // rows_at_once)
    rows = jnp.pad(memory.codes, ((0, blocks * rows_at_once - num_rows), (0, 0)))

    def block(i: Int[Array, ""], now: Paths) -> Paths:
        places = i * rows_at_once + jnp.arange(rows_at_once, dtype=jnp.int32)
        one = lambda place: _row(jr.fold_in(key, place), model, codes, rows[place])
        if rows_at_once == 1:  # a gather of many entries would take thirty times as long as a slice
            new = jax.tree.map(lambda x: x[None], one(i))
        else:
            new = jax.vmap(one)(places)
        last = jnp.sum(jnp.where((places == memory.row)[:, None], new.s, 0), axis=0)
        return Paths(
            T=now.T + jnp.sum(new.T, axis=0),
            O=now.O + jnp.sum(new.O, axis=0),
            s=now.s + last,
            possible=now.possible & jnp.all(new.possible, axis=0),
        )

    found = jax.lax.fori_loop(0, memory.row // rows_at_once + 1, block, _nothing(model, S, n))
    return found._replace(O=found.O[:, :-1])  # less what was not seen


def _nothing(model: Tables, S: int, n: int) -> Paths:
    A, Z = model.O.shape[0], model.O.shape[1]
    counts = jnp.zeros((A, S, S, n)), jnp.zeros((A, Z, S, n))
    return Paths(*counts, jnp.zeros((n,), jnp.int32), jnp.ones((n,), bool))


def _row(key: Key[Array, ""], model: Tables, codes: Codes, row: UInt[Array, " steps"]) -> Paths:
    """The states of one row of episodes."""
    steps = codes.step(row)
    S, n = model.T.shape[1], model.T.shape[-1]
    start = jnp.broadcast_to(model.p0[:, None], (S, n))

    def forward(now: tuple[Array, Array], step: Step) -> tuple[tuple[Array, Array], Array]:
        before, possible = now
        before = jnp.where(step.first, start, before)
        joint = add_up(before[:, None] * model.transition(step)) * at(model.O, step.a, step.o)
        total = add_up(joint)
        after = jnp.where(step.used, joint / jnp.where(total > 0, total, 1)[None], before)
        return (after, possible & ((total > 0) | ~step.used)), after

    (_, possible), filtered = jax.lax.scan(forward, (start, jnp.ones((n,), bool)), steps)
    before = jnp.concatenate([start[None], filtered[:-1]])
    free = jnp.concatenate([steps.first[1:] | ~steps.used[1:], jnp.ones((1,), bool)])
    numbers = jnp.arange(row.shape[0], dtype=jnp.int32)

    def backward(now: tuple[Paths, Array], x: tuple) -> tuple[tuple[Paths, Array], None]:
        (found, s), (step, t, before, after, free) = now, x
        u = uniform_pairs(jr.fold_in(key, t), n)
        before = jnp.where(step.first, start, before)
        s_next = jnp.where(free, draw(u[0], after), s)
        is_next = jnp.arange(S, dtype=jnp.int32)[:, None] == s_next[None]
        to_next = add_up(jnp.where(is_next[:, None], jnp.swapaxes(model.transition(step), 0, 1), 0))
        s = draw(u[1], before * to_next)
        is_s = jnp.arange(S, dtype=jnp.int32)[:, None] == s[None]
        counted = step.used & step.learned
        found = Paths(
            T=add(found.T, jnp.where(is_s[:, None] & is_next[None] & counted, 1.0, 0.0), step.a),
            O=add(found.O, jnp.where(is_next & counted, 1.0, 0.0), step.a, step.o),
            s=jnp.where(step.used & ~found.possible, s_next, found.s),
            possible=found.possible | step.used,
        )
        return (found, s), None

    none = _nothing(model, S, n)
    nobody = none._replace(possible=jnp.zeros((n,), bool))  # here: whether the last state is known
    xs = steps, numbers, before, filtered, free
    (found, _), _ = jax.lax.scan(backward, (nobody, jnp.zeros((n,), jnp.int32)), xs, reverse=True)
    return found._replace(possible=possible)


def add_up(x: Float[Array, "k *rest"]) -> Float[Array, "*rest"]:
    """Over the first axis. Few are written out: XLA's own sum would not use a CPU's vector units."""
    return sum(x[1:], x[0]) if x.shape[0] <= FEW_STATES else jnp.sum(x, axis=0)


def at(table: Float[Array, "..."], *place: Int[Array, ""]) -> Float[Array, "..."]:
    """table[place]: a slice of memory."""
    for i in place:
        table = jax.lax.dynamic_index_in_dim(table, i, keepdims=False)
    return table


def add(table: Float[Array, "..."], x: Float[Array, "..."], *place: Int[Array, ""]) -> Float[Array, "..."]:
    """The table with x added at a place."""
    first, *rest = place
    here = at(table, first)
    new = add(here, x, *rest) if rest else here + x
    return jax.lax.dynamic_update_index_in_dim(table, new, first, 0)


def draw(u: Float[Array, " n"], weights: Float[Array, "values n"]) -> Int[Array, " n"]:
    """A value for each column in proportion to its weights, by inversion; none of weight zero."""
    if weights.shape[0] <= FEW_STATES:
        running = list(accumulate(weights))
        total = running[-1]
        index = sum(((r <= u * total).astype(jnp.int32) for r in running), jnp.zeros(u.shape, jnp.int32))
        last = sum(((r < total).astype(jnp.int32) for r in running), jnp.zeros(u.shape, jnp.int32))
        return jnp.minimum(index, last)
    running = jnp.cumsum(weights, axis=0)
    index = jnp.sum(running <= u[None] * running[-1:], axis=0, dtype=jnp.int32)
    return jnp.minimum(index, jnp.sum(running < running[-1:], axis=0, dtype=jnp.int32))
