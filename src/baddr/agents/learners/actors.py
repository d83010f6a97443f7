"""The actors of a learner: where they stand in their episodes, and a step of all of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.agents.learners.actor_critic import ActorCritic, Seen
from baddr.core.pomdp import POMDP, Scalar


class Actors(NamedTuple):
    """Where the B actors of a learner stand in their episodes."""

    s: PyTree
    seen: Seen
    t: Int[Array, "*seeds B"]
    return_: Float[Array, "*seeds B"]
    discounted_return: Float[Array, "*seeds B"]


class Episodes(NamedTuple):
    """The steps at which an episode `ended`, its number, and what it came to.

    A learner's episodes are numbered as they end; those that end at the same step, in the actors' order."""

    ended: Bool[Array, "*steps B"]
    episode: Int[Array, "*steps B"]
    return_: Float[Array, "*steps B"]
    discounted_return: Float[Array, "*steps B"]
    length: Int[Array, "*steps B"]


class Sample(NamedTuple):
    """n steps of the actors."""

    seen: Seen
    ancestors: PyTree
    logits: Float[Array, "n B A"]
    value: Float[Array, "n B"]
    a: Int[Array, "n B"]
    r: Float[Array, "n B"]
    episodes: Episodes


def step_actors(
    key: Key[Array, ""],
    network: ActorCritic,
    pomdp: POMDP,
    latent: PyTree,
    actors: Actors,
    greedy: bool = False,
) -> tuple[tuple[PyTree, Actors], Sample]:
    """One step of every actor, into a new episode where one ends."""
    latent, ancestors = network.step(key, latent, actors.seen)
    logits, value = network.heads(latent)
    key_a, key_world = jr.split(jr.fold_in(key, 1))
    a = jnp.argmax(logits, axis=-1) if greedy else jr.categorical(key_a, logits)
    a = a.astype(jnp.int32)
    next_actors, r, episodes = jax.vmap(lambda *one: _world(pomdp, *one))(
        jr.split(key_world, len(a)), actors, a
    )
    return (latent, next_actors), Sample(actors.seen, ancestors, logits, value, a, r, episodes)


def _world(
    pomdp: POMDP, key: Key[Array, ""], actor: Actors, a: Int[Array, ""]
) -> tuple[Actors, Scalar, Episodes]:
    """One actor's step. An episode that reaches the horizon has ended, as if its last state were terminal."""
    key_step, key_restart = jr.split(key)
    s_next, o = pomdp.step(key_step, actor.s, a)
    r = jnp.asarray(pomdp.reward(actor.s, a, s_next), jnp.float32)
    ended = pomdp.is_terminal(actor.s, a, s_next) | (actor.t + 1 >= pomdp.horizon)
    return_ = actor.return_ + r
    discounted = actor.discounted_return + jnp.float32(pomdp.discount) ** actor.t.astype(jnp.float32) * r
    episode = Episodes(ended, jnp.int32(0), return_, discounted, actor.t + 1)
    on = Actors(s_next, Seen(o, a, jnp.array(False)), actor.t + 1, return_, discounted)
    nothing = jnp.float32(0)
    s, o = restart(key_restart, pomdp)
    fresh = Actors(s, Seen(o, jnp.int32(0), jnp.array(True)), jnp.int32(0), nothing, nothing)
    return jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, on), r, episode


def restart(key: Key[Array, ""], pomdp: POMDP) -> tuple[PyTree, Int[Array, " observation_features"]]:
    key_s, key_o = jr.split(key)
    s = pomdp.initial_state(key_s)
    return s, pomdp.initial_observation(key_o, s)
