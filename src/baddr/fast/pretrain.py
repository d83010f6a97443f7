"""Priors from simulators (Section 4.2): M~ ~ the simulators' distribution -> an ensemble of networks {w_0}.

A trained prior is kept on disk (`baddr cache`) under the hash of all that it depends on, and so is its test,
which may come later: an experiment begins without it.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.pomdp import POMDP, Dynamics, State, Transition
from baddr.fast import stored
from baddr.fast.compiler import compiled_quickly
from baddr.fast.loops import one_by_one
from baddr.files import cache
from baddr.posteriors.dropout import (
    Architecture,
    Dropout,
    DropoutDynamics,
    Layers,
    Masks,
    draw_masks,
    initial_weights,
)
from baddr.posteriors.settings import Network, Pretrain, training_settings
from baddr.prng import uniform_integers

CODE_VERSION = 4  # raise it when the same settings train another prior: the cached ones are then not found
NUM_TEST_SAMPLES = 4096
NUM_TEST_MASKS = 64
TESTED_AT_ONCE = 64  # samples, under the same masks
NUM_BLOCKS = 16  # at least: progress is told between them
LONGEST_BLOCK = 2048  # batches: a Ctrl-C waits for the block that runs

NUMBERS_OF_A_WEIGHT, NUMBERS_OF_A_NODE, NUMBERS_OF_A_SAMPLE = 6, 4, 16  # at hand while it trains

SampleState = Callable[[Key[Array, ""]], State]
Simulators = Dynamics | Callable[[Key[Array, ""]], Dynamics]
Progress = Callable[[int, int, float], None]  # batches done, batches in all, mean loss of the last block


class Fit(NamedTuple):
    """How well each member fits its simulator, in nats per transition, on fresh data."""

    cross_entropy: Float[np.ndarray, " members"]  # of the predictive (Eq. 12), averaged over 64 masks
    entropy: Float[np.ndarray, " members"]  # the floor: the simulator's own, on the same data
    gap: Float[np.ndarray, " members"]  # cross_entropy - entropy
    failed: Bool[np.ndarray, " members"]  # the gap is above `max_gap`, or not finite


@functools.cache  # the same function for the same space: what is compiled with it is found again
def uniform_states(
    state_sizes: tuple[int, ...], is_legal: Callable[[State], Bool[Array, ""]] | None = None
) -> SampleState:
    """Uniform over S, or over its legal states: an illegal one is drawn again."""
    sizes = np.asarray(state_sizes)

    def draw(key: Key[Array, ""]) -> State:
        return uniform_integers(key, sizes)

    if is_legal is None:
        return draw

    def draw_legal(key: Key[Array, ""]) -> State:
        def again(carry: tuple[Key[Array, ""], State]) -> tuple[Key[Array, ""], State]:
            key, key_s = jr.split(carry[0])
            return key, draw(key_s)

        return jax.lax.while_loop(lambda carry: ~is_legal(carry[1]), again, again((key, draw(key))))[1]

    return draw_legal


def pretrain(
    key: Key[Array, ""],
    simulators: Simulators,
    pomdp: POMDP,
    network: Network,
    settings: Pretrain,
    *,
    sample_state: SampleState | None = None,
    networks: str = "TO",
    progress: Progress | None = None,
) -> tuple[Dropout, Fit]:
    """Train the ensemble {w_0}, all members at once, and measure how well each fits (Section 4.2).

    Each member learns from its own simulator M~ where `simulators` is a function of a key, or all learn
    from the one that is given (the expected model). Every batch is fresh: s from `sample_state` (uniform
    over S), a uniform over A, (s', o) from M~. One optimiser serves T and O: their weights are disjoint,
    and SGD and Adam treat every weight on its own, so two optimisers would do the same.
    """
    sizes = pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes
    architecture = Architecture(network, *sizes, networks)
    sample_state = sample_state or uniform_states(pomdp.state_sizes)
    posterior = train(key, simulators, architecture, settings, sample_state, progress)
    return posterior, measure_fit(key, simulators, posterior, settings, sample_state)


def train(
    key: Key[Array, ""],
    simulators: Simulators,
    architecture: Architecture,
    settings: Pretrain,
    sample_state: SampleState,
    progress: Progress | None = None,
) -> Dropout:
    """The ensemble {w_0}."""
    w, keys, _, M = _begin(key, simulators, architecture, settings.num_networks)
    return Dropout(_train(keys, w, M, sample_state, architecture, settings, progress), architecture)


def measure_fit(
    key: Key[Array, ""],
    simulators: Simulators,
    posterior: Dropout,
    settings: Pretrain,
    sample_state: SampleState,
) -> Fit:
    """How well each member fits; `key` and `simulators` are those that it was trained with."""
    _, _, keys, M = _begin(key, simulators, posterior.architecture, settings.num_networks)
    return _fit(keys, posterior, M, sample_state, settings.max_gap)


@compiled_quickly(0)
def _begin(
    key: Key[Array, ""], simulators: Simulators, architecture: Architecture, n: int
) -> tuple[Float[Array, "members weights"], Key[Array, " members"], Key[Array, " members"], Dynamics]:
    """Untrained members, keys to train and to test them, and their simulators."""
    key_simulator, key_w, key_train, key_test = jr.split(key, 4)
    w = jax.vmap(lambda key: initial_weights(key, architecture))(jr.split(key_w, n))
    return w, jr.split(key_train, n), jr.split(key_test, n), _members(key_simulator, simulators, n)


def _members(key: Key[Array, ""], simulators: Simulators, n: int) -> Dynamics:
    """The simulators M~ of all members, stacked."""
    if isinstance(simulators, Dynamics):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), simulators)
    return eqx.filter_vmap(simulators)(jr.split(key, n))


def sample_data(key: Key[Array, ""], M: Dynamics, sample_state: SampleState, num_actions: int) -> Transition:
    """One transition of M~ from anywhere."""
    key_s, key_a, key_step = jr.split(key, 3)
    s, a = sample_state(key_s), uniform_integers(key_a, np.asarray(num_actions))
    return Transition(s, a, *M.step(key_step, s, a))


def _train(
    keys: Key[Array, " members"],
    w: Float[Array, "members weights"],
    M: Dynamics,
    sample_state: SampleState,
    architecture: Architecture,
    settings: Pretrain,
    progress: Progress | None,
) -> Float[Array, "members weights"]:
    # Matrices, not the flat theta, are trained: the gradient need not be joined at every batch.
    layers = _cut(w, architecture)
    state = jax.eval_shape(jax.vmap(_optimizer(settings).init), layers)  # of which all is zero at first
    carry = jax.device_put((layers, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)))
    for first, last in blocks(settings.batches):
        batches = jax.device_put(np.arange(first, last, dtype=np.int32))
        carry, L = _train_block(carry, batches, keys, M, sample_state, architecture, settings)
        L = float(L)  # waits: a Ctrl-C comes between two blocks
        if progress is not None:
            progress(last, settings.batches, L)
    return _join(carry[0])


def blocks(batches: int) -> Iterator[tuple[int, int]]:
    """The first batch of each block and the one after its last. Lengths differ by one at most, the longer
    ones first: two programs."""
    number = max(NUM_BLOCKS, -(-batches // LONGEST_BLOCK))
    each, longer = divmod(batches, number)
    last = 0
    for i in range(min(number, batches)):
        first, last = last, last + each + (i < longer)
        yield first, last


def bytes_of_training(architecture: Architecture, settings: Pretrain) -> int:
    """Of a member: its weights, what Adam keeps of them and what is at hand besides; and of each sample of a
    batch the values of all nodes, their gradients and masks. The test has samples, too."""
    weights = sum(map(architecture.num_weights, "TO"))
    sample = NUMBERS_OF_A_NODE * sum(sum(architecture.widths(net)) for net in "TO") + NUMBERS_OF_A_SAMPLE
    tested = NUMBERS_OF_A_SAMPLE * NUM_TEST_SAMPLES
    member = NUMBERS_OF_A_WEIGHT * weights + max(settings.batch_size * sample, tested)
    return 4 * settings.num_networks * member


def _cut(w: Float[Array, "members weights"], architecture: Architecture) -> Layers:
    """`Architecture.layers` of all members, by NumPy: a program would have to wait for the compiler."""
    like, structure = jax.tree.flatten(
        jax.eval_shape(architecture.layers, jax.ShapeDtypeStruct(w.shape[1:], w.dtype))
    )
    parts = np.split(np.asarray(w), np.cumsum([x.size for x in like])[:-1], axis=1)
    return structure.unflatten(x.reshape(-1, *y.shape) for x, y in zip(parts, like, strict=True))


def _optimizer(settings: Pretrain) -> Any:
    import optax  # takes an eighth of a second, and a prior that is found needs none

    return {"sgd": optax.sgd, "adam": optax.adam}[settings.optimizer](settings.learning_rate)


@compiled_quickly(1)
def _train_block(
    carry: PyTree,
    numbers: Int[Array, " batches"],
    keys: Key[Array, " members"],
    M: Dynamics,
    sample_state: SampleState,
    architecture: Architecture,
    settings: Pretrain,
) -> tuple[PyTree, Float[Array, ""]]:
    """Batches number `numbers` of every member: the carry after them, and their mean loss."""
    import optax

    optimizer = _optimizer(settings)

    def loss(w: Layers, examples: tuple[Array, Transition]) -> Float[Array, ""]:
        one = lambda masks, data: DropoutDynamics(w=w, masks=masks, architecture=architecture).loss(*data)
        return jnp.mean(jax.vmap(one)(*examples))

    def batch(carry: PyTree, i: Int[Array, ""], key: Key[Array, ""], M: Dynamics) -> tuple[PyTree, Array]:
        w, state = carry

        def example(key_data: Key[Array, ""], key_masks: Key[Array, ""]) -> tuple[Masks, Transition]:
            data = sample_data(key_data, M, sample_state, architecture.num_actions)
            return draw_masks(key_masks, architecture), data

        keys = (jr.split(key, settings.batch_size) for key in jr.split(jr.fold_in(key, i)))
        L, gradient = jax.value_and_grad(loss)(w, one_by_one(example)(*keys))
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam mixes types
            updates, state = optimizer.update(gradient, state, w)
        return (optax.apply_updates(w, updates), state), L

    def member(carry: PyTree, key: Key[Array, ""], M: Dynamics) -> tuple[PyTree, Array]:
        return jax.lax.scan(lambda carry, i: batch(carry, i, key, M), carry, numbers)

    carry, L = eqx.filter_vmap(member)(carry, keys, M)
    return carry, jnp.mean(L)


def _join(w: Layers) -> Float[Array, "members weights"]:
    """The inverse of `_cut`."""
    rows = [np.asarray(x).reshape(len(x), -1) for x in jax.tree.leaves(w)]
    return jax.device_put(np.concatenate(rows, axis=1))


def _fit(
    keys: Key[Array, " members"], posterior: Dropout, M: Dynamics, sample_state: SampleState, max_gap: float
) -> Fit:
    """The members' cross-entropies against the entropies of their simulators, over the networks there are."""
    cross_entropy, entropy = map(np.asarray, _entropies(keys, posterior, M, sample_state))
    gap = cross_entropy - entropy
    unknown = np.isnan(entropy) & np.isfinite(cross_entropy)  # of a black box
    return Fit(cross_entropy, entropy, gap, ~unknown & ~(np.isfinite(gap) & (gap <= max_gap)))


@compiled_quickly(1)
def _entropies(
    keys: Key[Array, " members"], posterior: Dropout, M: Dynamics, sample_state: SampleState
) -> tuple[Float[Array, " members"], Float[Array, " members"]]:
    """Every block of samples has masks of its own: a mask is a matrix product with a block of inputs."""
    architecture = posterior.architecture

    def sample(key: Key[Array, ""], M: Dynamics) -> tuple[Transition, Array]:
        one = lambda key: sample_data(key, M, sample_state, architecture.num_actions)
        data = jax.vmap(one)(jr.split(key, NUM_TEST_SAMPLES))
        both, O = jax.vmap(M.log_prob)(*data), jax.vmap(M.observation_log_prob)(*data)
        return data, jnp.mean({"TO": both, "T": both - O, "O": O}[architecture.networks])

    def cross_entropy(key: Key[Array, ""], theta: Array, data: Transition) -> Array:
        predictive = partial(posterior.predictive, key, theta, num_masks=NUM_TEST_MASKS)
        log_T, log_O = jax.vmap(predictive)(data)
        return -jnp.mean(log_T + log_O)

    keys_data, keys_masks = jnp.moveaxis(jax.vmap(jr.split)(keys), 1, 0)
    data, log_M = eqx.filter_vmap(sample)(keys_data, M)
    blocks = jax.tree.map(lambda x: x.reshape(-1, TESTED_AT_ONCE, *x.shape[2:]), data)
    count = NUM_TEST_SAMPLES // TESTED_AT_ONCE
    keys_block = jax.vmap(lambda key: jr.split(key, count))(keys_masks).reshape(-1)
    members = jnp.repeat(jnp.arange(len(keys), dtype=jnp.int32), count)
    one = lambda x: cross_entropy(x[0], posterior.ensemble[x[1]], x[2])
    found = jax.lax.map(one, (keys_block, members, blocks))
    return jnp.mean(found.reshape(-1, count), axis=1), -log_M


def prior_settings(
    domain: str, domain_settings: Mapping[str, Any], network: Network, pretrain: Pretrain, seed: int
) -> dict[str, Any]:
    """All that a trained prior depends on. What matters online only (the step of U, ...) is left out."""
    return {
        "domain": domain,
        "domain_settings": dict(domain_settings),
        **training_settings(network, pretrain),
        "seed": seed,
        "code_version": CODE_VERSION,
    }


def cached_prior(
    settings: Mapping[str, Any],
    architecture: Architecture,
    train: Callable[[], Dropout],
    test: Callable[[Dropout], Fit],
    directory: Path | None = None,
) -> tuple[Dropout, Callable[[], Fit]]:
    """The prior trained with these `settings` (from `prior_settings`): from the cache, or trained and kept.
    And what gives its test: the one that is kept with it, or, when it is called, tested and kept.

    What does not have these settings and shapes is trained again (`stored`). `architecture` is this run's
    own: what a stored prior was trained with and what it does online (`Network.learning_rate`) are apart.
    """
    path = (directory or cache.priors()) / stored.entry_name(settings)
    found = _load(path, settings, architecture)
    if found is None:
        found = Dropout(train().ensemble, architecture), None
        _save(path, settings, *found)
    posterior, fit = found

    def tested() -> Fit:
        if fit is not None:
            return fit
        measured = test(posterior)
        _save(path, settings, posterior, measured)
        return measured

    return posterior, tested


def _save(path: Path, settings: Mapping[str, Any], posterior: Dropout, fit: Fit | None) -> None:
    arrays = {"ensemble": np.asarray(posterior.ensemble), **(fit._asdict() if fit else {})}
    stored.save(path, settings, arrays, fit.gap.tolist() if fit else [])


def _load(
    path: Path, settings: Mapping[str, Any], architecture: Architecture
) -> tuple[Dropout, Fit | None] | None:
    """The entry at `path`, or None where there is none of these shapes."""
    arrays = stored.load(path, settings)
    if arrays is None or "ensemble" not in arrays:
        return None
    if arrays["ensemble"].shape[1:] != (sum(map(architecture.num_weights, "TO")),):
        return None
    fit = Fit(*(arrays[name] for name in Fit._fields)) if "gap" in arrays else None
    return Dropout(jax.device_put(arrays["ensemble"]), architecture), fit
