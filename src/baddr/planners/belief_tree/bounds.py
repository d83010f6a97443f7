"""Bounds on the value of a belief with h steps left, as vectors over states.

Below: max_k sum_s b(s) lower[h, k, s]. Each vector is the value of a policy: here of one action for ever (a
blind policy). Above: max_k sum_s b(s) upper[h, k, s], the values of actions to one who will see the state
from the next step on (QMDP). Both by finite-horizon value iteration in a tabular model.

In a model that is known both are bounds, and in a few models taken apart. Where the belief's mean model has
to do, they are what an agent that learns nothing more would have, and may be wrong by what it learns. Where
there are too many states for vectors, they are regressions on features of s, and no bounds (`fitted`). A
domain may have bounds of its own, functions of (s, h).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from baddr.core.pomdp import Scalar, State, all_vectors, flat_index
from baddr.planners.belief_tree.features import Features, values_at

# Of a domain's own: (s, steps left) -> value, or those of several policies, of which a belief takes the best.
# (From above: of several ways to go on, one of which every policy takes.)
Bound = Callable[[State, Int[Array, ""]], Scalar | Float[Array, " policies"]]
Own = tuple[Bound | None, Bound | None]  # from below and from above


class Model(eqx.Module):
    """Tabular: R(s, a), and what follows a transition that does not end the episode."""

    R: eqx.AbstractVar[Float[Array, "A S *models"]]

    @abstractmethod
    def expect(self, V: Float[Array, "A S *models"]) -> Float[Array, "A S *models"]:
        """sum_s' p(s' | s, a) V[a, s'] for each a and s."""


class Rows(Model):
    """p(s' | s, a) in full."""

    T: Float[Array, "A S S"]  # transitions that do not end the episode: rows may sum to less than one
    R: Float[Array, "A S"]

    def expect(self, V: Float[Array, "A S"]) -> Float[Array, "A S"]:
        return jnp.einsum("asn,an->as", self.T, V)


class ManyRows(Model):
    """Of several models, side by side."""

    T: Float[Array, "A S S models"]
    R: Float[Array, "A S models"]

    def expect(self, V: Float[Array, "A S models"]) -> Float[Array, "A S models"]:
        return jnp.sum(self.T * V[:, None], axis=2)


class Draws(Model):
    """A few s' drawn from each p(s' | s, a), where there are too many states for rows."""

    s_next: Int[Array, "A S draws"]  # ranks
    mass: Float[Array, "A S draws"]  # a draw's share; 0 where the episode ended
    R: Float[Array, "A S"]

    def expect(self, V: Float[Array, "A S"]) -> Float[Array, "A S"]:
        return jax.vmap(lambda V, i, mass: jnp.sum(mass * V[i], axis=-1))(V, self.s_next, self.mass)


NONE = -1  # of the models
NOTHING = -1e9  # a bound from below that says nothing


class Policies(eqx.Module):
    """What some policies are worth in each state of a few models, the states of one model after another's."""

    alphas: Float[Array, "_ J_S N"]  # by steps left, or one for all numbers of steps
    later: Float[Array, " H"]  # what `alphas` count that may be earned after the last of h steps
    num_models: int = eqx.field(static=True)

    def at(self, rank: Int[Array, " m"], which: Int[Array, ""], h: Int[Array, ""]) -> Float[Array, "m N"]:
        """With h steps left, in one of the models, in states by rank. Of no model: nothing is promised."""
        last = lambda x: jnp.minimum(h, x.shape[0] - 1)
        num_states = self.alphas.shape[1] // self.num_models
        found = self.alphas[last(self.alphas), which * num_states + rank] - self.later[last(self.later)]
        return jnp.where(which == NONE, NOTHING, found)


class Bounds(eqx.Module):
    """By steps left h; the last entry also serves for more steps than there are entries."""

    lower: Float[Array, "H L S"] | None
    upper: Float[Array, "H K S"] | None
    own: Own = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    features: Features | None = None  # whose weights stand in `lower` and `upper` in place of states
    policies: tuple[Policies, Int[Array, ""]] | None = None  # from below, too: those of one of their models

    def at(self, s: Int[Array, "m state_features"], h: Int[Array, ""]) -> "Values":
        """What these states are worth with h steps left."""
        if self.features is not None:
            phi = self.features(s)
            return self._values(h, s, lambda weights: values_at(weights, phi))
        rank = jax.vmap(lambda s: flat_index(s, self.sizes))(s)
        values = self._values(h, s, lambda table: table[:, rank])
        if self.policies is None:
            return values
        policies, which = self.policies
        found = policies.at(rank, which, h)
        own = () if values.own_lower is None else (values.own_lower.reshape(s.shape[0], -1),)
        return values._replace(own_lower=jnp.concatenate([found, *own], axis=1))

    def everywhere(self, h: Int[Array, ""], models: int = 1) -> "Values":
        """What all states are worth, by rank, in each of a few models."""
        s = jnp.repeat(jnp.asarray(all_vectors(self.sizes)), models, axis=0)
        return self._values(h, s, lambda table: table)

    def _values(self, h: Int[Array, ""], s: Array, columns: Callable[[Array], Array]) -> "Values":
        tables = [None if x is None else columns(x[jnp.minimum(h, x.shape[0] - 1)]) for x in self._tables]
        own = [None if f is None else jax.vmap(f, in_axes=(0, None))(s, h) for f in self.own]
        return Values(*tables, *own)

    @property
    def _tables(self) -> tuple[Array | None, Array | None]:
        return self.lower, self.upper


class Values(NamedTuple):
    """Of m states with some steps left."""

    lower: Float[Array, "L m"] | None
    upper: Float[Array, "K m"] | None
    own_lower: Float[Array, "m *policies"] | None  # of policies, one beside another
    own_upper: Float[Array, "m *policies"] | None

    def bound(self, b: Float[Array, "*n m"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """Bounds on the values of beliefs over these states: the best of what there is."""
        best = lambda table: jnp.max(b @ table.T, axis=-1)
        lower = [best(x) for x in (self.lower,) if x is not None]
        several = lambda x: b @ x if x.ndim == 1 else jnp.max(b @ x, axis=-1)  # a domain's best policy
        lower += [several(x) for x in (self.own_lower,) if x is not None]
        upper = [best(x) for x in (self.upper,) if x is not None]
        upper += [several(x) for x in (self.own_upper,) if x is not None]
        below, above = jnp.max(jnp.stack(lower), axis=0), jnp.min(jnp.stack(upper), axis=0)
        return jnp.minimum(below, above), above


def value_iteration(
    model: Model, discount: float, horizon: int
) -> tuple[Float[Array, "H A S *models"], Float[Array, "H A S *models"]]:
    """The values of blind policies, and QMDP's, with 0, 1, ..., `horizon` steps left."""
    R = model.R

    def sweep(vectors: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        blind, Q = vectors
        V = jnp.broadcast_to(jnp.max(Q, axis=0), Q.shape)
        after = R + discount * model.expect(blind), R + discount * model.expect(V)
        return after, after

    nothing = jnp.zeros_like(R)
    _, (lower, upper) = jax.lax.scan(sweep, (nothing, nothing), length=horizon)
    first = lambda x: jnp.concatenate([nothing[None], x])
    return first(lower), first(upper)
