"""PO-UCT on tables: each run's search is one compiled loop, or one thread of a GPU's kernel.

Where a POMDP has few states, actions and observations, a simulation's dynamics are a handful of numbers, and
a simulated step is a few look-ups that depend on each other. `tree_search` dispatches some thirty small
programs for it. Here nothing is dispatched: on a CPU XLA compiles the loop of a run into one function (where
`compiler.compile_small_loops` was called in time; it is slower otherwise), on a GPU all runs are one Pallas
kernel. Both are PO-UCT as published, one simulation at a time, written once, on a memory that is arrays or
references. Random numbers are its own, the same in both.
"""

import math
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.fast import kernels
from baddr.fast.loops import one_by_one
from baddr.fast.tables import Tables
from baddr.prng import threefry

THREADS = 32  # of a GPU's program: one warp


class Statistics(NamedTuple):
    """Of the root of each run's tree: sums of returns and visits, and how much was searched."""

    total: Float[Array, "runs A"]
    N: Float[Array, "runs A"]
    num_nodes: Int[Array, " runs"]
    num_steps: Int[Array, " runs"]


class _Problem(NamedTuple):
    """All that is static."""

    S: int
    A: int
    Z: int
    T_shape: tuple[int, ...]  # tables, rows, values
    O_shape: tuple[int, ...]
    num_simulations: int
    depth: int
    exploration: float

    @property
    def num_entries(self) -> int:
        return (self.num_simulations + 1) * self.A

    @property
    def sizes(self) -> dict[str, int]:
        """Of a run's memory, which begins with zeros.

        N and the sum of returns of each entry (node, a); the children; for each level of the path the entry
        that is pending (0: none, else 1 more), its simulation and the rewards before it; the rewards of each
        simulation.
        """
        levels = self.depth + 1
        path = {"pending": levels, "owner": levels, "before": levels}
        children = self.num_entries * self.Z
        return {"sums": 2 * self.num_entries, "children": children, **path, "totals": self.num_simulations}


FLOATS = ("sums", "before", "totals")


class _Now(NamedTuple):
    """A run's simulation in progress; `tree_search.Simulation` says what the fields mean."""

    number: Array  # of simulations before this one
    s: Array
    node: Array
    in_tree: Array
    level: Array
    total: Array
    size: Array
    steps: Array


class Limits(NamedTuple):
    """How PO-UCT searches."""

    discount: float
    exploration: float
    depth: int


By = Literal["loop", "kernel", "interpreted kernel"]  # the last one on any machine, for tests


def search_tables(
    keys: Key[Array, " runs"],
    tables: Tables,
    s: Int[Array, "runs simulations"],
    limit: Int[Array, " runs"],
    active: Bool[Array, " runs"],
    how: Limits,
    by: By,
) -> Statistics:
    """Alg. 2 from states s, one a simulation, of each run that is `active`, to a depth of its `limit`."""
    S, A, _ = tables.row_O.shape
    shapes = tables.T.shape[1:], tables.O.shape[1:]
    problem = _Problem(S, A, shapes[1][2] + 1, *shapes, s.shape[1], how.depth, how.exploration)
    power = np.float32(how.discount) ** np.arange(how.depth + 1, dtype=np.float32)
    common = {
        "row_T": tables.row_T,
        "row_O": tables.row_O,
        "reward": tables.reward,
        "is_terminal": tables.is_terminal.astype(jnp.int32),
        "power": power,
        "log": np.log1p(np.arange(s.shape[1] + 1)).astype(np.float32),
    }
    own = {
        "key": jr.key_data(keys),
        "roots": s,
        "limit": limit,
        "active": active.astype(jnp.int32),
        "T": tables.T,
        "O": tables.O,
    }
    common = {name: jnp.asarray(x).reshape(-1) for name, x in common.items()}
    if by != "loop":
        return _kernel(problem, own, common, interpret=by != "kernel")
    own = {name: x.reshape(x.shape[0], -1) for name, x in own.items()}
    return one_by_one(lambda run: _loop(problem, {**run, **common}))(own)


# The search, a step at a time. A value is that of one run (a CPU's loop), or has an element for each thread.


def _backup(problem: _Problem, memory: Any, level: Array, mask: Array) -> None:
    """What is pending at a level: N(h, a) += 1, and its return to the sum."""
    entry = memory.load("pending", level, mask) - 1
    mask = mask & (entry >= 0)
    total = memory.load("totals", memory.load("owner", level, mask), mask)
    G = (total - memory.load("before", level, mask)) / memory.load("power", level)
    memory.store("sums", 2 * entry, memory.load("sums", 2 * entry, mask) + 1, mask)
    memory.store("sums", 2 * entry + 1, memory.load("sums", 2 * entry + 1, mask) + G, mask)


def _ucb(problem: _Problem, memory: Any, node: Array, in_tree: Array, u: Array) -> Array:
    """`tree_search.ucb`, an action at a time; not in the tree, all are unvisited."""
    A, at = problem.A, 2 * problem.A * node
    N = [memory.load("sums", at + 2 * a, in_tree) for a in range(A)]
    Q = [memory.load("sums", at + 2 * a + 1, in_tree) / jnp.maximum(N[a], 1) for a in range(A)]
    visits = memory.load("log", reduce(jnp.add, N).astype(jnp.int32))
    bonus = [problem.exploration * jnp.sqrt(visits / jnp.maximum(n, 1)) for n in N]
    score = [jnp.where(N[a] > 0, Q[a] + bonus[a], jnp.inf) for a in range(A)]
    best = reduce(jnp.maximum, score)
    ties = [(x == best).astype(jnp.int32) for x in score]
    number = reduce(jnp.add, ties)
    chosen = jnp.minimum((u * number.astype(jnp.float32)).astype(jnp.int32), number - 1)
    action, passed = jnp.zeros_like(number), jnp.zeros_like(number)
    for a in range(A):
        action = jnp.where((ties[a] == 1) & (passed == chosen), a, action)
        passed = passed + ties[a]
    return action


def _draw(
    memory: Any, name: str, shape: tuple[int, ...], row: Array, number: Array, u: Array, mask: Array
) -> Array:
    """A value from a row of the simulation's table, by inversion."""
    tables, rows, values = shape
    at = (jnp.minimum(number, tables - 1) * rows + row) * values
    value = jnp.zeros_like(row)
    for m in range(values):
        value = value + (u >= memory.load(name, at + m, mask)).astype(jnp.int32)
    return jnp.where(mask, value, 0)


def _uniforms(key: tuple[Array, Array], i: Array) -> tuple[Array, Array, Array]:
    """Step i's three numbers in [0, 1) from one cipher's 64 bits: of 24 bits for s' and o, which are drawn by
    their probabilities, and of the 16 that are left for the choice between equal actions."""
    bits = threefry(key, i.astype(jnp.uint32), jnp.zeros(i.shape, jnp.uint32))
    u_s, u_o = (_fraction(x >> np.uint32(8), 24) for x in bits)
    low, high = (x & np.uint32(255) for x in bits)
    return _fraction((high << np.uint32(8)) | low, 16), u_s, u_o


def _fraction(x: Array, digits: int) -> Array:
    return x.astype(jnp.int32).astype(jnp.float32) * 2.0**-digits


def _step(
    problem: _Problem, memory: Any, works: Array, key: tuple[Array, Array], i: Array, now: _Now
) -> _Now:
    S, A, Z, n = problem.S, problem.A, problem.Z, problem.num_simulations
    live = works & (now.number < n)
    in_tree = live & (now.in_tree == 1)
    _backup(problem, memory, now.level, live)
    u_action, u_s, u_o = _uniforms(key, i)
    a = _ucb(problem, memory, now.node, in_tree, u_action)
    row = memory.load("row_T", now.s * A + a)
    s_next = _draw(memory, "T", problem.T_shape, row, now.number, u_s, live & (row >= 0))
    at = (now.s * A + a) * S + s_next
    end = live & ((memory.load("is_terminal", at) == 1) | (now.level + 1 >= memory.load("limit", 0 * a)))
    row = memory.load("row_O", at)
    o = _draw(memory, "O", problem.O_shape, row, now.number, u_o, live & ~end & (row >= 0))

    # Leave the step on the path, and find or make the child h' = (h, a, o).
    entry = now.node * A + a
    slot = entry * Z + o
    known = memory.load("children", slot, in_tree & ~end)
    leaf = in_tree & ~end & (known == 0)
    total = now.total + memory.load("power", now.level) * memory.load("reward", at)
    memory.store("pending", now.level, jnp.where(in_tree, entry + 1, 0), live)
    memory.store("owner", now.level, now.number, in_tree)
    memory.store("before", now.level, now.total, in_tree)
    memory.store("children", slot, now.size, leaf)
    memory.store("totals", now.number, total, end)

    number = now.number + end.astype(jnp.int32)
    first = memory.load("roots", jnp.minimum(number, n - 1), end)
    return _Now(
        number=number,
        s=jnp.where(end, first, s_next),
        node=jnp.where(end, 0, known),
        in_tree=(end | (known > 0)).astype(jnp.int32),
        level=jnp.where(live & ~end, now.level + 1, 0),
        total=jnp.where(end, 0.0, total),
        size=now.size + leaf.astype(jnp.int32),
        steps=now.steps + live.astype(jnp.int32),
    )


def _first(problem: _Problem, memory: Any, works: Array) -> _Now:
    zero = jnp.zeros(works.shape, jnp.int32)
    number = jnp.where(works, 0, problem.num_simulations)
    s, total = memory.load("roots", zero), zero.astype(jnp.float32)
    return _Now(number, s, node=zero, in_tree=zero + 1, level=zero, total=total, size=zero + 1, steps=zero)


# On a CPU.


class _Arrays:
    """A run's memory as arrays, which the loop carries.

    All but the statistics is written at the beginning of the next step, before anything is read: XLA would
    otherwise copy an array whose old value is still wanted after it was written. What is not to be written
    goes to a spare element at the end.
    """

    def __init__(
        self, given: dict[str, Array], arrays: dict[str, Array], later: dict[str, tuple[Array, Array]]
    ):
        self.given, self.arrays, self.later = given, dict(arrays), {}
        for name, (i, value) in later.items():
            self._write(name, i, value)

    def load(self, name: str, i: Array, mask: Array | None = None) -> Array:
        array = self.arrays[name] if name in self.arrays else self.given[name]
        value = jax.lax.dynamic_slice(array, (i if mask is None else jnp.where(mask, i, 0),), (1,))[0]
        return value if mask is None else jnp.where(mask, value, 0)

    def store(self, name: str, i: Array, value: Array, mask: Array) -> None:
        i = jnp.where(mask, i, self.arrays[name].shape[0] - 1)
        if name == "sums":
            self._write(name, i, value)
        else:
            self.later[name] = i, value

    def _write(self, name: str, i: Array, value: Array) -> None:
        self.arrays[name] = jax.lax.dynamic_update_slice(self.arrays[name], value[None], (i,))


def _loop(problem: _Problem, given: dict[str, Array]) -> Statistics:
    """The search of one run."""
    zeros = {name: jnp.zeros((n + 1,), _dtype(name)) for name, n in problem.sizes.items()}
    spare = {name: (jnp.int32(x.shape[0] - 1), x[0]) for name, x in zeros.items() if name != "sums"}
    works, key = given["active"][0] == 1, (given["key"][0], given["key"][1])

    def body(carry: Any) -> Any:
        i, now, arrays, later = carry
        memory = _Arrays(given, arrays, later)
        now = _step(problem, memory, works, key, i, now)
        return i + 1, now, memory.arrays, memory.later

    first = _first(problem, _Arrays(given, zeros, {}), works)
    unfinished = lambda carry: carry[1].number < problem.num_simulations
    _, now, arrays, later = jax.lax.while_loop(unfinished, body, (jnp.int32(0), first, zeros, spare))
    settled = _Arrays(given, arrays, later).arrays

    def flush(level: Array, sums: Array) -> Array:
        memory = _Arrays(given, {**settled, "sums": sums}, {})
        _backup(problem, memory, level, works)
        return memory.arrays["sums"]

    sums = jax.lax.fori_loop(0, problem.depth + 1, flush, settled["sums"])
    root = sums[: 2 * problem.A].reshape(problem.A, 2)
    return Statistics(root[:, 1], root[:, 0], now.size, now.steps)


def _dtype(name: str) -> Any:
    return jnp.float32 if name in FLOATS else jnp.int32


# On a GPU.


class _Refs:
    """The memory of 32 runs as references of a kernel; no thread reads what another one writes."""

    def __init__(self, refs: dict[str, Any], sizes: dict[str, int], run: Array, thread: Array):
        self.refs, self.sizes, self.run, self.thread = refs, sizes, run, thread

    def load(self, name: str, i: Array, mask: Array | None = None) -> Array:
        ref = self.refs[name].at[self._at(name, i)]
        return kernels.triton().load(ref) if mask is None else kernels.triton().load(ref, mask=mask, other=0)

    def store(self, name: str, i: Array, value: Array, mask: Array | None = None) -> None:
        kernels.triton().store(self.refs[name].at[self._at(name, i)], value, mask=mask)

    def _at(self, name: str, i: Array) -> Array:
        """Inputs are by run, of which the last one may have several threads, and memory is by thread."""
        size = self.sizes.get(name)
        if size is None:
            return i
        return (self.run if name in INPUTS else self.thread) * size + i


INPUTS = ("key", "roots", "limit", "active", "T", "O")


def _kernel(
    problem: _Problem, own: dict[str, Array], common: dict[str, Array], interpret: bool
) -> Statistics:
    from jax.experimental import pallas as pl

    num_runs = own["roots"].shape[0]
    programs = math.ceil(num_runs / THREADS)
    threads = programs * THREADS
    sizes = {**problem.sizes, "num_nodes": 1, "num_steps": 1}
    zeros = {name: jnp.zeros((threads * n,), _dtype(name)) for name, n in sizes.items()}
    inputs = {**{name: x.reshape(-1) for name, x in own.items()}, **common}
    sizes |= {name: x.size // num_runs for name, x in own.items()}

    def kernel(*refs: Any) -> None:
        given, written = refs[: len(inputs)], refs[len(inputs) + len(zeros) :]
        named = dict(zip((*inputs, *zeros), (*given, *written), strict=True))
        thread = pl.program_id(0) * THREADS + jnp.arange(THREADS, dtype=jnp.int32)
        memory = _Refs(named, sizes, jnp.minimum(thread, num_runs - 1), thread)
        zero = jnp.zeros((THREADS,), jnp.int32)
        works = (thread < num_runs) & (memory.load("active", zero) == 1)
        key = memory.load("key", zero), memory.load("key", zero + 1)

        def body(carry: tuple[Array, _Now]) -> tuple[Array, _Now]:
            i, now = carry
            return i + 1, _step(problem, memory, works, key, jnp.full((THREADS,), i, jnp.int32), now)

        unfinished = lambda carry: jnp.min(carry[1].number) < problem.num_simulations
        start = jnp.int32(0), _first(problem, memory, works)
        _, now = jax.lax.while_loop(unfinished, body, start)
        flush = lambda level, _: _backup(problem, memory, jnp.full((THREADS,), level, jnp.int32), works)
        jax.lax.fori_loop(0, problem.depth + 1, flush, None)
        memory.store("num_nodes", zero, now.size)
        memory.store("num_steps", zero, now.steps)

    results = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in zeros.values()],
        grid=(programs,),
        input_output_aliases={len(inputs) + i: i for i in range(len(zeros))},
        compiler_params=kernels.triton().CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="search",
    )(*inputs.values(), *zeros.values())
    root = results[0].reshape(threads, -1)[:num_runs, : 2 * problem.A].reshape(num_runs, problem.A, 2)
    return Statistics(root[..., 1], root[..., 0], *(x[:num_runs] for x in results[-2:]))
