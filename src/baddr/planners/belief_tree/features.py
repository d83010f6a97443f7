"""Features of a state that its value may be linear in, where there are too many states to list."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from baddr.core.pomdp import POMDP

MOST_FEATURES = 1024
NUMBERS = 1 << 23  # actions x features^2, at most


class Features(eqx.Module):
    """1, [s_i = x], and its products with all s_j, scaled; where those are too many, the s_j themselves and
    random functions of them (Rahimi and Recht, 2007)."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    most: int = eqx.field(static=True)

    def __call__(self, s: Int[Array, "m state_features"]) -> Float[Array, "m features"]:
        one, x = jnp.ones((s.shape[0], 1)), self._scaled(s)
        if self.are_products:
            is_value = self._is_value(s)
            products = (is_value[:, :, None] * x[:, None]).reshape(s.shape[0], -1)
            return jnp.concatenate([one, is_value, products], axis=1)
        draw = np.random.default_rng(0)
        W = draw.normal(size=(len(self.sizes), self.most // 2)) / math.sqrt(len(self.sizes))
        b = draw.uniform(-np.pi, np.pi, size=self.most // 2)
        random = jnp.cos(2 * x @ jnp.asarray(W, x.dtype) + jnp.asarray(b, x.dtype)[None])
        return jnp.concatenate([one, x, random], axis=1)[:, : self.most]

    @property
    def are_products(self) -> bool:
        return 1 + sum(self.sizes) * (1 + len(self.sizes)) <= self.most

    @property
    def number(self) -> int:
        n = len(self.sizes)
        return 1 + sum(self.sizes) * (1 + n) if self.are_products else min(self.most, 1 + n + self.most // 2)

    def _scaled(self, s: Int[Array, "m state_features"]) -> Float[Array, "m state_features"]:
        largest = np.maximum(np.asarray(self.sizes) - 1, 1)
        return 2 * s.astype(float) / jnp.asarray(largest, float)[None] - 1

    def _is_value(self, s: Int[Array, "m state_features"]) -> Float[Array, "m values"]:
        of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        values = np.concatenate([np.arange(n) for n in self.sizes]).astype(np.int32)
        return (s[:, of] == values[None]).astype(float)


def features_of(pomdp: POMDP) -> Features:
    """As many as can be fitted for this number of actions."""
    return Features(pomdp.state_sizes, min(MOST_FEATURES, math.isqrt(NUMBERS // pomdp.num_actions)))


def values_at(
    weights: Float[Array, "k features_and_range"], phi: Float[Array, "m features"]
) -> Float[Array, "k m"]:
    """The regression's, no less and no more than it has seen."""
    return jnp.clip(weights[:, :-2] @ phi.T, weights[:, -2:-1], weights[:, -1:])
