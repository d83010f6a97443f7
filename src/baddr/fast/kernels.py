"""GPU kernels for the dropout networks of many particles, in Pallas for Triton.

XLA copies a particle's weights before it computes with them. These kernels read them where they lie among
those of all particles, and the rows of dropped nodes not at all. They are for networks of two hidden layers.
A tile of a few thousand weights is all that is held at a time: those from or to a block of nodes k.

A program of the grid is one draw of a particle's D, and `vmap` over draws and runs makes the grid. Where
networks are large, up to `GROUP` draws of the same particle share a program: they have masks and inputs of
their own, but each weight is read once for all of them.
"""

from functools import cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float, Int, UInt32

from baddr.core.particles import NOBODY

WORD = 32  # nodes to a word of a mask
LAYERS = 3  # the output layer included
GROUP = 4
LARGE = 128  # nodes of a layer, from which on draws are sorted into groups
STAGES = 1  # nothing to pipeline: there are no matrix units to feed


class Tiling(NamedTuple):
    """How a program goes through the weights."""

    weights: int  # held at a time
    nodes_per_warp: int

    def block(self, columns: int) -> int:
        """Nodes at a time, with weights to or from so many others."""
        return max(1, self.weights // _padded(columns))


# Measured on an H200: few programs at a time need more loads in flight each than many.
ALONE, GROUPED, DESCENT = Tiling(8192, 64), Tiling(2048, 128), Tiling(4096, 64)
MOST_WARPS = 8

Index = Int[Array, ""]
Words = UInt32[Array, "dropout_layers words"]  # masks of one network, a bit per node, 1: keep


class Starts(NamedTuple):
    W1: int
    b1: int
    W2: int
    b2: int
    W3: int
    b3: int


class Net(NamedTuple):
    """One network, and where it starts in theta."""

    start: int
    inputs: int
    hidden: int
    outputs: int
    dropout: float

    @property
    def starts(self) -> "Starts":
        n = self.hidden
        sizes = (self.inputs * n, n, n * n, n, n * self.outputs)
        return Starts(*accumulate(sizes, initial=self.start))


class Example(NamedTuple):
    """What U needs of one network: input, hidden layers h = scale tanh(z), their slopes dh/dz, dL/dlogits."""

    x: Float[Array, " inputs"]
    h1: Float[Array, " hidden"]
    slope_1: Float[Array, " hidden"]
    h2: Float[Array, " hidden"]
    slope_2: Float[Array, " hidden"]
    dy: Float[Array, " outputs"]


class Outputs(NamedTuple):
    """Of a network at m inputs: its logits, and its hidden layers after dropout."""

    Y: Float[Array, "*n m outputs"]
    H1: Float[Array, "*n m hidden"]
    H2: Float[Array, "*n m hidden"]


def forward(
    thetas: Float[Array, "particles weights"],
    i: Index,
    X: Float[Array, "m inputs"],
    words: Words,
    net: Net,
    interpret: bool = False,
) -> Outputs:
    """Particle i's network at m inputs.

    For i < 0 nothing is computed and the result is undefined.
    """
    return _forward_of(net, interpret)(thetas, i, X, words)


@cache
def _forward_of(net: Net, interpret: bool) -> Any:
    def alone(thetas: Array, i: Index, X: Array, words: Words) -> Outputs:
        one = Groups(i[None], jnp.zeros((1, 1), jnp.int32))
        outputs = _forward_groups(one, thetas, X[None], words[None], net, ALONE, interpret)
        return Outputs(*(x[0] for x in outputs))

    forward = custom_vmap(alone)

    @forward.def_vmap
    def many(n: int, batched: list[bool], thetas: Array, *draws: Array) -> tuple[Outputs, Any]:
        if batched[0] or n < thetas.shape[0] or net.hidden < LARGE:
            in_axes = [0 if has_axis else None for has_axis in batched]
            found = jax.vmap(alone, in_axes)(thetas, *draws)
        else:
            i, X, words = (
                x if has_axis else jnp.broadcast_to(x, (n, *x.shape))
                for x, has_axis in zip(draws, batched[1:], strict=True)
            )
            found = _forward_groups(groups_of(i, thetas.shape[0]), thetas, X, words, net, GROUPED, interpret)
        return found, jax.tree.map(lambda _: True, found)

    return forward


class Groups(NamedTuple):
    """Draws of the same particle: whose they are, and which."""

    i: Int[Array, " groups"]  # NOBODY: an empty group
    draws: Int[Array, "groups members"]  # NOBODY: a place that is free


def groups_of(i: Int[Array, " n"], num_particles: int) -> Groups:
    """The draws sorted by their particle, up to `GROUP` of them in a group; those of nobody are in none."""
    n, most = i.shape[0], min(i.shape[0], i.shape[0] // GROUP + num_particles)
    order = jnp.argsort(jnp.where(i < 0, num_particles, i)).astype(jnp.int32)
    owner, place = i[order], jnp.arange(n, dtype=jnp.int32)
    is_new = jnp.concatenate([jnp.ones((1,), bool), owner[1:] != owner[:-1]])
    rank = place - jax.lax.cummax(jnp.where(is_new, place, 0))
    leads = (rank % GROUP == 0) & (owner >= 0)
    number = jnp.cumsum(leads, dtype=jnp.int32)
    first = jnp.searchsorted(number, jnp.arange(1, most + 1, dtype=jnp.int32)).astype(jnp.int32)
    leader = jnp.where(first < n, owner[jnp.minimum(first, n - 1)], NOBODY)
    places = first[:, None] + jnp.arange(GROUP, dtype=jnp.int32)[None]
    at = jnp.minimum(places, n - 1)
    is_member = (places < n) & (owner[at] == leader[:, None]) & (leader[:, None] >= 0)
    return Groups(leader, jnp.where(is_member, order[at], NOBODY))


def _forward_groups(
    groups: Groups,
    thetas: Float[Array, "particles weights"],
    X: Float[Array, "n m inputs"],
    words: UInt32[Array, "n dropout_layers words"],
    net: Net,
    tiling: Tiling,
    interpret: bool,
) -> Outputs:
    widths = (net.outputs, net.hidden, net.hidden)
    shapes = tuple(jax.ShapeDtypeStruct((*X.shape[:2], n), thetas.dtype) for n in widths)
    kernel = partial(_forward, net=net, tiling=tiling, interpret=interpret)
    call = _call(kernel, shapes, net.hidden, tiling, interpret, groups.i.shape)
    return Outputs(*call(*groups, thetas, X, words))


def descend(
    thetas: Float[Array, "particles weights"],
    i: Index,
    examples: tuple[Example, ...],
    nets: tuple[Net, ...],
    learning_rate: float,
    interpret: bool = False,
) -> Float[Array, " weights"]:
    """w - alpha dL/dw of particle i, for networks that make up theta between them."""
    kernel = partial(_descend, nets=nets, learning_rate=learning_rate)
    shape = jax.ShapeDtypeStruct(thetas.shape[1:], thetas.dtype)
    arguments = [x for example in examples for x in example]
    return _call(kernel, shape, nets[0].hidden, DESCENT, interpret)(i, thetas, *arguments)


def triton() -> Any:
    from jax.experimental.pallas import triton  # only here: without a GPU nobody needs it

    return triton


def _call(
    kernel: Any, shapes: Any, hidden: int, tiling: Tiling, interpret: bool, grid: tuple[int, ...] = ()
) -> Any:
    warps = min(max(_padded(hidden) // tiling.nodes_per_warp, 1), MOST_WARPS)
    parameters = triton().CompilerParams(num_warps=warps, num_stages=STAGES)
    name = kernel.func.__name__.strip("_")
    return pl.pallas_call(
        kernel, out_shape=shapes, grid=grid, compiler_params=parameters, interpret=interpret, name=name
    )


def _forward(*refs, net: Net, tiling: Tiling, interpret: bool):
    whose, draws, thetas, X, words, Y, H1, H2 = refs
    group, at, n, m = pl.program_id(0), net.starts, net.hidden, X.shape[1]
    i, j, inputs = whose[group], _range(n), _range(net.inputs)

    @pl.when(i >= 0)
    def _():
        numbers = [draws[group, r] for r in range(draws.shape[1])]
        rows = [(jnp.maximum(d, 0), q) for d in numbers for q in range(m)]  # a free place computes in vain
        wanted = [d >= 0 for d in numbers for _ in range(m)]
        xs = [_load(X, _vector(0, inputs, net.inputs), row) for row in rows]

        def first_layer(k, nothing):
            W1 = _load(thetas, _matrix(at.W1, inputs, net.inputs, k, n), (i,))
            b1 = _load(thetas, _vector(at.b1, k, n), (i,))
            for x, row, want in zip(xs, rows, wanted, strict=True):
                h1 = _scale(words, (row[0], 0), k, net) * jnp.tanh(_times(x, W1) + b1)
                _store(H1, _vector(0, k, n), h1, row, want)
            return nothing

        _over_blocks(first_layer, n, tiling.block(net.inputs), ())
        if not interpret:
            triton().debug_barrier()  # H1 is read by other threads than those that wrote it

        def second_layer(k, z2):
            h1 = [_load(H1, _vector(0, k, n), row) for row in rows]
            used = sum((jnp.abs(h) for h in h1), jnp.zeros(k.shape)) != 0
            W2 = _load(thetas, _matrix(at.W2, k, n, j, n), (i,), used[:, None])
            return tuple(z + _times(h, W2) for z, h in zip(z2, h1, strict=True))

        b2 = _load(thetas, _vector(at.b2, j, n), (i,))
        z2 = _over_blocks(second_layer, n, tiling.block(n), (b2,) * len(rows))
        h2 = [_scale(words, (row[0], 1), j, net) * jnp.tanh(z) for z, row in zip(z2, rows, strict=True)]
        for h, row, want in zip(h2, rows, wanted, strict=True):
            _store(H2, _vector(0, j, n), h, row, want)

        def logits(k, nothing):
            W3 = _load(thetas, _matrix(at.W3, j, n, k, net.outputs), (i,))
            b3 = _load(thetas, _vector(at.b3, k, net.outputs), (i,))
            for h, row, want in zip(h2, rows, wanted, strict=True):
                _store(Y, _vector(0, k, net.outputs), _times(h, W3) + b3, row, want)
            return nothing

        _over_blocks(logits, net.outputs, tiling.block(n), ())


def _descend(i_ref, thetas, *refs, nets: tuple[Net, ...], learning_rate: float):
    *examples, after = refs
    size = len(Example._fields)
    for number, net in enumerate(nets):
        example = Example(*examples[size * number : size * (number + 1)])
        _descend_one(i_ref[...], thetas, example, after, net, learning_rate)


def _descend_one(i, thetas, example: Example, after, net: Net, learning_rate: float) -> None:
    """Backwards through one network, each weight changed as soon as it is read."""
    at, n = net.starts, net.hidden
    j, inputs = _range(n), _range(net.inputs)

    def change(place: Place, w, gradient) -> None:
        _store(after, place, w - learning_rate * gradient)

    x = _load(example.x, _vector(0, inputs, net.inputs))
    h2, slope_2 = (_load(v, _vector(0, j, n)) for v in (example.h2, example.slope_2))

    def outputs(k, dh2):
        W3_place, b3_place = _matrix(at.W3, j, n, k, net.outputs), _vector(at.b3, k, net.outputs)
        W3, b3 = _load(thetas, W3_place, (i,)), _load(thetas, b3_place, (i,))
        dy = _load(example.dy, _vector(0, k, net.outputs))
        change(W3_place, W3, h2[:, None] * dy[None])
        change(b3_place, b3, dy)
        return dh2 + jnp.sum(W3 * dy[None], axis=1)

    dz2 = slope_2 * _over_blocks(outputs, net.outputs, DESCENT.block(n), jnp.zeros_like(h2))
    b2_place = _vector(at.b2, j, n)
    change(b2_place, _load(thetas, b2_place, (i,)), dz2)

    def hidden(k, nothing):
        W1_place, b1_place = _matrix(at.W1, inputs, net.inputs, k, n), _vector(at.b1, k, n)
        W2_place = _matrix(at.W2, k, n, j, n)
        W2, W1, b1 = (_load(thetas, place, (i,)) for place in (W2_place, W1_place, b1_place))
        h1, slope_1 = (_load(v, _vector(0, k, n)) for v in (example.h1, example.slope_1))
        dz1 = slope_1 * jnp.sum(W2 * dz2[None], axis=1)
        change(W2_place, W2, h1[:, None] * dz2[None])
        change(W1_place, W1, x[:, None] * dz1[None])
        change(b1_place, b1, dz1)
        return nothing

    _over_blocks(hidden, n, DESCENT.block(n), ())


class Place(NamedTuple):
    """Where some numbers lie in a flat vector; a tile that is padded to a power of two is partly outside."""

    at: Int[Array, "..."]
    inside: Bool[Array, "..."]


def _vector(start: int, k: Array, size: int) -> Place:
    return Place(start + k, k < size)


def _matrix(start: int, rows: Array, num_rows: int, columns: Array, num_columns: int) -> Place:
    index = start + rows[:, None] * num_columns + columns[None]
    return Place(index, (rows < num_rows)[:, None] & (columns < num_columns)[None])


def _load(ref: Any, place: Place, rows: tuple[Any, ...] = (), wanted: Array | None = None) -> Array:
    """The numbers of a vector, or of one in stacked ones; 0 outside and where they are not wanted."""
    mask = place.inside if wanted is None else place.inside & wanted
    return triton().load(ref.at[(*rows, place.at)], mask=mask, other=0.0)


def _store(
    ref: Any, place: Place, values: Array, rows: tuple[Any, ...] = (), wanted: Array | None = None
) -> None:
    mask = place.inside if wanted is None else place.inside & wanted
    triton().store(ref.at[(*rows, place.at)], values, mask=mask)


def _scale(words: Any, rows: tuple[Any, int], k: Array, net: Net) -> Float[Array, " k"]:
    """z / (1 - p) of nodes k of a hidden layer, by the words of a draw and that layer."""
    if rows[1] >= words.shape[1]:
        return jnp.ones(k.shape)  # no dropout there
    bits = words[(*rows, jnp.minimum(k // WORD, words.shape[2] - 1))] >> (k % WORD).astype(jnp.uint32)
    return (bits & 1).astype(jnp.float32) * (1 / (1 - net.dropout))


def _times(x: Float[Array, " n"], W: Float[Array, "n m"]) -> Float[Array, " m"]:
    """x W, in float32 throughout: the matrix units would round to fewer bits."""
    return jnp.sum(x[:, None] * W, axis=0)


def _over_blocks(function: Any, size: int, block: int, carry: Any) -> Any:
    """function(k, carry) for the numbers k of each block, below `size` or a little beyond."""
    block = min(block, _padded(size))

    def step(number: Array, carry: Any) -> Any:
        return function(number * block + _range(block), carry)

    return jax.lax.fori_loop(0, pl.cdiv(size, block), step, carry)


def _range(n: int) -> Int[Array, " padded"]:
    return jax.lax.iota(jnp.int32, _padded(n))


def _padded(n: int) -> int:
    """Triton's blocks are powers of two."""
    return 1 << (n - 1).bit_length()
