"""The shared networks of many particles: a step or an update of all of them is a few matrix products."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.models import ByDynamics, Indices, draw_each
from baddr.core.particles import tree_at_index
from baddr.core.pomdp import State, Transition
from baddr.core.posterior import Theta
from baddr.fast.loops import in_blocks
from baddr.fast.models import models_of
from baddr.fast.tuning import LATENT_AT_ONCE
from baddr.posteriors.dropout import encode, per_feature
from baddr.posteriors.latent import (
    Epsilon,
    Gaussian,
    Latent,
    LatentDynamics,
    Prediction,
    eliminated,
    scale_of,
)

Steps = Float[Array, "n d"]
Precisions = Float[Array, "n d d"]


@models_of.register(Latent)
def _(posterior: Latent) -> "LatentModels":
    return LatentModels(posterior)


class LatentModels(ByDynamics):
    """D and U of particles that share their networks."""

    posterior: Latent

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return in_blocks(jax.vmap(function), LATENT_AT_ONCE)

    def dynamics(self, thetas: Gaussian, i: Int[Array, ""], epsilon: Epsilon) -> LatentDynamics:
        # Of theta nothing is read where z was drawn.
        return self.posterior.dynamics(tree_at_index(thetas, i), epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Gaussian, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Gaussian:
        """U of the particles i, which is not random."""

        def block(i: Indices, s: Int[Array, "n _"], s_next: Int[Array, "n _"]) -> Gaussian:
            theta = tree_at_index(thetas, i)
            after = self._update(theta, Transition(s, steps.a, s_next, steps.o))
            return jax.tree.map(lambda x, y: jnp.where(learn, x, y), after, theta)

        return in_blocks(block, LATENT_AT_ONCE)(i, steps.s, steps.s_next)

    def _update(self, theta: Gaussian, steps: Transition) -> Gaussian:
        g, F = jnp.zeros_like(theta.mean), jnp.zeros_like(theta.factor)

        def predictions(s: State, s_next: State) -> list[Prediction]:
            return list(self.posterior.predictions(Transition(s, steps.a, s_next, steps.o)))

        nets = [prediction.net for prediction in predictions(steps.s[0], steps.s_next[0])]
        of_all = lambda s, s_next: [(x, y) for _, x, _, y in predictions(s, s_next)]
        sizes = [prediction.sizes for prediction in predictions(steps.s[0], steps.s_next[0])]
        for net, size, (x, y) in zip(nets, sizes, jax.vmap(of_all)(steps.s, steps.s_next), strict=True):
            dg, dF = scores(Prediction(net, x, size, y), theta)
            g, F = g + dg, F + dF
        return all_conditioned(theta, g, F)


def scores(prediction: Prediction, theta: Gaussian) -> tuple[Steps, Precisions]:
    """`posteriors.latent.score` of many particles, whose x and y have an axis for them. Features stand one
    after the other, as the networks have them: sums over a feature's values are a product with `members`.
    J is not centred: what that would take off g and F is taken off these."""
    net, x, sizes, y = prediction
    members = np.repeat(np.eye(len(sizes), dtype=np.float32), sizes, axis=0)
    h = jax.vmap(net.hidden)(x, theta.mean)
    logits = jax.vmap(net.outputs)(h, theta.mean)
    J = jnp.swapaxes(theta.factor, 1, 2) @ jax.vmap(net.jacobian)(h)
    p = softmax(logits, sizes)
    mean = (p[:, None] * J) @ members
    spread = (p * jnp.sum(J**2, axis=1)) @ members - jnp.sum(mean**2, axis=1)
    k = scale_of(jnp.maximum(spread, 0), (p * (1 - p)) @ members)
    k_each = k @ members.T
    p = softmax(k_each * logits, sizes)
    mean = (p[:, None] * J) @ members
    outcome = jax.vmap(lambda y: encode(y, sizes, ("onehot",) * len(sizes)))(y)
    g = jnp.sum(J * outcome[:, None], axis=2) - jnp.sum(mean, axis=2)
    left = jnp.concatenate([J * (k_each * p)[:, None], -mean * k[:, None]], axis=2)
    return g, left @ jnp.swapaxes(jnp.concatenate([J, mean], axis=2), 1, 2)


def softmax(logits: Float[Array, "n outputs"], sizes: tuple[int, ...]) -> Float[Array, "n outputs"]:
    """Of each feature's values."""
    rows = jax.nn.softmax(jax.vmap(lambda y: per_feature(y, sizes))(logits))
    flat = np.flatnonzero(np.arange(max(sizes))[None] < np.array(sizes)[:, None])
    return rows.reshape(len(logits), -1)[:, flat]


def all_conditioned(theta: Gaussian, g: Steps, F: Precisions) -> Gaussian:
    """`posteriors.latent.conditioned` of many particles, which stand side by side in the last axis."""
    d = g.shape[1]
    I = jnp.eye(d, dtype=F.dtype)[None]
    rows = jnp.concatenate([I + F, theta.factor, g[:, None]], axis=1)
    left = eliminated(jnp.transpose(rows, (1, 2, 0)))
    factor, g = left[:d], left[d]
    mean = theta.mean + jnp.sum(factor * g[None], axis=1).T
    return Gaussian(mean, jnp.transpose(factor, (2, 0, 1)))
