"""Advantage actor-critic with a recurrent network (Mnih et al. 2016, synchronous), compiled as one program.

An update lets B actors take n steps, forms n-step targets and takes one gradient step. Gradients reach back
beyond the sample, through windows that grow: after 1, 2, ... m samples the window is closed and the latent
state at its end is taken as given. A window is replayed from its start with the current weights, and with the
noise and the resampling's indices of the time; its last sample is the one in which the actors act. The way
back goes sample by sample too: what a sample needs is computed again from the latent state before it, which
costs less than keeping it would.

A learner is a pytree and `advance` a pure function of it: a checkpoint is its leaves. Seeds are batched.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.agents.learners.actor_critic import ActorCritic, Seen
from baddr.agents.learners.actors import Actors, Episodes, Sample, restart, step_actors
from baddr.agents.learners.loss import a2c_loss, descend, n_step_targets, optimizer
from baddr.agents.learners.settings import DPFRL
from baddr.core.pomdp import POMDP, Scalar
from baddr.fast.loops import one_by_one


class A2C(eqx.Module):
    """What a learner learns on, and with: a particle filter (DPFRL), or a plain GRU."""

    pomdp: POMDP
    settings: DPFRL = eqx.field(static=True)
    particles: bool = eqx.field(static=True, default=True)


class Window(NamedTuple):
    """The samples since back-propagation's start, up to m - 1 of them, and the latent state before them."""

    latent: PyTree
    seen: Seen  # [m - 1, n, B, ...]
    ancestors: PyTree  # [m - 1, n, B, K]


class Learner(NamedTuple):
    """All that the next update needs. All seeds of a batch have done the same number of updates."""

    key: Key[Array, "*seeds"]
    updates: Int[Array, "*seeds"]
    episode: Int[Array, "*seeds"]  # episodes ended so far, over all actors
    failed: Bool[Array, "*seeds"]  # the weights hold a NaN or an infinity: its episodes no longer count
    network: ActorCritic
    optimizer: PyTree  # its state: RMSProp's mean squares
    actors: Actors
    window: Window
    learning_rate: Float[Array, "*seeds"]


@eqx.filter_jit
def start(keys: Key[Array, " seeds"], agent: A2C) -> Learner:
    """Learners before their first update. What a seed does depends on its key alone.

    They learn at the settings' rate; `learner._replace(learning_rate=...)` gives each its own."""
    return jax.vmap(lambda key: _start(key, agent))(keys)


def _start(key: Key[Array, ""], agent: A2C) -> Learner:
    settings = agent.settings
    key_network, key_actors, key_updates = jr.split(key, 3)
    network = ActorCritic(key_network, agent.pomdp, settings, agent.particles)
    s, o = jax.vmap(lambda key: restart(key, agent.pomdp))(jr.split(key_actors, settings.actors))
    zeros = jnp.zeros((settings.actors,))
    count = jnp.zeros((settings.actors,), jnp.int32)
    actors = Actors(s, Seen(o, count, jnp.ones_like(count, bool)), count, zeros, zeros)
    latent = network.start(settings.actors)
    _, ancestors = jax.eval_shape(network.step, key, latent, actors.seen)
    kept = lambda x: jnp.zeros((settings.back_segments - 1, settings.sample_length, *x.shape), x.dtype)
    window = Window(latent, jax.tree.map(kept, actors.seen), jax.tree.map(kept, ancestors))
    state = optimizer(settings).init(network)  # type: ignore[arg-type]
    zero, lr = jnp.int32(0), jnp.float32(settings.learning_rate)
    return Learner(key_updates, zero, zero, jnp.array(False), network, state, actors, window, lr)


@eqx.filter_jit
def advance(learner: Learner, agent: A2C, num_updates: int) -> tuple[Learner, Episodes]:
    """`num_updates` updates of every seed; Episodes are [seeds, updates, n, B]."""
    done = learner.updates[0]  # outside of the batch, so that the seeds can share the choice of a window

    def one_seed(learner: Learner) -> tuple[Learner, Episodes]:
        update = lambda learner, i: _update(learner, agent, (done + i) % agent.settings.back_segments)
        return jax.lax.scan(update, learner, jnp.arange(num_updates, dtype=jnp.int32))

    return one_by_one(one_seed)(learner)


def _update(learner: Learner, agent: A2C, position: Int[Array, ""]) -> tuple[Learner, Episodes]:
    """One sample and one gradient step, `position` samples after the window's start."""
    settings = agent.settings
    gradient, (sample, actors, latent) = _gradient(learner, agent, position)
    network, state = descend(learner.network, learner.optimizer, gradient, learner.learning_rate, settings)

    last = position == settings.back_segments - 1
    store = lambda kept, new: kept if len(kept) == 0 else kept.at[position].set(new, mode="drop")
    window = Window(
        jax.tree.map(lambda closed, old: jnp.where(last, closed, old), latent, learner.window.latent),
        *jax.tree.map(store, learner.window[1:], (sample.seen, sample.ancestors)),
    )
    failed = learner.failed | ~_is_finite(network)
    episodes = sample.episodes._replace(ended=sample.episodes.ended & ~failed)
    episodes = _numbered(episodes, learner.episode)
    episode = learner.episode + jnp.sum(episodes.ended, dtype=jnp.int32)
    learner = learner._replace(updates=learner.updates + 1, episode=episode, failed=failed, network=network)
    return learner._replace(optimizer=state, actors=actors, window=window), episodes


def _is_finite(network: ActorCritic) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(network)]))


def _numbered(episodes: Episodes, first: Int[Array, ""]) -> Episodes:
    """Episodes with their numbers, from `first` on."""
    before = jnp.cumsum(episodes.ended.ravel(), dtype=jnp.int32) - 1
    return episodes._replace(episode=first + before.reshape(episodes.ended.shape))


def _gradient(
    learner: Learner, agent: A2C, position: Int[Array, ""]
) -> tuple[ActorCritic, tuple[Sample, Actors, PyTree]]:
    """The gradient of a new sample's loss through the whole window, the sample, and where it ended."""
    network, latent = learner.network, learner.window.latent
    before = jax.tree.map(lambda x: jnp.zeros((agent.settings.back_segments - 1, *x.shape)), latent)

    def replay(j: Int[Array, ""], carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        latent, before = carry
        keep = lambda kept, x: jax.lax.dynamic_update_index_in_dim(kept, x, j, 0)
        before = jax.tree.map(keep, before, latent)
        return _again(network, latent, learner, position, j), before

    latent, before = jax.lax.fori_loop(0, position, replay, (latent, before))
    gradient = jax.grad(_loss, argnums=(0, 1), has_aux=True)
    (of_network, of_latent), result = gradient(network, latent, learner, agent)

    def back(i: Int[Array, ""], carry: tuple[ActorCritic, PyTree]) -> tuple[ActorCritic, PyTree]:
        of_network, of_latent = carry
        j = position - 1 - i
        sample = lambda network, latent: _again(network, latent, learner, position, j)
        _, pull_back = jax.vjp(sample, network, jax.tree.map(lambda kept: kept[j], before))
        more, of_latent = pull_back(of_latent)
        return jax.tree.map(jnp.add, of_network, more), of_latent

    return jax.lax.fori_loop(0, position, back, (of_network, of_latent))[0], result


def _again(
    network: ActorCritic, latent: PyTree, learner: Learner, position: Int[Array, ""], j: Int[Array, ""]
) -> PyTree:
    """The latent state after the window's sample j, from the one before it."""
    n = learner.window.seen.a.shape[1]
    update = learner.updates - position + j
    keys = jax.vmap(lambda i: _step_key(learner, update, i, n))(jnp.arange(n, dtype=jnp.int32))
    seen, ancestors = jax.tree.map(lambda kept: kept[j], learner.window[1:])
    step = lambda latent, inputs: (network.step(inputs[0], latent, *inputs[1:])[0], None)
    return jax.lax.scan(step, latent, (keys, seen, ancestors))[0]


def _loss(
    network: ActorCritic, latent: PyTree, learner: Learner, agent: A2C
) -> tuple[Scalar, tuple[Sample, Actors, PyTree]]:
    """The A2C loss of a new sample that starts with `latent`, and where it ended."""
    settings, n = agent.settings, agent.settings.sample_length

    def act(carry: tuple[PyTree, Actors], i: Int[Array, ""]) -> tuple[tuple[PyTree, Actors], Any]:
        return step_actors(_step_key(learner, learner.updates, i, n), network, agent.pomdp, *carry)

    (latent, actors), sample = jax.lax.scan(act, (latent, learner.actors), jnp.arange(n, dtype=jnp.int32))
    ahead, _ = network.step(_step_key(learner, learner.updates, jnp.int32(n), n), latent, actors.seen)
    bootstrap = jax.lax.stop_gradient(network.heads(ahead)[1])
    r = settings.reward_scale * sample.r
    R = n_step_targets(r, sample.episodes.ended, bootstrap, agent.pomdp.discount)
    return a2c_loss(sample.logits, sample.value, sample.a, R, settings), (sample, actors, latent)


def _step_key(learner: Learner, update: Int[Array, ""], i: Int[Array, ""], n: int) -> Key[Array, ""]:
    """Of the noise in step i of an update; i = n looks one step ahead, for the bootstrap."""
    return jr.fold_in(learner.key, update * (n + 1) + i)


@eqx.filter_jit
def evaluate(
    keys: Key[Array, " seeds"], learner: Learner, agent: A2C, episodes_per_actor: int, greedy: bool = False
) -> Episodes:
    """Episodes of the policy as it is, sampled or greedy; nothing is learned. [seeds, steps, B].

    The actors go on from where they stand, so that they are at different steps as in training (the network's
    norms depend on all of them). Counted are each actor's first episodes that start `horizon` steps later or
    more: a choice that does not depend on how long they are. `ended` marks exactly that many.
    """
    horizon = agent.pomdp.horizon
    num_steps = (episodes_per_actor + 2) * horizon
    position = learner.updates[0] % agent.settings.back_segments

    def one_seed(key: Key[Array, ""], learner: Learner) -> Episodes:
        def act(carry: Any, i: Int[Array, ""]) -> tuple[Any, Episodes]:
            latent, actors, counted = carry
            (latent, next_actors), sample = step_actors(
                jr.fold_in(key, i), learner.network, agent.pomdp, latent, actors, greedy
            )
            counts = sample.episodes.ended & (i - actors.t >= horizon) & (counted < episodes_per_actor)
            counted = counted + counts.astype(jnp.int32)
            return (latent, next_actors, counted), sample.episodes._replace(ended=counts)

        again = lambda j, latent: _again(learner.network, latent, learner, position, j)
        latent = jax.lax.fori_loop(0, position, again, learner.window.latent)
        carry = latent, learner.actors, jnp.zeros((agent.settings.actors,), jnp.int32)
        _, episodes = jax.lax.scan(act, carry, jnp.arange(num_steps, dtype=jnp.int32))
        return _numbered(episodes, jnp.int32(0))

    return one_by_one(one_seed)(keys, learner)
