"""D as whole tables, for the domains whose states can be listed: the tabular prior is made of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from baddr.core.pomdp import POMDP, SplitDynamics, all_vectors
from baddr.posteriors import Counts

KNOWN = 10_000.0  # the total of a Dirichlet row that is known


def every_vector(sizes: tuple[int, ...]) -> Int32[Array, "n features"]:
    """All feature vectors, by flat index."""
    return jnp.asarray(all_vectors(sizes))


@eqx.filter_jit
def transition_table(D: SplitDynamics, pomdp: POMDP) -> Float[Array, "S A S"]:
    """p(s' | s, a)."""
    s, a = every_vector(pomdp.state_sizes), jnp.arange(pomdp.num_actions, dtype=jnp.int32)
    over_s_next = jax.vmap(D.transition_log_prob, (None, None, 0))
    over_a = jax.vmap(over_s_next, (None, 0, None))
    return jnp.exp(jax.vmap(over_a, (0, None, None))(s, a, s))


@eqx.filter_jit
def observation_table(D: SplitDynamics, pomdp: POMDP) -> Float[Array, "A S Z"]:
    """p(o | a, s') where o does not depend on s."""
    s_next, a = every_vector(pomdp.state_sizes), jnp.arange(pomdp.num_actions, dtype=jnp.int32)
    over_o = jax.vmap(D.observation_log_prob, (None, None, None, 0))
    over_s_next = jax.vmap(lambda a, s_next, o: over_o(s_next, a, s_next, o), (None, 0, None))
    o = every_vector(pomdp.observation_sizes)
    return jnp.exp(jax.vmap(over_s_next, (0, None, None))(a, s_next, o))


def dirichlet_counts(D: SplitDynamics, pomdp: POMDP, total: float) -> Counts:
    """Counts whose expected model is D: `total` in rows of T with several outcomes, KNOWN in all others."""
    T, O = transition_table(D, pomdp), observation_table(D, pomdp)
    several = jnp.sum(T > 0, axis=-1, keepdims=True) > 1
    return Counts(T * jnp.where(several, total, KNOWN), O * KNOWN)
