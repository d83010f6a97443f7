"""Random numbers: threefry keys that compile into straight-line code, and the draws built on them.

JAX's own threefry runs as a loop of its own on the CPU, which costs more than the simulated step
around it. This is the same cipher (2x32), unrolled, so that a draw fuses with the code that uses it, and
with the 13 rounds that its authors found enough to pass every test of BigCrush, where JAX runs 20. Its
keys are ordinary JAX keys: every function of `jax.random` takes them.
"""

import math
from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Float, Int, Key, UInt32

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
UNROLLED = 8  # values of a running sum
PARITY = np.uint32(0x1BD11BDA)
SPLIT, FOLD_IN, BITS = (np.uint32(i) for i in range(3))  # one domain of counters per use


def threefry(key: tuple[Array, Array], x0: Array, x1: Array, rounds: int = ROUNDS) -> tuple[Array, Array]:
    """Threefry-2x32 (Salmon et al. 2011)."""
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


def _counters(shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)


def _seed(seed: Array) -> UInt32[Array, "2"]:
    return jnp.stack([jnp.zeros((), jnp.uint32), jnp.asarray(seed).astype(jnp.uint32)])


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    count = _counters(shape)
    return jnp.stack(threefry((key[0], key[1]), jnp.full_like(count, SPLIT), count), axis=-1)


def _fold_in(key: UInt32[Array, "2"], data: Array | int) -> UInt32[Array, "2"]:
    data = jnp.asarray(data).astype(jnp.uint32)
    return jnp.stack(threefry((key[0], key[1]), jnp.full_like(data, FOLD_IN), data))


def _random_bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    count = _counters(shape)
    high, low = threefry((key[0], key[1]), jnp.full_like(count, BITS), count)
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
    """`cumsum` over the last axis. Few values are written out: they fuse with what surrounds them."""
    if p.shape[-1] > UNROLLED:
        return jnp.cumsum(p, axis=-1)
    return jnp.stack(list(accumulate(p[..., i] for i in range(p.shape[-1]))), axis=-1)


def categorical(key: Key[Array, ""], weights: Float[Array, " n"]) -> Int[Array, ""]:
    """One index in proportion to `weights`, by inversion.

    An index of weight zero is never drawn: the uniform number lies in [0, 1), and where rounding
    carries it to the total the last index with weight is taken.
    """
    running = running_sum(weights)
    u = jr.uniform(key) * running[-1]
    if weights.shape[0] <= 64:
        index = jnp.sum(running <= u, dtype=jnp.int32)
        last = jnp.sum(running < running[-1], dtype=jnp.int32)
    else:
        index = jnp.searchsorted(running, u, side="right").astype(jnp.int32)
        last = jnp.searchsorted(running, running[-1], side="left").astype(jnp.int32)
    return jnp.minimum(index, last)
