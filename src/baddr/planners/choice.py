"""How simulations choose: by UCB in the tree, by a policy below it.

Several simulations may stand at one node. They choose in turn: each sees the visits of those before it, as if
it came later. Without that all of them would see the same N and choose alike, and a search with many
simulations in flight would lose much of its return.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.planner import random_argmax
from baddr.core.pomdp import Action, Scalar

Mask = Bool[Array, "*places A"]


class Hooks(NamedTuple):
    """What a domain knows of good play; None where it knows nothing."""

    rollout: Callable[[Key[Array, ""], Any], Action] | None = None  # a policy below the tree: (key, s) -> a
    legal: Callable[[Any], Mask] | None = None  # the actions that s allows; others are never simulated
    preferred: Callable[[Any], Mask] | None = None  # those to try first, and to draw below the tree
    leaf_value: Callable[[Any], Scalar] | None = None  # s -> V(s), in place of what lies below the tree
    upper: Callable[[Any, Int[Array, ""]], Scalar] | None = None  # (s, steps left) -> a bound on V from above


class Seen(NamedTuple):
    """What a simulation sees where it stands: a node's statistics, and what its s allows."""

    N: Float[Array, "*places A"]
    Q: Float[Array, "*places A"]
    average: Float[Array, "*places"]  # of the returns of all actions
    legal: Mask | None = None  # None: all
    preferred: Mask | None = None


def seen_from(hooks: Hooks, s: Any, N: Array, Q: Array, average: Array) -> Seen:
    """With what the hooks say about s. Where nothing would be left, everything is."""
    legal = None if hooks.legal is None else _or_all(hooks.legal(s))
    preferred = None if hooks.preferred is None else hooks.preferred(s)
    if preferred is not None:
        preferred = _or_all(preferred if legal is None else preferred & legal)
    return Seen(N, Q, average, legal, preferred)


def _or_all(mask: Mask) -> Mask:
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def scores(seen: Seen, u: float) -> Float[Array, " A"]:
    """Q + u sqrt(ln(1 + N(h)) / N(h, a)), infinite for untried actions.

    Where some actions are preferred, only those are tried before all others; the rest start as if they had
    been tried once, with the average return."""
    N, Q = seen.N, seen.Q
    bonus = u * jnp.sqrt(jnp.log1p(jnp.sum(N)) / jnp.maximum(N, 1))
    untried = jnp.inf if seen.preferred is None else jnp.where(seen.preferred, jnp.inf, seen.average + bonus)
    found = jnp.where(N > 0, Q + bonus, untried)
    return found if seen.legal is None else jnp.where(seen.legal, found, -jnp.inf)


def ucb(key: Key[Array, ""], N: Float[Array, " A"], Q: Float[Array, " A"], u: float) -> Action:
    """The action of the highest score; untried actions first; ties at random."""
    return random_argmax(key, scores(Seen(N, Q, jnp.float32(0)), u))


def at_once(keys: Key[Array, " places"], seen: Seen, u: float) -> Int[Array, " places"]:
    """Each by itself."""
    return jax.vmap(lambda key, seen: random_argmax(key, scores(seen, u)))(keys, seen)


def in_turn(
    keys: Key[Array, " places"], site: Int[Array, " places"], seen: Seen, u: float
) -> Int[Array, " places"]:
    """One after another: each sees the choices of those before it at the same site.

    On a CPU the loop is compiled into one function. It has neither gather nor scatter: the visits of all who
    stand at a site are counted up for each of them."""
    num_places, A = seen.N.shape
    ties = jax.vmap(lambda key: jr.uniform(key, (A,)))(keys)
    same = site[:, None] == site[None]
    actions, i = jnp.arange(A, dtype=jnp.int32), jnp.arange(num_places, dtype=jnp.int32)

    def one(N: Float[Array, "places A"], x: tuple[Any, ...]) -> tuple[Float[Array, "places A"], Action]:
        i, tie, beside, mine = x
        score = scores(mine._replace(N=N[i]), u)  # as in `random_argmax`, whose numbers were drawn before
        a = jnp.argmax(jnp.where(score == jnp.max(score), tie, -1)).astype(jnp.int32)
        return N + (beside[:, None] & (actions == a)[None]).astype(N.dtype), a

    return jax.lax.scan(one, seen.N, (i, ties, same, seen))[1]
