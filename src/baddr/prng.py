"""Random numbers: threefry keys that compile into straight-line code, and the draws built on them.

JAX's own threefry runs as a loop of its own on the CPU, which costs more than the simulated step
around it. This is the same cipher (2x32), unrolled, so that a draw fuses with the code that uses it, and
with the 13 rounds that its authors found enough to pass every test of BigCrush, where JAX runs 20. Its
keys are ordinary JAX keys: every function of `jax.random` takes them.

To JAX it is one operation, lowered to XLA's at once. As 110 operations of `jax.numpy` a draw it was two
thirds of every program, and a quarter of the time that JAX takes to lower it.
"""

import math
from collections.abc import Callable, Sequence
from functools import partialmethod
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.extend.random import define_prng_impl
from jax.interpreters import batching, mlir
from jaxtyping import Array, Float, Int, Key, UInt32

STREAMS = 9  # raise it when a run of the same seed draws other numbers: it could not go on where it stopped
ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
UNROLLED = 8  # values of a running sum
MANY = 64
LONGEST_SUM = 4096  # that is accurate to five digits, added up one by one
PARITY = np.uint32(0x1BD11BDA)
SPLIT, FOLD_IN, BITS = (np.uint32(i) for i in range(3))  # one domain of counters per use


def threefry(key: tuple[Any, Any], x0: Any, x1: Any, rounds: int = ROUNDS) -> tuple[Any, Any]:
    """Threefry-2x32 (Salmon et al. 2011), of arrays or of what else can add, shift and xor."""
    k0, k1 = key
    ks = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + ks[0], x1 + ks[1]
    for i in range(rounds):
        r = ROTATIONS[i % 8]
        x0 = x0 + x1
        x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        if i % 4 == 3:
            j = i // 4 + 1
            x0, x1 = x0 + ks[j % 3], x1 + ks[(j + 1) % 3] + np.uint32(j)
    return x0, x1


def cipher(key: tuple[Array, Array], x0: Array, x1: Array) -> tuple[Array, Array]:
    """`threefry` as one operation."""
    one, other = _threefry.bind(*jnp.broadcast_arrays(*key, x0, x1))
    return one, other


_threefry = Primitive("threefry2x32_13")
_threefry.multiple_results = True
_threefry.def_abstract_eval(lambda *words: [words[0]] * 2)
_threefry.def_impl(jax.jit(lambda k0, k1, x0, x1: threefry((k0, k1), x0, x1)))


class _Word:
    """A value of the program that XLA will compile."""

    def __init__(self, value: Any):
        self.value = value

    def _with(self, operation: Any, other: "_Word | np.uint32") -> "_Word":
        if not isinstance(other, _Word):
            constant = ir.IntegerAttr.get(ir.IntegerType.get_unsigned(32), int(other))
            other = _Word(stablehlo.constant(ir.DenseElementsAttr.get_splat(self.value.type, constant)))
        return _Word(operation(self.value, other.value))

    __add__ = partialmethod(_with, stablehlo.add)
    __xor__ = partialmethod(_with, stablehlo.xor)
    __or__ = partialmethod(_with, stablehlo.or_)
    __lshift__ = partialmethod(_with, stablehlo.shift_left)
    __rshift__ = partialmethod(_with, stablehlo.shift_right_logical)


def _lower(context: mlir.LoweringRuleContext, *values: Any) -> list[Any]:
    k0, k1, x0, x1 = map(_Word, values)
    return [word.value for word in threefry((k0, k1), x0, x1)]


def _batch(words: Sequence[Array], axes: Sequence[int | None]) -> tuple[Any, tuple[int, int]]:
    [size] = {x.shape[axis] for x, axis in zip(words, axes, strict=True) if axis is not None}
    lead = lambda x, axis: jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
    return _threefry.bind(*map(lead, words, axes)), (0, 0)


mlir.register_lowering(_threefry, _lower, inline=False)  # a function of the program: the same for a shape
batching.primitive_batchers[_threefry] = _batch


def _counters(shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jnp.stack([jnp.zeros((), jnp.uint32), jnp.asarray(seed).astype(jnp.uint32)])


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    count = _counters(shape)
    return jnp.stack(cipher((key[0], key[1]), jnp.full_like(count, SPLIT), count), axis=-1)


def _fold_in(key: UInt32[Array, "2"], data: Array | int) -> UInt32[Array, "2"]:
    data = jnp.asarray(data).astype(jnp.uint32)
    return jnp.stack(cipher((key[0], key[1]), jnp.full_like(data, FOLD_IN), data))


def _random_bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    count = _counters(shape)
    high, low = cipher((key[0], key[1]), jnp.full_like(count, BITS), count)
    if bit_width == 64:
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    return low.astype(f"uint{bit_width}")


IMPL = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_13",
    tag="f3u",
)


def key(seed: int) -> Key[Array, ""]:
    """The key that everything in `baddr` starts from."""
    return jr.key(seed, impl=IMPL)


def running_sum(p: Float[Array, "*rows values"]) -> Float[Array, "*rows values"]:
    """`cumsum` over the last axis. Few values are written out: they fuse with what surrounds them. Many in a
    row, but not too many for rounding to add up, are added one by one on a CPU, in a loop: XLA's own sum of
    1024 is eight kernels."""
    if p.ndim == 1 and MANY < p.shape[0] <= LONGEST_SUM:
        return jax.lax.platform_dependent(p, cpu=_one_by_one, default=jnp.cumsum)
    if p.shape[-1] > UNROLLED:
        return jnp.cumsum(p, axis=-1)
    return jnp.stack(list(accumulate(p[..., i] for i in range(p.shape[-1]))), axis=-1)


def _one_by_one(p: Float[Array, " n"]) -> Float[Array, " n"]:
    add = lambda total, x: (total + x, total + x)
    return jax.lax.scan(add, jnp.zeros((), p.dtype), p)[1]


def _all_at_once(sampler: Callable[..., Array]) -> Callable[..., Array]:
    """A sampler of `jax.random` that is made of Gamma variables. With keys that are not its own JAX draws
    these one after the other, on a GPU too: a second for some thousands. So there our keys become JAX's."""

    def wide(key: Key[Array, ""], *parameters: Any) -> Array:
        if jr.key_impl(key) != IMPL:
            return sampler(key, *parameters)
        theirs = lambda key, *rest: sampler(jr.wrap_key_data(jr.key_data(key), impl="threefry2x32"), *rest)
        return jax.lax.platform_dependent(key, *parameters, cpu=sampler, default=theirs)

    return wide


beta, dirichlet, loggamma = map(_all_at_once, (jr.beta, jr.dirichlet, jr.loggamma))


def gamma(key: Key[Array, ""], alpha: Float[Array, "..."]) -> Float[Array, "..."]:
    """Gamma(alpha) variables; 0 where alpha is."""
    return jnp.where(alpha > 0, _all_at_once(jr.gamma)(key, jnp.where(alpha > 0, alpha, 1)), 0)


def uniform_pairs(key: Key[Array, ""], n: int) -> Float[Array, "2 n"]:
    """Two numbers in [0, 1) for each of n places, from both words of one cipher: as many keys are as random,
    and cost half of what two draws do."""
    words = jr.key_data(jr.split(key, n))[:, -2:].T
    return (words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def uniform_integers(key: Key[Array, ""], sizes: Int[np.ndarray, "..."]) -> Int[Array, "..."]:
    """Uniform in 0 ... size - 1, to 2^-23."""
    return (jr.uniform(key, sizes.shape) * sizes.astype(np.float32)).astype(jnp.int32)


def categorical(key: Key[Array, ""], weights: Float[Array, " n"]) -> Int[Array, ""]:
    """One index in proportion to `weights`, by inversion.

    An index of weight zero is never drawn: the uniform number lies in [0, 1), and where rounding
    carries it to the total the last index with weight is taken.
    """
    running = running_sum(weights)
    u = jr.uniform(key) * running[-1]
    if weights.shape[0] <= MANY:
        index = jnp.sum(running <= u, dtype=jnp.int32)
    else:
        index = jnp.searchsorted(running, u, side="right").astype(jnp.int32)
    return jnp.minimum(index, jnp.sum(running < running[-1], dtype=jnp.int32))


def inverted(weights: Float[Array, " n"], u: Float[Array, " m"]) -> Int[Array, " m"]:
    """Indices in proportion to `weights`, for u in [0, 1)."""
    running = running_sum(weights)
    last = jnp.sum(running < running[-1], dtype=jnp.int32)  # of positive weight
    return jnp.minimum(jnp.searchsorted(running, u * running[-1], side="right"), last).astype(jnp.int32)


def even_draws(
    key: Key[Array, ""], p: Float[Array, " values"], weights: Float[Array, " n"]
) -> Int[Array, " n"]:
    """A draw from p for each place, which together spread their weights as p says.

    Each alone is distributed as p. Places of about the same weight have draws that differ: in the order of
    weights these are by inversion of a van der Corput sequence, moved by one random number.
    """
    n = weights.shape[0]
    u = (jnp.asarray(_van_der_corput(n), float) + jr.uniform(key)) % 1
    return jnp.zeros((n,), jnp.int32).at[jnp.argsort(-weights)].set(inverted(p, u))


def _van_der_corput(n: int) -> Float[np.ndarray, " n"]:
    """0, 1/2, 1/4, 3/4, 1/8, ...: the digits of 0, 1, 2, ... in base two, mirrored at the point."""
    i, bits = np.arange(n), max(1, (n - 1).bit_length())
    return sum((i >> k & 1) / 2 ** (k + 1) for k in range(bits)) + np.zeros(n)
