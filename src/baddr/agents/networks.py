"""The prior of the agents with networks: an ensemble from the cache, or trained now (Section 4.2)."""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from baddr import prng
from baddr.agents.base import Prior, Progress, Request, Test
from baddr.agents.needs import lacks
from baddr.core.posterior import Posterior
from baddr.domains.domain import Domain
from baddr.fast import pretrain_latent
from baddr.fast.codes import num_simulators
from baddr.fast.pretrain import (
    Fit,
    bytes_of_training,
    cached_prior,
    measure_fit,
    prior_settings,
    train,
    uniform_states,
)
from baddr.fast.pretrain_latent import NUM_AT_THE_EDGE, LatentFit
from baddr.posteriors.dropout import Architecture, Dropout
from baddr.posteriors.latent import Latent
from baddr.posteriors.partial import Partial
from baddr.posteriors.settings import LatentSettings, Network, Pretrain

PRIOR_STREAM = 2**32 - 1  # of random numbers, apart from every run's


def networks_prior(request: Request, network: Network, settings: Pretrain) -> Prior:
    """The networks, and the half of D that is given.

    One network learns the expected model; several learn a simulator each, as equal members would leave
    nothing to filter.
    """
    domain, pomdp = request.domain, request.domain.pomdp
    need = "expected_simulator" if settings.num_networks == 1 else "sample_simulator"
    simulators = getattr(domain, need)
    if simulators is None:
        raise lacks(domain, "baddr", need)
    sizes = pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes
    architecture = Architecture(network, *sizes, domain.learned)
    weights = sum(map(architecture.num_weights, "TO"))
    like = jax.ShapeDtypeStruct((settings.num_networks, weights), jnp.float32)
    untrained = eqx.filter_eval_shape(lambda w: Dropout(w, architecture), like)
    sample_state = uniform_states(pomdp.state_sizes, domain.is_legal)
    key = partial(_prior_key, request.seed)

    def trained(progress: Progress | None) -> tuple[Posterior, Test | None]:
        depends_on = prior_settings(
            domain.name, asdict(request.domain_settings), network, settings, request.seed
        )
        posterior, fit = cached_prior(
            depends_on,
            architecture,
            lambda: train(key(), simulators, architecture, settings, sample_state, progress),
            lambda posterior: measure_fit(key(), simulators, posterior, settings, sample_state),
        )
        return _with_given_half(domain, posterior), partial(_told, fit, settings.max_gap)

    return Prior(_with_given_half(domain, untrained), trained, bytes_of_training(architecture, settings))


def latent_prior(request: Request, settings: LatentSettings) -> Prior:
    """The networks that are conditioned on z, and the half of D that is given."""
    domain, pomdp = request.domain, request.domain.pomdp
    simulators = domain.sample_simulator
    if simulators is None:
        raise lacks(domain, "latent", "sample_simulator")
    sizes = pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes
    architecture = pretrain_latent.architecture_of(settings, sizes, domain.learned)
    like = pretrain_latent.shapes(architecture, settings, num_simulators(settings, simulators))
    sample_state = uniform_states(pomdp.state_sizes, domain.is_legal)
    key = partial(_prior_key, request.seed)

    def trained(progress: Progress | None) -> tuple[Posterior, Test | None]:
        depends_on = pretrain_latent.prior_settings(
            domain.name, asdict(request.domain_settings), settings, request.seed
        )
        found, fit = pretrain_latent.cached_prior(
            depends_on,
            like,
            lambda: pretrain_latent.train(key(), simulators, architecture, settings, sample_state, progress),
            lambda found: pretrain_latent.measure_fit(key(), simulators, found, settings, sample_state),
        )
        return _with_given_half(domain, found.of_width(settings.width)), partial(
            _told_of_latent, fit, settings.max_gap
        )

    need = pretrain_latent.bytes_of_training(architecture, settings)
    return Prior(_with_given_half(domain, like.of_width(settings.width)), trained, need)


def _told_of_latent(test: Callable[[], LatentFit], max_gap: float) -> LatentFit:
    """What the test finds; simulators that are not fitted are warned of."""
    fit = test()
    if fit.failed.any():
        warnings.warn(
            f"the networks of agent latent fail to fit {fit.failed.sum()} of {len(fit.failed)} simulators, "
            f"of which {fit.failed[-NUM_AT_THE_EDGE:].sum()} lie at the edge of the prior: their "
            f"cross-entropy is up to {fit.gap.max():.3f} nats above the simulator's entropy (bound: "
            f"latent.max-gap {max_gap}).",
            stacklevel=2,
        )
    return fit


def _with_given_half(domain: Domain, posterior: Dropout | Latent) -> Posterior:
    D: Any = domain.pomdp.dynamics  # type: ignore[attr-defined]
    given = {"TO": posterior, "T": Partial(posterior, D), "O": Partial(D, posterior)}
    return given[domain.learned]


@partial(jax.jit, static_argnums=0)
def _prior_key(seed: int) -> Key[Array, ""]:
    return jr.fold_in(prng.key(seed), PRIOR_STREAM)


def _told(test: Callable[[], Fit], max_gap: float) -> Fit:
    """What the test finds; networks that failed are warned of."""
    fit = test()
    for i in np.flatnonzero(fit.failed):
        warnings.warn(
            f"prior network {i} failed to fit: its cross-entropy is {fit.gap[i]:.3f} nats above the entropy "
            f"of its simulator (bound: pretrain.max-gap {max_gap}).",
            stacklevel=2,
        )
    return fit
