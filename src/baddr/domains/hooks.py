"""Does what a domain tells the planner keep its promises? `rollout`, `legal`, `preferred`, `leaf_value`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from baddr import prng
from baddr.domains.domain import Domain
from baddr.domains.probabilities import walk
from baddr.domains.shapes import SEED, Kind, Problems, kinds, traced, zeros

MASKS = ("legal", "preferred")
BOUNDS = ("lower", "upper")


def hook_shapes(domain: Domain) -> Problems:
    """hooks: shapes and types of rollout, legal, preferred, leaf_value, lower and upper"""
    pomdp, s = domain.pomdp, zeros(domain.pomdp)[0]
    if domain.rollout is not None:
        action = Kind("an action", (), jnp.int32)
        yield from traced("rollout(key, s)", domain.rollout, (prng.key(SEED), s), (action,))
    mask = Kind("one entry for each action", (pomdp.num_actions,), jnp.bool_)
    for name in MASKS:
        if getattr(domain, name) is not None:
            yield from traced(f"{name}(s)", getattr(domain, name), (s,), (mask,))
    number = kinds(pomdp)["float"]
    if domain.leaf_value is not None:
        yield from traced("leaf_value(s)", domain.leaf_value, (s,), (number,))
    for name in BOUNDS:
        if getattr(domain, name) is not None:
            bound = best_of(getattr(domain, name))
            yield from traced(f"{name}(s, steps_left)", bound, (s, jnp.int32(1)), (number,))


def best_of(bound: Callable[..., Array]) -> Callable[..., Array]:
    """The best of several policies' values, where a bound gives those."""
    best = lambda x: jnp.max(x, axis=-1) if x.ndim == 1 else x
    return lambda *given: best(jnp.asarray(bound(*given)))


def leaf_is_finite(domain: Domain) -> Problems:
    """leaf_value: finite"""
    if domain.leaf_value is not None:
        value = np.asarray(jax.jit(jax.vmap(domain.leaf_value))(jnp.asarray(walk(domain.pomdp).s)))
        if not np.all(np.isfinite(value)):
            yield "leaf_value is not finite in a state that an episode can reach"


def some_action_is_legal(domain: Domain) -> Problems:
    """legal: every state that random walks act in has a legal action"""
    if domain.legal is not None:
        s = np.unique(walk(domain.pomdp).s, axis=0)
        stuck = s[~np.asarray(jax.jit(jax.vmap(domain.legal))(jnp.asarray(s))).any(-1)]
        if len(stuck):
            yield f"legal allows no action in {stuck[0].tolist()}, a state that an episode can reach"


def rollout_is_an_action(domain: Domain) -> Problems:
    """rollout: its actions exist, and are legal"""
    if domain.rollout is None:
        return
    s = jnp.asarray(np.unique(walk(domain.pomdp).s, axis=0))
    a = np.asarray(jax.jit(jax.vmap(domain.rollout))(jr.split(prng.key(SEED), len(s)), s))
    beyond = a[(a < 0) | (a >= domain.pomdp.num_actions)]
    if len(beyond):
        yield f"rollout chose action {beyond[0]}, outside 0 to {domain.pomdp.num_actions - 1}"
    elif domain.legal is not None:
        allowed = np.asarray(jax.jit(jax.vmap(domain.legal))(s))
        illegal = np.flatnonzero(allowed.any(-1) & ~allowed[np.arange(len(a)), a])
        if len(illegal):
            where = s[illegal[0]].tolist()
            yield f"rollout chose action {a[illegal[0]]} in {where}, where legal does not allow it"


HOOK_CHECKS = (leaf_is_finite, some_action_is_legal, rollout_is_an_action)
