"""GPU kernels for the dropout networks of many particles, in Pallas for Triton.

XLA copies a particle's weights before it computes with them. These kernels read them where they lie among
those of all particles, each weight once, and the rows of dropped nodes not at all: a program of the grid is
one particle, and `vmap` over draws and runs makes the grid. They are for networks of two hidden layers. A
block of nodes k of the first hidden layer is all that is held at a time: its column of W1, its rows of W2.
"""

from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float, Int, UInt32

WORD = 32  # nodes to a word of a mask
LAYERS = 3  # the output layer included
TILE = 4096  # weights that a program holds at a time
NODES_PER_WARP = 64
MOST_WARPS = 8
STAGES = 1  # nothing to pipeline: there are no matrix units to feed

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

    @property
    def block(self) -> int:
        """Nodes at a time: their weights to or from a hidden layer fill a tile, their masks share a word."""
        return min(_padded(self.hidden), max(1, TILE // _padded(self.hidden)), WORD)


class Example(NamedTuple):
    """What U needs of one network: its input, masks, second hidden layer (before dropout) and dL/dlogits."""

    x: Float[Array, " inputs"]
    words: Words
    t2: Float[Array, " hidden"]
    dy: Float[Array, " outputs"]


def available() -> bool:
    """A GPU, and a JAX that still has Pallas for Triton, whose end 0.12 announces."""
    return jax.default_backend() == "gpu" and find_spec("jax.experimental.pallas.triton") is not None


def forward(
    thetas: Float[Array, "particles weights"],
    i: Index,
    X: Float[Array, "m inputs"],
    words: Words,
    net: Net,
    interpret: bool = False,
) -> tuple[Float[Array, "m outputs"], Float[Array, "m hidden"]]:
    """The logits of particle i's network at m inputs, and its second hidden layer before dropout.

    For i < 0 nothing is computed and the result is undefined.
    """
    m = X.shape[0]
    shapes = tuple(jax.ShapeDtypeStruct((m, n), thetas.dtype) for n in (net.outputs, net.hidden))
    return _call(partial(_forward, net=net), shapes, net.hidden, interpret)(i, thetas, X, words)


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
    return _call(kernel, shape, nets[0].hidden, interpret)(i, thetas, *arguments)


def triton() -> Any:
    from jax.experimental.pallas import triton  # only here: without a GPU nobody needs it

    return triton


def _call(kernel: Any, shapes: Any, hidden: int, interpret: bool) -> Any:
    warps = min(max(_padded(hidden) // NODES_PER_WARP, 1), MOST_WARPS)
    parameters = triton().CompilerParams(num_warps=warps, num_stages=STAGES)
    name = kernel.func.__name__.strip("_")
    return pl.pallas_call(
        kernel, out_shape=shapes, compiler_params=parameters, interpret=interpret, name=name
    )


def _forward(i_ref, thetas, X, words, Y, T2, *, net: Net):
    i, at, n, m = i_ref[...], net.starts, net.hidden, X.shape[0]
    j = _range(n)

    @pl.when(i >= 0)
    def _():
        xs = [_load(X, _vector(0, _range(net.inputs), net.inputs), r) for r in range(m)]

        def hidden(first, k, z2):
            scale = _scale(words, 0, first >> 5, k, net)
            W2 = _load(thetas, _matrix(at.W2, k, n, j, n), i, scale[:, None] > 0)
            W1 = _load(thetas, _matrix(at.W1, _range(net.inputs), net.inputs, k, n), i)
            b1 = _load(thetas, _vector(at.b1, k, n), i)
            h1 = [scale * jnp.tanh(_times(x, W1) + b1) for x in xs]
            return tuple(z + _times(h, W2) for z, h in zip(z2, h1, strict=True))

        b2 = _load(thetas, _vector(at.b2, j, n), i)
        z2 = _over_blocks(hidden, n, net, (b2,) * m)
        scale, t2 = _scale(words, 1, j >> 5, j, net), [jnp.tanh(z) for z in z2]
        for r in range(m):
            _store(T2, _vector(0, j, n), t2[r], r)

        def outputs(_, k, nothing):
            W3 = _load(thetas, _matrix(at.W3, j, n, k, net.outputs), i, scale[:, None] > 0)
            b3 = _load(thetas, _vector(at.b3, k, net.outputs), i)
            for r in range(m):
                y = _times(scale * t2[r], W3) + b3
                _store(Y, _vector(0, k, net.outputs), y, r)
            return nothing

        _over_blocks(outputs, net.outputs, net, ())


def _descend(i_ref, thetas, *refs, nets: tuple[Net, ...], learning_rate: float):
    *examples, after = refs
    for number, net in enumerate(nets):
        example = Example(*examples[4 * number : 4 * number + 4])
        _descend_one(i_ref[...], thetas, example, after, net, learning_rate)


def _descend_one(i, thetas, example: Example, after, net: Net, learning_rate: float) -> None:
    """Backwards through one network, each weight changed as soon as it is read."""
    at, n = net.starts, net.hidden
    j, inputs = _range(n), _range(net.inputs)

    def change(place: Place, w, gradient) -> None:
        _store(after, place, w - learning_rate * gradient)

    x = _load(example.x, _vector(0, inputs, net.inputs))
    scale_2, t2 = _scale(example.words, 1, j >> 5, j, net), _load(example.t2, _vector(0, j, n))
    h2 = scale_2 * t2

    def outputs(_, k, dh2):
        W3_place, b3_place = _matrix(at.W3, j, n, k, net.outputs), _vector(at.b3, k, net.outputs)
        W3, b3 = _load(thetas, W3_place, i), _load(thetas, b3_place, i)
        dy = _load(example.dy, _vector(0, k, net.outputs))
        change(W3_place, W3, h2[:, None] * dy[None])
        change(b3_place, b3, dy)
        return dh2 + jnp.sum(W3 * dy[None], axis=1)

    dh2 = _over_blocks(outputs, net.outputs, net, jnp.zeros_like(h2))
    dz2 = dh2 * scale_2 * (1 - t2 * t2)
    b2_place = _vector(at.b2, j, n)
    change(b2_place, _load(thetas, b2_place, i), dz2)

    def hidden(first, k, nothing):
        scale = _scale(example.words, 0, first >> 5, k, net)
        W1_place, b1_place = _matrix(at.W1, inputs, net.inputs, k, n), _vector(at.b1, k, n)
        W2_place = _matrix(at.W2, k, n, j, n)
        W2, W1, b1 = (_load(thetas, place, i) for place in (W2_place, W1_place, b1_place))
        t1 = jnp.tanh(_times(x, W1) + b1)
        dz1 = jnp.sum(W2 * dz2[None], axis=1) * scale * (1 - t1 * t1)
        change(W2_place, W2, (scale * t1)[:, None] * dz2[None])
        change(W1_place, W1, x[:, None] * dz1[None])
        change(b1_place, b1, dz1)
        return nothing

    _over_blocks(hidden, n, net, ())


class Place(NamedTuple):
    """Where some numbers lie in a flat vector; a tile that is padded to a power of two is partly outside."""

    at: Int[Array, "..."]
    inside: Bool[Array, "..."]


def _vector(start: int, k: Array, size: int) -> Place:
    return Place(start + k, k < size)


def _matrix(start: int, rows: Array, num_rows: int, columns: Array, num_columns: int) -> Place:
    index = start + rows[:, None] * num_columns + columns[None]
    return Place(index, (rows < num_rows)[:, None] & (columns < num_columns)[None])


def _load(ref: Any, place: Place, row: Any = None, wanted: Array | None = None) -> Array:
    """The numbers of a vector, or of a row of stacked ones; 0 outside and where they are not wanted."""
    mask = place.inside if wanted is None else place.inside & wanted
    at = place.at if row is None else (row, place.at)
    return triton().load(ref.at[at], mask=mask, other=0.0)


def _store(ref: Any, place: Place, values: Array, row: Any = None) -> None:
    at = place.at if row is None else (row, place.at)
    triton().store(ref.at[at], values, mask=place.inside)


def _scale(words: Any, layer: int, word: Array, k: Array, net: Net) -> Float[Array, " k"]:
    """z / (1 - p) of nodes k of a hidden layer, whose bits are in this word (of each, or of all of them)."""
    if layer >= words.shape[0]:
        return jnp.ones(k.shape)  # no dropout there
    bits = words[layer, jnp.minimum(word, words.shape[1] - 1)] >> (k & (WORD - 1)).astype(jnp.uint32)
    return (bits & 1).astype(jnp.float32) * (1 / (1 - net.dropout))


def _times(x: Float[Array, " n"], W: Float[Array, "n m"]) -> Float[Array, " m"]:
    """x W, in float32 throughout: the matrix units would round to fewer bits."""
    return jnp.sum(x[:, None] * W, axis=0)


def _over_blocks(function: Any, size: int, net: Net, carry: Any) -> Any:
    """function(first, k, carry) for the numbers k of each block, below `size` or a little beyond."""
    block = min(net.block, _padded(size))

    def step(number: Array, carry: Any) -> Any:
        first = number * block
        return function(first, first + _range(block), carry)

    return jax.lax.fori_loop(0, pl.cdiv(size, block), step, carry)


def _range(n: int) -> Int[Array, " padded"]:
    return jax.lax.iota(jnp.int32, _padded(n))


def _padded(n: int) -> int:
    """Triton's blocks are powers of two."""
    return 1 << (n - 1).bit_length()
