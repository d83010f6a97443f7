"""What is believed of p(o | s, a, s'; D) over D ~ p(.; theta): draws of it, and its mean and variance.

By drawing models for any posterior; in closed form where there is one.
"""

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.pomdp import Transition, flat_index
from baddr.core.posterior import Posterior, Theta, sample
from baddr.posteriors.bank import Bank, Member, by_member
from baddr.posteriors.dirichlet import Counts, Dirichlet
from baddr.posteriors.dropout import Dropout
from baddr.posteriors.factored import Factored, FactoredCounts
from baddr.posteriors.factored.dynamics import entries
from baddr.posteriors.frozen import Frozen
from baddr.posteriors.known import Known
from baddr.posteriors.latent import Gaussian, Latent
from baddr.posteriors.mixture import Mixture, part_weights
from baddr.posteriors.partial import Partial
from baddr.posteriors.pool import Pool, distinct_weights

NUM_DRAWS = 64  # of models, for a moment that has no closed form
NUM_NETWORK_DRAWS = 8  # of a particle: moments are read as averages over many particles

Draws = Float[Array, " draws"] | None
Moments = tuple[Float[Array, ""], Float[Array, ""]]


def observation_draws(posterior: Posterior, key: Key[Array, ""], theta: Theta, step: Transition) -> Draws:
    """Draws of p(o | s, a, s'; D); None where the moments have a closed form and a draw is theta's expected
    model."""
    if isinstance(posterior, Frozen):
        return observation_draws(posterior.posterior, key, theta, step)
    if isinstance(posterior, Partial):
        return observation_draws(posterior.observation, key, theta[1], step)
    if isinstance(posterior, Member):
        return jnp.exp(posterior.bank.member(theta).observation_log_prob(*step))[None]
    expected = isinstance(posterior, Dirichlet | Factored) and posterior.expected
    if isinstance(posterior, Known | Bank) or expected:
        return None

    def probability(key: Key[Array, ""]) -> Float[Array, ""]:
        return jnp.exp(sample(posterior, key, theta).observation_log_prob(*step))

    n = NUM_NETWORK_DRAWS if isinstance(posterior, Dropout | Latent | Mixture) else NUM_DRAWS
    return jax.vmap(probability)(jr.split(key, n))


@singledispatch
def observation_moments(posterior: Posterior, theta: Theta, step: Transition, draws: Draws) -> Moments:
    """Mean and variance of p(o | s, a, s'; D): unbiased ones of the `draws` that `observation_draws` gave, or
    in closed form."""
    assert draws is not None, f"{type(posterior).__name__} has no closed form: it needs draws"
    return jnp.mean(draws), jnp.var(draws, ddof=1)


@observation_moments.register(Known)
def _(posterior: Known, theta: Theta, step: Transition, draws: Draws) -> Moments:
    return jnp.exp(posterior.D.observation_log_prob(*step)), jnp.zeros(())


@observation_moments.register(Bank)
def _(posterior: Bank, theta: Theta, step: Transition, draws: Draws) -> Moments:
    p, w = jnp.exp(posterior.each(lambda D: D.observation_log_prob(*step))), jnp.exp(theta)
    mean = jnp.sum(w * p)
    return mean, jnp.sum(w * (p - mean) ** 2)


@observation_moments.register(Member)
def _(posterior: Member, theta: Theta, step: Transition, draws: Draws) -> Moments:
    assert draws is not None
    return draws[0], jnp.zeros(())


@observation_moments.register(Frozen)
def _(posterior: Frozen, theta: Theta, step: Transition, draws: Draws) -> Moments:
    return observation_moments(posterior.posterior, theta, step, draws)


@observation_moments.register(Partial)
def _(posterior: Partial, theta: Theta, step: Transition, draws: Draws) -> Moments:
    return observation_moments(posterior.observation, theta[1], step, draws)


@observation_moments.register(Dirichlet)
def _(posterior: Dirichlet, theta: Counts, step: Transition, draws: Draws) -> Moments:
    """Of one entry of a Dirichlet row."""
    row = theta.O[step.a, flat_index(step.s_next, posterior.state_sizes)]
    total = jnp.sum(row)
    mean = row[flat_index(step.o, posterior.observation_sizes)] / total
    return mean, mean * (1 - mean) / (total + 1)


@observation_moments.register(Factored)
def _(posterior: Factored, theta: FactoredCounts, step: Transition, draws: Draws) -> Moments:
    """Of a product of independent Dirichlet entries."""
    (s, a, s_next, o), layout = step, posterior.layout
    n, m = len(s), len(o)
    D = posterior.dynamics(theta, None)
    mean = jnp.exp(D.observation_log_prob(s, a, s_next, o))
    tables = tuple(i for i in range(n, n + m) if layout.computed[i] is None)
    if not tables:
        return mean, jnp.zeros(())
    rows = D.rows(tables, a, [*s, *s_next, *o])
    total = jnp.sum(rows, axis=1)
    entry = entries(rows, o[np.array(tables) - n])
    learned = jnp.asarray(np.array(layout.learned)[:, tables])[a]
    # E[p^2] / E[p]^2 = (1 + 1 / alpha) / (1 + 1 / total) for an entry alpha that is learned.
    alpha = jnp.where(learned & (entry > 0), entry, jnp.inf)
    ratio = (1 + 1 / alpha) / (1 + jnp.where(learned, 1 / total, 0))
    return mean, mean**2 * (jnp.prod(ratio) - 1)


# What a domain tells of the belief about D.

Describe = Callable[[Key[Array, ""], Posterior, Particles], dict[str, Any]]


def described(describe: Describe | None, posterior: Posterior) -> Describe | None:
    """`describe` for beliefs under this posterior, and what the posterior itself has to tell: a bank, how
    many members count; a mixture, how likely its parts are; `Latent`, mean and standard deviation of z.

    A bank is described member by member, so that nothing is drawn.
    """
    if isinstance(posterior, Pool):
        return partial(_by_held, describe or _nothing)
    if isinstance(posterior, Bank):
        return partial(_by_member, describe or _nothing)
    if isinstance(posterior, Mixture):
        return partial(_by_part, describe or _nothing)
    return partial(_with_latent, describe or _nothing) if latent_place(posterior) is not None else describe


def _nothing(key: Key[Array, ""], posterior: Posterior, belief: Particles) -> dict[str, Any]:
    """What is told of a domain that has no `describe`."""
    return {}


def _by_member(
    describe: Describe, key: Key[Array, ""], posterior: Posterior, belief: Particles
) -> dict[str, Any]:
    assert isinstance(posterior, Bank)
    member, members = by_member(posterior, belief)
    model = describe(key, member, members)
    return model | {"effective_members": members.effective_sample_size()}


def _by_held(
    describe: Describe, key: Key[Array, ""], posterior: Posterior, belief: Particles
) -> dict[str, Any]:
    """Of members that are held: one of them in several places counts once."""
    assert isinstance(posterior, Pool)
    who, w = belief.states.theta.who[0], belief.weights @ jnp.exp(belief.states.theta.log_weights)
    s = jnp.broadcast_to(belief.states.s[:1], (len(who), *belief.states.s.shape[1:]))
    model = describe(key, Member(posterior.bank), Particles(AugmentedState(s, who), jnp.log(w)))
    return model | {"effective_members": 1 / jnp.sum(w * distinct_weights(who, w))}


def _by_part(
    describe: Describe, key: Key[Array, ""], posterior: Posterior, belief: Particles
) -> dict[str, Any]:
    assert isinstance(posterior, Mixture)
    return describe(key, posterior, belief) | {"part_weight": part_weights(posterior, belief)}


def _with_latent(
    describe: Describe, key: Key[Array, ""], posterior: Posterior, belief: Particles
) -> dict[str, Any]:
    place, theta = latent_place(posterior), belief.states.theta
    mean, std = latent_moments(theta[place] if isinstance(posterior, Partial) else theta, belief.weights)
    return describe(key, posterior, belief) | {"z_mean": mean, "z_std": std}


def latent_place(posterior: Posterior) -> int | None:
    """Which half of theta is a Gaussian over z, where a half of D is given; 0 also where all of theta is."""
    halves = (posterior.transition, posterior.observation) if isinstance(posterior, Partial) else (posterior,)
    return next((i for i, half in enumerate(halves) if isinstance(half, Latent)), None)


def latent_moments(
    theta: Gaussian, weights: Float[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and standard deviation of each number of z over the mixture of all particles' Gaussians."""
    w = weights[:, None]
    mean = jnp.sum(w * theta.mean, axis=0)
    own = jnp.sum(theta.factor**2, axis=-1)
    return mean, jnp.sqrt(jnp.sum(w * (own + (theta.mean - mean[None]) ** 2), axis=0))
