"""How well a structure explains the data in its counts."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from baddr.core.pomdp import Scalar


def log_evidence(prior: Float[Array, "*rows values"], counts: Float[Array, "*rows values"]) -> Scalar:
    """The Bayesian-Dirichlet score: log p(data) of Dirichlet rows whose counts grew from `prior` to `counts`.

    A row gives sum_v [lnG(n_v) - lnG(alpha_v)] - [lnG(n) - lnG(alpha)], where alpha and n are its totals.
    """
    of_entries = jnp.where(prior > 0, log_rising(jnp.where(prior > 0, prior, 1), counts - prior), 0)
    impossible = jnp.any((prior <= 0) & (counts > prior))
    alpha, n = jnp.sum(prior, axis=-1), jnp.sum(counts, axis=-1)
    score = jnp.sum(of_entries) - jnp.sum(log_rising(alpha, n - alpha))
    return jnp.where(impossible, -jnp.inf, score)


def log_rising(alpha: Float[Array, "*n"], k: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """lnG(alpha + k) - lnG(alpha) for alpha > 0.

    By the recursion up to alpha + 8 and Stirling's series there, with the large terms cancelled by hand: the
    difference of two lnG near 10,000 would leave three digits in single precision.
    """
    shift = jnp.float32(8)
    b = alpha + shift
    series = lambda x: 1 / (12 * x) - 1 / (360 * x**3)
    above = k * jnp.log(b + k) + (b - 0.5) * jnp.log1p(k / b) - k + series(b + k) - series(b)
    return above - sum((jnp.log1p(k / (alpha + i)) for i in range(8)), jnp.zeros_like(alpha))
