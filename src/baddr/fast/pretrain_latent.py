"""`Latent` from simulators: the networks D(s', o | s, a; z) and a z for each of many sampled simulators.

Simulator m has a code q_m(z) = N(mean_m, diag sd_m^2) (`fast/codes.py`), trained together with the networks
to minimise E[-log D(s', o | s, a; z)] + beta KL(q_m || N(0, I)). Samples (s, a, s', o) are all that is asked
of a simulator. The prior over z is then the Gaussian with the moments of all q_m together, and z is scaled so
that this is N(0, I).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr import prng
from baddr.core.pomdp import Dynamics, Transition
from baddr.fast import pretrain, stored
from baddr.fast.codes import EACH, EACH_READ, MANY, Codes, codes, looks_of, num_simulators
from baddr.fast.compiler import compiled_quickly
from baddr.fast.pretrain import NUM_BLOCKS, Progress, SampleState, sample_data
from baddr.files import cache
from baddr.posteriors.dropout import Architecture
from baddr.posteriors.latent import Gaussian, Latent, LatentDynamics, LatentNet, OfZ, about, initial_net
from baddr.posteriors.settings import LatentSettings, Network, Pretrain
from baddr.prng import uniform_integers

UNTRAINED = ("model", "width", "max_gap")  # settings that networks do not depend on
CODE_VERSION = 4  # raise it when the same settings train another prior
LONGEST_BLOCK = 512  # steps: a Ctrl-C waits for the block that runs
NUM_TESTED, NUM_AT_THE_EDGE = 64, 32  # simulators whose fit is measured, and how many of them lie far out
NUM_TEST_SAMPLES = 2048  # of each

SampleSimulator = Callable[[Key[Array, ""]], Dynamics]
Looks = Float[Array, "M numbers"] | None


class LatentFit(NamedTuple):
    """How well the networks fit some simulators at their z, in nats per transition, on fresh data. Those at
    the edge of the prior come last."""

    cross_entropy: Float[np.ndarray, " tested"]
    entropy: Float[np.ndarray, " tested"]  # the floor: the simulator's own; NaN where it does not say
    gap: Float[np.ndarray, " tested"]  # cross_entropy - entropy
    failed: Bool[np.ndarray, " tested"]  # the gap is above `max_gap`, or the cross-entropy is not finite
    distance: Float[np.ndarray, " tested"]  # of its z from the prior's mean, in standard deviations


class Nets(NamedTuple):
    """What is trained: the networks, and q_m of all simulators."""

    T: LatentNet | None
    O: LatentNet | None
    codes: Codes


class Trained(NamedTuple):
    """The posterior, and where the simulators lie in it."""

    posterior: Latent
    z: Float[Array, "M d"]

    def of_width(self, width: float) -> Latent:
        """The posterior whose particles start with Gaussians of this width."""
        if width == 1:
            return self.posterior
        shapes = isinstance(self.z, jax.ShapeDtypeStruct)
        start = eqx.filter_eval_shape(about, self.z, width) if shapes else _about(self.z, width)
        return eqx.tree_at(lambda latent: latent.start, self.posterior, start)


@compiled_quickly(0)
def _about(z: Float[Array, "M d"], width: float) -> Gaussian:
    return about(z, width)


def architecture_of(
    settings: LatentSettings, sizes: tuple[tuple[int, ...], int, tuple[int, ...]], networks: str
) -> Architecture:
    """Of the networks; there is no dropout in them."""
    network = Network(settings.hidden, settings.layers, dropout=0.0, inputs=settings.inputs)
    return Architecture(network, *sizes, networks)


def train(
    key: Key[Array, ""],
    sample_simulator: SampleSimulator,
    architecture: Architecture,
    settings: LatentSettings,
    sample_state: SampleState,
    progress: Progress | None = None,
) -> Trained:
    """Networks and prior for these simulators."""
    key_train, M, looks = _begin(key, sample_simulator, settings)
    nets = _untrained(key, looks, len_of(M), architecture, settings)
    state = _optimizer(settings).init(nets)
    carry = jax.device_put((nets, state))
    size = min(math.ceil(settings.steps / NUM_BLOCKS), LONGEST_BLOCK)
    for first in range(0, settings.steps, max(size, 1)):  # blocks of one length: compiled once
        steps = jax.device_put(np.arange(first, first + size, dtype=np.int32))
        carry, L = _train_block(carry, steps, key_train, (M, looks), sample_state, architecture, settings)
        L = float(L)  # waits: a Ctrl-C comes between two blocks
        if progress is not None:
            progress(min(first + size, settings.steps), settings.steps, L)
    return _scaled(carry[0], len_of(M), looks, architecture, settings.model == "expected")


def bytes_of_training(architecture: Architecture, settings: LatentSettings) -> int:
    """As of one member of an ensemble, and of each simulator its Gaussian over z."""
    batches = Pretrain(num_networks=1, batch_size=settings.batch_size)
    gaussians = pretrain.NUMBERS_OF_A_WEIGHT * 2 * (settings.simulators or MANY) * settings.dimensions
    return pretrain.bytes_of_training(architecture, batches) + 4 * gaussians


def _optimizer(settings: LatentSettings) -> Any:
    import optax  # takes an eighth of a second, and a prior that is found needs none

    return optax.adam(optax.cosine_decay_schedule(settings.learning_rate, max(settings.steps, 1)))


def _begin(
    key: Key[Array, ""], sample_simulator: SampleSimulator, settings: LatentSettings
) -> tuple[Key[Array, ""], Dynamics, Looks]:
    """A key to train with, the simulators, and what they look like."""
    key_train, M = _simulators(key, sample_simulator, num_simulators(settings, sample_simulator))
    return key_train, M, looks_of(M)


@compiled_quickly(0)
def _simulators(
    key: Key[Array, ""], sample_simulator: SampleSimulator, number: int
) -> tuple[Key[Array, ""], Dynamics]:
    key_simulators, *_, key_train = jr.split(key, 5)
    return key_train, eqx.filter_vmap(sample_simulator)(jr.split(key_simulators, number))


@compiled_quickly(0)
def _untrained(
    key: Key[Array, ""], looks: Looks, number: int, architecture: Architecture, settings: LatentSettings
) -> Nets:
    _, key_T, key_O, key_z, _ = jr.split(key, 5)
    nets = untrained(key_T, key_O, architecture, settings)
    return Nets(*nets, codes(key_z, number, looks, settings.dimensions))


def len_of(M: Dynamics) -> int:
    """How many simulators are stacked."""
    return jax.tree.leaves(eqx.filter(M, eqx.is_array))[0].shape[0]


def untrained(
    key_T: Key[Array, ""], key_O: Key[Array, ""], architecture: Architecture, settings: LatentSettings
) -> tuple[LatentNet | None, LatentNet | None]:
    """T and O, where they are not given."""

    def net(key: Key[Array, ""], name: str, uses_z: bool) -> LatentNet | None:
        if name not in architecture.networks:
            return None
        return initial_net(key, architecture.widths(name), settings.dimensions if uses_z else None)

    return net(key_T, "T", settings.learn_transition), net(key_O, "O", settings.learn_observation)


@compiled_quickly(2)
def _train_block(
    carry: PyTree,
    steps: Int[Array, " steps"],
    key: Key[Array, ""],
    simulators: tuple[Dynamics, Looks],
    sample_state: SampleState,
    architecture: Architecture,
    settings: LatentSettings,
) -> tuple[PyTree, Float[Array, ""]]:
    """Steps number `steps`: the carry after them, and their mean cross-entropy. None after the last one."""
    import optax

    optimizer, (M, looks) = _optimizer(settings), simulators
    each = min(EACH if looks is None else EACH_READ, settings.batch_size)

    def loss(nets: Nets, key: Key[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        keys = jr.split(key, 3)
        chosen = uniform_integers(keys[0], np.full(settings.batch_size // each, len_of(M)))
        mean, log_sd = nets.codes.of(chosen, looks)
        noise = jr.normal(keys[1], (len(chosen), each, settings.dimensions))
        z = mean[:, None] + jnp.exp(log_sd)[:, None] * noise
        data = _samples(keys[2], M, chosen, each, sample_state, architecture.num_actions)
        # One axis of samples: a gradient over two of them would not be one matrix product.
        z, data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (z, data))
        L = jnp.mean(jax.vmap(partial(_cross_entropy, nets.T, nets.O, architecture))(z, data))
        kl = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * log_sd) - 2 * log_sd - 1, axis=1)
        return L + settings.beta * jnp.mean(kl), L

    def step(carry: PyTree, i: Int[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        nets, state = carry
        gradient, L = jax.grad(loss, has_aux=True)(nets, jr.fold_in(key, i))
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam mixes types
            updates, state = optimizer.update(gradient, state, nets)
        return (optax.apply_updates(nets, updates), state), L

    carry, L = jax.lax.scan(step, carry, steps)
    return carry, jnp.mean(L)


def _samples(
    key: Key[Array, ""],
    M: Dynamics,
    chosen: Int[Array, " n"],
    each: int,
    sample_state: SampleState,
    num_actions: int,
) -> Transition:
    """`each` transitions of each chosen simulator."""
    mine = jax.tree.map(lambda x: x[chosen] if eqx.is_array(x) else x, M)
    of_one = lambda key, M: sample_data(key, M, sample_state, num_actions)
    of_each = jax.vmap(of_one, in_axes=(0, None))
    return eqx.filter_vmap(of_each)(jr.split(key, (len(chosen), each)), mine)


def _cross_entropy(
    T: LatentNet | None,
    O: LatentNet | None,
    architecture: Architecture,
    z: Float[Array, " d"],
    step: Transition,
) -> Float[Array, ""]:
    """-log D(s', o | s, a; z), over the networks that there are."""
    D, (s, a, s_next, o) = LatentDynamics(T=T, O=O, z=z, architecture=architecture), step
    log_T = D.transition_log_prob(s, a, s_next) if T is not None else jnp.zeros(())
    return -log_T - (D.observation_log_prob(s, a, s_next, o) if O is not None else jnp.zeros(()))


@compiled_quickly(0)
def _scaled(nets: Nets, number: int, looks: Looks, architecture: Architecture, expected: bool) -> Trained:
    """With z in units of the prior, which has the moments of all q_m together."""
    means, log_sd = nets.codes.of(jnp.arange(number, dtype=jnp.int32), looks)
    mean = jnp.mean(means, axis=0)
    spread = means - mean[None]
    covariance = spread.T @ spread / number + jnp.diag(jnp.mean(jnp.exp(2 * log_sd), axis=0))
    A = jnp.linalg.cholesky(covariance)

    def scaled(net: LatentNet | None) -> LatentNet | None:
        """f(x; mean + A u) as a function of u."""
        if net is None or net.of_z is None:
            return net
        *first, (W, b), (W_out, b_out) = net.layers
        layers = (*first, (W, b + mean @ net.of_z.hidden), (W_out, b_out + mean @ net.of_z.outputs))
        return LatentNet(layers, OfZ(A.T @ net.of_z.hidden, A.T @ net.of_z.outputs))

    start = Gaussian(jnp.zeros_like(mean), jnp.eye(len(mean), dtype=mean.dtype))
    posterior = Latent(scaled(nets.T), scaled(nets.O), start, architecture, expected)
    return Trained(posterior, jax.scipy.linalg.solve_triangular(A, spread.T, lower=True).T)


# How well it fits.


def measure_fit(
    key: Key[Array, ""],
    sample_simulator: SampleSimulator,
    trained: Trained,
    settings: LatentSettings,
    sample_state: SampleState,
) -> LatentFit:
    """Of some simulators at their z, and of those that lie farthest out; `key` and `sample_simulator` are
    those of the training."""
    key_test, M = _simulators(key, sample_simulator, len(trained.z))
    distance = np.linalg.norm(np.asarray(trained.z, np.float64), axis=1)
    order = np.argsort(distance)
    edge = order[-min(NUM_AT_THE_EDGE, len(order) // 2) :]
    inside = order[: len(order) - len(edge)]
    some = inside[:: math.ceil(len(inside) / (NUM_TESTED - NUM_AT_THE_EDGE))]
    chosen = jnp.asarray(np.concatenate([some, edge]), jnp.int32)
    found = _entropies(jr.fold_in(key_test, settings.steps), trained, M, chosen, sample_state)
    cross_entropy, entropy = (np.asarray(x, np.float64) for x in found)
    gap = cross_entropy - entropy
    failed = ~np.isfinite(cross_entropy) | (gap > settings.max_gap)
    return LatentFit(cross_entropy, entropy, gap, failed, distance[np.asarray(chosen)])


@compiled_quickly(1)
def _entropies(
    key: Key[Array, ""], trained: Trained, M: Dynamics, chosen: Int[Array, " n"], sample_state: SampleState
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    posterior = trained.posterior
    architecture = posterior.architecture
    data = _samples(key, M, chosen, NUM_TEST_SAMPLES, sample_state, architecture.num_actions)
    of_one = partial(_cross_entropy, posterior.T, posterior.O, architecture)
    found = jax.lax.map(
        lambda x: jnp.mean(jax.vmap(of_one, in_axes=(None, 0))(*x)), (trained.z[chosen], data)
    )
    mine = jax.tree.map(lambda x: x[chosen] if eqx.is_array(x) else x, M)

    def log_prob(M: Dynamics, data: Transition) -> Float[Array, ""]:
        O = jax.vmap(M.observation_log_prob)(*data)
        if architecture.networks == "O":
            return jnp.mean(O)
        both = jax.vmap(M.log_prob)(*data)
        return jnp.mean(both if architecture.networks == "TO" else both - O)

    try:
        return found, -eqx.filter_vmap(log_prob)(mine, data)
    except NotImplementedError:  # a black box: it can be sampled, and that is all
        return found, jnp.full_like(found, jnp.nan)


# The cache.


def prior_settings(
    domain: str, domain_settings: Mapping[str, Any], settings: LatentSettings, seed: int
) -> dict[str, Any]:
    """All that a trained prior depends on."""
    trained = {name: value for name, value in asdict(settings).items() if name not in UNTRAINED}
    return {
        "domain": domain,
        "domain_settings": dict(domain_settings),
        "latent": trained,
        "seed": seed,
        "code_version": CODE_VERSION,
    }


def cached_prior(
    settings: Mapping[str, Any],
    like: Trained,
    train: Callable[[], Trained],
    test: Callable[[Trained], LatentFit],
    directory: Path | None = None,
) -> tuple[Trained, Callable[[], LatentFit]]:
    """The prior trained with these `settings`: from the cache, or trained and kept. And what gives its test:
    the one that is kept with it, or, when it is called, tested and kept. `like` has its shapes."""
    path = (directory or cache.priors()) / stored.entry_name(settings)
    trained, fit = _load(path, settings, like)
    if trained is None:
        trained = train()
        _save(path, settings, trained, None)

    def tested() -> LatentFit:
        if fit is not None:
            return fit
        measured = test(trained)
        _save(path, settings, trained, measured)
        return measured

    return trained, tested


def _save(path: Path, settings: Mapping[str, Any], trained: Trained, fit: LatentFit | None) -> None:
    arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(trained))}
    found = fit._asdict() if fit else {}
    stored.save(path, settings, arrays | found, fit.gap.tolist() if fit else [])


def _load(path: Path, settings: Mapping[str, Any], like: Trained) -> tuple[Trained | None, LatentFit | None]:
    """The entry at `path`, where there is one of these shapes, and its test, where it was tested."""
    arrays = stored.load(path, settings)
    wanted, structure = jax.tree.flatten(like)
    names = [f"leaf_{i}" for i in range(len(wanted))]
    if arrays is None or not all(name in arrays for name in names):
        return None, None
    leaves = [arrays[name] for name in names]
    if any(x.shape != y.shape for x, y in zip(leaves, wanted, strict=True)):
        return None, None
    fit = LatentFit(*(arrays[name] for name in LatentFit._fields)) if "gap" in arrays else None
    return structure.unflatten(map(jax.device_put, leaves)), fit


def shapes(architecture: Architecture, settings: LatentSettings, number: int) -> Trained:
    """What `train` gives with so many simulators, as shapes."""

    def made(key: Key[Array, ""]) -> Trained:
        nets = untrained(key, key, architecture, settings)
        z = jnp.zeros((number, settings.dimensions))
        start = Gaussian(z[0], jnp.eye(settings.dimensions))
        return Trained(Latent(*nets, start, architecture, settings.model == "expected"), z)

    return eqx.filter_eval_shape(made, prng.key(0))
