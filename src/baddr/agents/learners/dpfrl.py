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
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.agents.learners.encoders import GridEncoder, Linear, OneHotEncoder, kaiming, make_encoder
from baddr.agents.learners.settings import DPFRL
from baddr.core.pomdp import POMDP

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


class GRU(eqx.Module):
    """A plain recurrent memory in the particle filter's place: no noise, no norm, no particles."""

    gates: Linear
    candidate: Linear

    def __init__(self, key: Key[Array, ""], inputs: int, settings: DPFRL):
        key_gates, key_candidate = jr.split(key)
        self.gates = Linear(key_gates, settings.hidden + inputs, 2 * settings.hidden)
        self.candidate = Linear(key_candidate, settings.hidden + inputs, settings.hidden)

    def start(self, num_actors: int) -> Float[Array, "B h"]:
        return jnp.zeros((num_actors, self.candidate.bias.shape[0]))

    def step(
        self,
        key: Key[Array, ""],
        latent: Float[Array, "B h"],
        x: Float[Array, "B X"],
        ancestors: tuple[()] | None = None,
    ) -> tuple[Float[Array, "B h"], tuple[()]]:
        z, r = jnp.split(jax.nn.sigmoid(self.gates(jnp.concatenate([latent, x], axis=-1))), 2, axis=-1)
        n = jnp.tanh(self.candidate(jnp.concatenate([r * latent, x], axis=-1)))
        return (1 - z) * n + z * latent, ()

    def belief(self, latent: Float[Array, "B h"]) -> Float[Array, "B h"]:
        return latent


class Seen(NamedTuple):
    """What the network is shown before it acts."""

    o: Int[Array, "*batch B observation_features"]
    a: Int[Array, "*batch B"]  # the action before
    first: Bool[Array, "*batch B"]  # o is an episode's first observation: what came before is forgotten


class ActorCritic(eqx.Module):
    """Encoders, memory (the particle filter, or a GRU), and two linear heads on the belief's summary."""

    encoder: OneHotEncoder | GridEncoder
    action_encoder: Linear
    memory: ParticleFilter | GRU
    actor: Linear
    critic: Linear
    start_action: str = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], pomdp: POMDP, settings: DPFRL, particles: bool = True):
        keys = jr.split(key, 5)
        sizes, num_actions = pomdp.observation_sizes, pomdp.num_actions
        self.encoder = make_encoder(keys[0], sizes, settings)
        self.action_encoder = Linear(keys[1], num_actions, settings.action_width)
        o = jax.ShapeDtypeStruct((1, len(sizes)), jnp.int32)
        inputs = eqx.filter_eval_shape(self.encoder, o).shape[-1] + settings.action_width
        self.memory = (ParticleFilter if particles else GRU)(keys[2], inputs, settings)
        self.actor = Linear(keys[3], settings.hidden, num_actions)
        self.critic = Linear(keys[4], settings.hidden, 1)
        self.start_action = settings.start_action

    def start(self, num_actors: int) -> PyTree:
        return self.memory.start(num_actors)

    def step(
        self, key: Key[Array, ""], latent: PyTree, seen: Seen, ancestors: PyTree = None
    ) -> tuple[PyTree, PyTree]:
        """The latent state after an observation, and the resampling's indices."""
        latent = jax.tree.map(lambda x: jnp.where(_like(seen.first, x), 0.0, x), latent)
        return self.memory.step(key, latent, self.inputs(seen), ancestors)

    def inputs(self, seen: Seen) -> Float[Array, "B X"]:
        """x = [enc(o); enc(a)]."""
        a = jax.nn.one_hot(jnp.where(seen.first, 0, seen.a), self.action_encoder.weight.shape[0])
        if self.start_action == "none":
            a = jnp.where(seen.first[:, None], 0.0, a)
        return jnp.concatenate([self.encoder(seen.o), jax.nn.relu(self.action_encoder(a))], axis=-1)

    def heads(self, latent: PyTree) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
        """The policy's logits and the value V of the belief."""
        belief = self.memory.belief(latent)
        return self.actor(belief), self.critic(belief)[:, 0]


def _like(condition: Bool[Array, " B"], x: Array) -> Bool[Array, "B ..."]:
    return condition.reshape(condition.shape + (1,) * (x.ndim - 1))
