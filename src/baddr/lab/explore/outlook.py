"""What a belief expects after each action: the reward, the end of the episode, and the observations."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, systematic_indices
from baddr.core.pomdp import Transition, all_vectors

MOST_DRAWS = 4096
MOST_SUMMED = 32  # observations whose probabilities are summed; those of more are counted
MOST_SHOWN, LEAST_SHOWN = 8, 5e-4


class Outlook(NamedTuple):
    """Of all actions."""

    reward: Float[Array, " A"]
    ends: Float[Array, " A"]  # the probability that the episode ends
    o: Int[Array, "A n observation_features"]  # observations, and their weights
    weights: Float[Array, "A n"]


@eqx.filter_jit
def looked_ahead(key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Outlook:
    """One step of each particle. Where observations are few, the only error left is that of the drawn s'."""
    key_choice, key_draw, key_step = jr.split(key, 3)
    i, w = _chosen(key_choice, belief)
    thetas, s = belief.states.theta, belief.states.s[i]
    epsilons = gba.models.draw(jr.split(key_draw, len(i)), thetas, i)
    few = gba.num_observations <= MOST_SUMMED
    every = jnp.asarray(all_vectors(gba.observation_sizes)) if few else None

    def after(a: Int[Array, ""]) -> Outlook:
        nothing = jnp.zeros(len(gba.observation_sizes), jnp.int32)
        keys = jr.split(jr.fold_in(key_step, a), len(i))
        step = gba.models.propose(keys, thetas, i, epsilons, s, (a, nothing))
        mean = lambda f: w @ jax.vmap(lambda s, s_next: f(s, a, s_next))(s, step.s_next).astype(w.dtype)
        reward, ends = mean(gba.pomdp.reward), mean(gba.pomdp.is_terminal)
        if every is None:
            return Outlook(reward, ends, step.o, w)
        likelihood = lambda o: gba.models.log_likelihood(
            thetas, i, epsilons, Transition(s, a, step.s_next, o)
        )
        return Outlook(reward, ends, every, jax.lax.map(lambda o: w @ jnp.exp(likelihood(o)), every))

    return jax.lax.map(after, jnp.arange(gba.num_actions, dtype=jnp.int32))


def _chosen(key: Key[Array, ""], belief: Particles) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """All particles with their weights, or a sample of many."""
    if belief.num_particles <= MOST_DRAWS:
        return jnp.arange(belief.num_particles), belief.weights
    return systematic_indices(key, belief.weights, MOST_DRAWS), jnp.full(MOST_DRAWS, 1 / MOST_DRAWS)


def outlook_view(outlook: Outlook) -> list[dict[str, Any]]:
    """For each action the likeliest observations, in their own order, and the probability of all others."""
    reward, ends, o, weights = (np.asarray(x) for x in outlook)
    shown = []
    for a in range(len(reward)):
        values, where = np.unique(o[a], axis=0, return_inverse=True)
        p = np.bincount(where.reshape(-1), weights[a].astype(float), len(values))
        likely = sorted(int(j) for j in np.argsort(-p, kind="stable")[:MOST_SHOWN] if p[j] >= LEAST_SHOWN)
        seen = [{"o": values[j].tolist(), "p": float(p[j])} for j in likely]
        others = max(0.0, float(p.sum()) - sum(x["p"] for x in seen))
        shown.append({"reward": float(reward[a]), "ends": float(ends[a]), "seen": seen, "others": others})
    return shown
