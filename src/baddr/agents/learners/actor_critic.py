"""An actor and a critic with a memory: DPFRL's particle filter, or a plain GRU."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.agents.learners.dpfrl import ParticleFilter
from baddr.agents.learners.encoders import GridEncoder, Linear, OneHotEncoder, make_encoder
from baddr.agents.learners.settings import DPFRL
from baddr.core.pomdp import POMDP


class Seen(NamedTuple):
    """What the network is shown before it acts."""

    o: Int[Array, "*batch B observation_features"]
    a: Int[Array, "*batch B"]  # the action before
    first: Bool[Array, "*batch B"]  # o is an episode's first observation: what came before is forgotten


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
