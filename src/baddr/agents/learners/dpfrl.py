"""Discriminative particle filter RL (Ma et al. 2020): a filter learned end to end, for an actor and a critic.

B environments, K particles of h numbers each. A step of the filter:

    z, r   = sigmoid(W [h_{t-1}; x])                   x: the encoded observation and the action before
    n      = mu + eps softplus(v),  (mu, v) = W_n [r h_{t-1}; x],  eps ~ N(0, I)
    h_t    = (1 - z) relu(norm(n)) + z h_{t-1}
    log w <- log softmax(log w + w_o [h_t; x])
    (h, w) <- soft resampling, always

and the belief is summarised by the particles' mean and by sum_k w_k relu(norm(M h_k)).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from baddr.agents.learners.encoders import Linear, kaiming
from baddr.agents.learners.settings import DPFRL

VARIANCE_FLOOR = 1e-5  # of the batch norm
ParticleState = Float[Array, "B K h"]
LogWeights = Float[Array, "B K"]


class SlotNorm(eqx.Module):
    """Batch norm whose channels are the particle slots: slot k's statistics are over the B environments and D
    numbers. Batch statistics always, when acting too: a network's output depends on the whole batch."""

    scale: Float[Array, " K"]
    shift: Float[Array, " K"]

    def __init__(self, num_particles: int):
        self.scale, self.shift = jnp.ones((num_particles,)), jnp.zeros((num_particles,))

    def __call__(self, x: Float[Array, "B K D"]) -> Float[Array, "B ..."]:
        centred = x - jnp.mean(x, axis=(0, 2), keepdims=True)
        variance = jnp.mean(centred**2, axis=(0, 2), keepdims=True)
        normed = centred * jax.lax.rsqrt(variance + VARIANCE_FLOOR)
        return normed * self.scale[None, :, None] + self.shift[None, :, None]


def joint(linear: Linear, h: ParticleState, x: Float[Array, "B X"]) -> Float[Array, "B ..."]:
    """W [h; x] + b of every particle. The x part is the same for all of them, and computed once."""
    width = h.shape[-1]
    shared = x @ linear.weight[width:]
    shared = shared + jnp.broadcast_to(linear.bias, shared.shape)
    return h @ linear.weight[:width] + shared[:, None]


class PFGRU(eqx.Module):
    """A GRU whose candidate is drawn, by the reparametrisation trick."""

    gates: Linear  # z and r
    candidate: Linear  # mu and v
    norm: SlotNorm

    def __init__(self, key: Key[Array, ""], inputs: int, hidden: int, num_particles: int):
        key_gates, key_candidate = jr.split(key)
        self.gates = Linear(key_gates, hidden + inputs, 2 * hidden)
        self.candidate = Linear(key_candidate, hidden + inputs, 2 * hidden)
        self.norm = SlotNorm(num_particles)

    def __call__(self, noise: ParticleState, h: ParticleState, x: Float[Array, "B X"]) -> ParticleState:
        z, r = jnp.split(jax.nn.sigmoid(joint(self.gates, h, x)), 2, axis=-1)
        mu, v = jnp.split(joint(self.candidate, r * h, x), 2, axis=-1)
        n = jax.nn.relu(self.norm(mu + noise * jax.nn.softplus(v)))
        return (1 - z) * n + z * h


def proposal(log_w: LogWeights, alpha: float) -> Float[Array, "B K"]:
    """log q of soft resampling, q = alpha p + (1 - alpha) / K."""
    return jnp.log(alpha * jnp.exp(log_w) + (1 - alpha) / log_w.shape[-1])


def sample_ancestors(key: Key[Array, ""], log_w: LogWeights, alpha: float) -> Int[Array, "B K"]:
    """K indices with replacement from q, by inversion; they carry no gradient."""
    running = jnp.cumsum(jnp.exp(proposal(jax.lax.stop_gradient(log_w), alpha)), axis=-1)
    u = jr.uniform(key, log_w.shape) * running[:, -1:]
    index = jnp.sum(running[:, None, :] <= u[:, :, None], axis=-1, dtype=jnp.int32)
    return jnp.minimum(index, log_w.shape[-1] - 1)


def soft_resample(
    h: ParticleState, log_w: LogWeights, ancestors: Int[Array, "B K"], alpha: float
) -> tuple[ParticleState, LogWeights]:
    """The particles at `ancestors`, with normalised weights p / q.

    The gradient flows through the gathered particles and through both p and q. The gather is a product with
    0 and 1 (a choice, for the weights: they may be infinite): its gradient is a sum in a fixed order, where
    the gradient of indexing would add up in any order on a GPU.
    """
    chosen = jax.nn.one_hot(ancestors, log_w.shape[-1])
    exact = jax.lax.Precision.HIGHEST
    h = jnp.einsum("bnk,bkh->bnh", chosen, h, precision=exact)
    log_ratio = log_w - proposal(log_w, alpha)
    log_ratio = jnp.sum(jnp.where(chosen > 0, log_ratio[:, None, :], 0.0), axis=-1)
    return h, jax.nn.log_softmax(log_ratio)


class Latent(NamedTuple):
    """The particles. Zeros before an episode's first step: the first weights are then uniform."""

    h: ParticleState
    log_w: LogWeights


class ParticleFilter(eqx.Module):
    """The learned filter and its moment-generating features."""

    cell: PFGRU
    likelihood: Linear
    moments: Float[Array, "h F"]  # M: no bias
    moments_norm: SlotNorm
    summary: Linear
    num_particles: int = eqx.field(static=True)
    alpha: float = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], inputs: int, settings: DPFRL):
        keys = jr.split(key, 4)
        hidden, features = settings.hidden, settings.features
        self.num_particles, self.alpha = settings.num_particles, settings.resampling
        self.cell = PFGRU(keys[0], inputs, hidden, self.num_particles)
        self.likelihood = Linear(keys[1], hidden + inputs, 1)
        self.moments = kaiming(keys[2], (hidden, features), hidden)
        self.moments_norm = SlotNorm(self.num_particles)
        self.summary = Linear(keys[3], hidden + features, hidden)

    def start(self, num_actors: int) -> Latent:
        K, width = self.num_particles, self.moments.shape[0]
        return Latent(jnp.zeros((num_actors, K, width)), jnp.zeros((num_actors, K)))

    def step(
        self,
        key: Key[Array, ""],
        latent: Latent,
        x: Float[Array, "B X"],
        ancestors: Int[Array, "B K"] | None = None,
    ) -> tuple[Latent, Int[Array, "B K"]]:
        """The next particles, and whose copies they are: drawn, or those of an earlier step done again."""
        key_noise, key_ancestors = jr.split(key)
        h = self.cell(jr.normal(key_noise, latent.h.shape), latent.h, x)
        log_w = jax.nn.log_softmax(latent.log_w + joint(self.likelihood, h, x)[..., 0])
        if ancestors is None:
            ancestors = sample_ancestors(key_ancestors, log_w, self.alpha)
        return Latent(*soft_resample(h, log_w, ancestors, self.alpha)), ancestors

    def belief(self, latent: Latent) -> Float[Array, "B h"]:
        w = jnp.exp(latent.log_w)[:, None, :]
        mean = (w @ latent.h)[:, 0]
        m = (w @ jax.nn.relu(self.moments_norm(latent.h @ self.moments)))[:, 0]
        return jax.nn.relu(self.summary(jnp.concatenate([mean, m], axis=-1)))
