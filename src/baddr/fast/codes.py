"""Where each simulator lies in z: its code q_m(z) = N(mean_m, diag sd_m^2), trained together with `Latent`.

What JAX can look into is encoded: a small network reads the code off the arrays in which simulators differ
(speeds, a policy, tables). So as many simulators as one likes train the same network, and those that are rare
are met often enough. Of a black box only samples can be had: there each simulator has a code of its own, and
1024 of them are as many as training comes back to.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr import prng
from baddr.core.pomdp import Dynamics
from baddr.posteriors.settings import LatentSettings

SPEED = 10.0  # of codes of their own against the networks: a step moves few of them
EACH = 32  # samples of a simulator in a step, where codes are their own
EACH_READ = 8  # and where they are read
MANY, FEW = 16384, 1024  # simulators: to be read, and black boxes
MOST_BYTES = 1 << 28  # of all simulators
MOST_NUMBERS = 256  # of a simulator that are read: more are mixed at random
HIDDEN = 64
LEAST = 1e-4  # log odds of probabilities are cut off there
FIRST_LOG_SD = -1.0

Code = tuple[Float[Array, "n d"], Float[Array, "n d"]]  # mean_m and log sd_m


class OwnCodes(NamedTuple):
    """A code for each simulator; means are in units of `SPEED`."""

    mean: Float[Array, "M d"]
    log_sd: Float[Array, "M d"]

    def of(self, chosen: Int[Array, " n"], looks: Float[Array, "M numbers"] | None) -> Code:
        return SPEED * self.mean[chosen], self.log_sd[chosen]


class Encoder(NamedTuple):
    """A network that reads codes off what simulators look like. A linear map adds to the mean."""

    hidden: Float[Array, "numbers_and_1 hidden"]
    outputs: Float[Array, "hidden_and_1 codes"]
    linear: Float[Array, "numbers d"]

    def of(self, chosen: Int[Array, " n"], looks: Float[Array, "M numbers"] | None) -> Code:
        assert looks is not None
        x = looks[chosen]
        h = jnp.tanh(x @ self.hidden[:-1] + self.hidden[-1:])
        mean, log_sd = jnp.split(h @ self.outputs[:-1] + self.outputs[-1:], 2, axis=1)
        return mean + x @ self.linear, log_sd + FIRST_LOG_SD


Codes = OwnCodes | Encoder


def codes(key: Key[Array, ""], number: int, looks: Float[Array, "M numbers"] | None, d: int) -> Codes:
    """Untrained."""
    if looks is None:
        z = 0.1 / SPEED * jr.normal(key, (number, d))
        return OwnCodes(z, jnp.full_like(z, FIRST_LOG_SD))
    n, keys = looks.shape[1], jr.split(key, 3)
    of_size = lambda key, n, m, scale: scale / math.sqrt(n) * jr.normal(key, (n, m))
    hidden = jnp.concatenate([of_size(keys[0], n, HIDDEN, 1.0), jnp.zeros((1, HIDDEN))])
    outputs = jnp.concatenate([of_size(keys[1], HIDDEN, 2 * d, 0.1), jnp.zeros((1, 2 * d))])
    return Encoder(hidden, outputs, of_size(keys[2], n, d, 0.1))


def num_simulators(settings: LatentSettings, sample_simulator: Any) -> int:
    """As many as were asked for, or as many as serve and fit."""
    if settings.simulators:
        return settings.simulators
    made = eqx.filter_eval_shape(sample_simulator, jax.eval_shape(lambda: prng.key(0)))
    one = [x for x in jax.tree.leaves(made) if isinstance(x, jax.ShapeDtypeStruct)]
    if any(_is_number(x, x.shape) for x in one):
        return FEW
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in one)
    return max(FEW, min(MANY, MOST_BYTES // max(size, 1)))


def looks_of(M: Dynamics) -> Float[Array, "M numbers"] | None:
    """The numbers in which simulators differ, standardised. None where nothing can be read: black boxes."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(eqx.filter(M, eqx.is_array)) if not _is_key(x)]
    differing = [x for x in leaves if np.any(x != x[:1])]
    if not differing or any(_is_number(x, x.shape[1:]) for x in differing):
        return None
    x = np.concatenate([x.reshape(len(x), -1) for x in differing], axis=1).astype(np.float64)
    x = np.nan_to_num(x, posinf=0.0, neginf=0.0)
    x = x[:, np.any(x != x[:1], axis=0)]
    if np.all((x >= 0) & (x <= 1)):
        p = np.clip(x, LEAST, 1 - LEAST)
        x = np.concatenate([x, np.log(p) - np.log1p(-p)], axis=1)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
    if x.shape[1] > MOST_NUMBERS:
        mixed = np.random.default_rng(0).normal(size=(x.shape[1], MOST_NUMBERS))
        x = x @ mixed / math.sqrt(x.shape[1])
    return jnp.asarray(x, jnp.float32)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_number(x: Any, shape: tuple[int, ...]) -> bool:
    """It says which black box a simulator is, and nothing about what that one does."""
    return shape == () and jnp.issubdtype(x.dtype, jnp.integer)
