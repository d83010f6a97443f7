"""The beliefs of a tree: weights over particles (s_i, D_i), or over all states in each of a few models.

D_i is drawn once, at the root: a node's weights are then the posterior over states *and* models given what
was seen on the way, so that what the agent would learn inside the tree counts as in root sampling (Alg. 2).
"""

from abc import abstractmethod
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, mass_of, systematic_indices
from baddr.core.pomdp import POMDP, all_vectors, flat_index
from baddr.planners.belief_tree.bounds import Bounds, ManyRows, Own, value_iteration
from baddr.planners.belief_tree.draws import Draws, Stepped, outcomes_of
from baddr.planners.belief_tree.mean_model import outcomes, what_is_drawn
from baddr.posteriors.bank import Bank

MOST_LISTED = 64  # observations: of more, the likeliest are followed
MOST_COUNTED = 512  # observations: of more, those that particles saw are compared with each other


class Expansion(NamedTuple):
    """What may follow a belief: for each action and observation, a child."""

    rho: Float[Array, " A"]  # expected reward
    W: Float[Array, "A C m"]  # weights of the children; they sum to p(o, the episode goes on | b, a)
    of: PyTree  # for each action: what the weights are about, if that changes


class Nodes(eqx.Module):
    """Beliefs as weights, and the step from one to its children."""

    num_children: eqx.AbstractVar[int]  # of each action

    @abstractmethod
    def root(self) -> tuple[Float[Array, " m"], PyTree]:
        """The weights of the root, and what they are about."""

    @abstractmethod
    def expand(
        self, key: Key[Array, ""], w: Float[Array, " m"], of: PyTree, last: Bool[Array, ""]
    ) -> Expansion:
        """The children of a belief; after the `last` step only its reward matters."""

    @abstractmethod
    def bound(self, bounds: Bounds, W: Float[Array, "C m"], of: PyTree, h: Int[Array, ""]) -> "Pair":
        """Bounds on the values of some beliefs, times the sums of their weights."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of the model that an expansion takes."""


Pair = tuple[Float[Array, " C"], Float[Array, " C"]]


# Particles.


class Drawn(NamedTuple):
    """Particles of a belief with one D each."""

    s: Int[Array, "m state_features"]
    weights: Float[Array, " m"]
    i: Int[Array, " m"]  # whose theta
    epsilon: PyTree


def draw_root(key: Key[Array, ""], gba: GBAPOMDP, belief: Particles, m: int) -> Drawn:
    """m particles drawn by weight, or where there are fewer, all of them with their weights: as often as they
    fit, each time with another D.

    They are drawn in the order of their states, so that the mass of each state is right to within 1 / m.
    """
    n = belief.num_particles
    key_i, key_D = jr.split(key)
    if m < n or isinstance(gba.posterior, Bank):  # of whose particles many may have no weight
        order = jnp.argsort(jax.vmap(lambda s: flat_index(s, gba.state_sizes))(belief.states.s))
        i = order[systematic_indices(key_i, belief.weights[order], m)].astype(jnp.int32)
        weights = jnp.full((m,), 1 / m)
    else:
        times = num_drawn(gba, n, m) // n
        i = jnp.tile(jnp.arange(n, dtype=jnp.int32), times)
        weights = jnp.tile(belief.weights / times, times)
    epsilon = gba.models.draw(jr.split(key_D, i.shape[0]), belief.states.theta, i)
    return Drawn(belief.states.s[i], weights, i, epsilon)


def num_drawn(gba: GBAPOMDP, n: int, m: int) -> int:
    """How many particles a plan of m has. Where a draw adds nothing to theta, none of the n comes twice."""
    if m < n or isinstance(gba.posterior, Bank):
        return m
    return m // n * n if what_is_drawn(gba.posterior)[1] else n


class ParticleNodes(Nodes):
    """Beliefs as weights of the root's particles; a step draws an s' for each particle and action."""

    pomdp: POMDP
    draws: Draws
    s: Int[Array, "m state_features"]
    weights: Float[Array, " m"]
    num_children: int = eqx.field(static=True)
    listed: bool = eqx.field(static=True)  # every observation is followed

    def root(self) -> tuple[Float[Array, " m"], Int[Array, "m state_features"]]:
        return self.weights, self.s

    def expand(
        self,
        key: Key[Array, ""],
        w: Float[Array, " m"],
        of: Int[Array, "m state_features"],
        last: Bool[Array, ""],
    ) -> Expansion:
        m, A = of.shape[0], self.pomdp.num_actions
        step = self.draws.step(jnp.swapaxes(jr.split(key, (A, m)), 0, 1), of)
        r, ends = outcomes_of(self.pomdp, of, step.s_next)
        alive = jnp.where(ends, 0, w[:, None])
        nothing = lambda: jnp.zeros((A, self.num_children, m))
        W = jax.lax.cond(last, nothing, lambda: self._weights(alive, step))
        return Expansion(w @ r, W, jnp.moveaxis(step.s_next, 1, 0))

    def _weights(self, alive: Float[Array, "m A"], step: Stepped) -> Float[Array, "A C m"]:
        """Of the children: of every observation, or of the likeliest."""
        seen, sizes = self.draws.see(step), self.pomdp.observation_sizes
        if self.listed:
            every = jnp.asarray(all_vectors(sizes))
            o = jnp.broadcast_to(every, (alive.shape[1], *every.shape))
            return alive.T[:, None] * self.draws.weigh(step, seen, o)
        find = likeliest if self.pomdp.num_observations > MOST_COUNTED else partial(likeliest_of_few, sizes)
        o, followed = jax.vmap(find, in_axes=(1, 1, None))(seen.o, alive, self.num_children)
        W = alive.T[:, None] * jnp.where(followed[:, :, None], self.draws.weigh(step, seen, o), 0)
        # What is not followed goes, in proportion, to what is.
        return W * (jnp.sum(alive, axis=0) / jnp.maximum(jnp.sum(W, axis=(1, 2)), TINY))[:, None, None]

    def bound(
        self, bounds: Bounds, W: Float[Array, "C m"], of: Int[Array, "m state_features"], h: Int[Array, ""]
    ) -> Pair:
        return bounds.at(of, h).bound(W)

    @property
    def steps(self) -> int:
        return self.weights.shape[0] * self.pomdp.num_actions


TINY = 1e-30


def likeliest(
    o: Int[Array, "m observation_features"], mass: Float[Array, " m"], count: int
) -> tuple[Int[Array, "count observation_features"], Bool[Array, " count"]]:
    """The observations of greatest mass among those that the particles saw, and whether each was seen.

    They are compared by a hash: two that share one (of 2^32) would be followed as one.
    """
    word = _hash(o)
    same = word[:, None] == word[None]
    first = jnp.argmax(same, axis=1) == jnp.arange(len(word))
    score = jnp.where(first, jnp.sum(jnp.where(same, mass[None], 0), axis=1), -1)
    count = min(count, len(word))
    score, i = jax.lax.top_k(score, count)
    return o[i], score > 0


def likeliest_of_few(
    sizes: tuple[int, ...], o: Int[Array, "m observation_features"], mass: Float[Array, " m"], count: int
) -> tuple[Int[Array, "count observation_features"], Bool[Array, " count"]]:
    """`likeliest`, where there are so few observations that the mass of each can be counted."""
    rank = jax.vmap(lambda o: flat_index(o, sizes))(o)
    every = jnp.asarray(all_vectors(sizes))
    score, i = jax.lax.top_k(mass_of(rank, mass, len(every)), count)
    return every[i], score > 0


def _hash(o: Int[Array, "m observation_features"]) -> UInt32[Array, " m"]:
    odd = np.random.default_rng(0).integers(2**31, size=o.shape[-1]).astype(np.uint32) * np.uint32(2) + 1
    return jnp.sum(o.astype(jnp.uint32) * odd[None], axis=-1, dtype=jnp.uint32)


# Tables.


class Before(NamedTuple):
    """For each a and s': the s that may lead there, and p(s' | s, a)."""

    s: Int[Array, "A S sources"]
    p: Float[Array, "A S sources"]  # 0 where there are fewer sources


class Tables(NamedTuple):
    """A few models in full, side by side in the last axis. Transitions that end the episode are left out."""

    T: Float[Array, "A S S models"]  # by s and s'
    # p(o | a, s') by o and s', where o does not depend on s; else p(s', o | s, a) by s, o and s'
    O: Float[Array, "A Z S models"] | Float[Array, "A S Z S models"]
    R: Float[Array, "A S models"]
    before: Before | None = None  # of one model, where few s lead to each s'


class TableNodes(Nodes):
    """Beliefs as weights of all states in each model: nothing is drawn."""

    tables: Tables
    weights: Float[Array, " S_models"]
    num_children: int = eqx.field(static=True)

    def root(self) -> tuple[Float[Array, " m"], PyTree]:
        return self.weights, ()

    def expand(
        self, key: Key[Array, ""], w: Float[Array, " m"], of: PyTree, last: Bool[Array, ""]
    ) -> Expansion:
        T, O, R, before = self.tables
        A, S, _, models = T.shape
        w = w.reshape(1, S, models)
        if O.ndim == 5:
            W = jnp.sum(w[:, :, None, None] * O, axis=1)
        elif models > 1:
            W = jnp.sum(w[:, :, None] * T, axis=1)[:, None] * O
        elif before is None:
            W = self._likeliest(w[0, :, 0] @ T[..., 0])
        else:
            W = self._likeliest(jnp.sum(w[0, before.s, 0] * before.p, axis=-1))
        return Expansion(jnp.sum(w * R, axis=(1, 2)), W.reshape(A, self.num_children, S * models), ())

    def bound(self, bounds: Bounds, W: Float[Array, "C m"], of: PyTree, h: Int[Array, ""]) -> Pair:
        return bounds.everywhere(h, models=self.tables.T.shape[-1]).bound(W)

    @property
    def steps(self) -> int:
        return self.tables.R.size

    def _likeliest(self, reached: Float[Array, "A S"]) -> Float[Array, "A C S"]:
        """The weights after the likeliest observations; the others' go to them, in proportion."""
        O = self.tables.O[..., 0]
        if self.num_children == O.shape[1]:
            return reached[:, None] * O
        P = jnp.einsum("as,azs->az", reached, O)
        kept, i = jax.lax.top_k(P, self.num_children)
        scale = jnp.sum(P, axis=1) / jnp.maximum(jnp.sum(kept, axis=1), TINY)
        followed = jax.vmap(lambda O, i: O[i])(O, i)
        return (reached * scale[:, None])[:, None] * followed


def tables_of(
    pomdp: POMDP,
    T: Float[Array, "models A S S"],
    O: Float[Array, "models A S Z"] | Float[Array, "models A S S Z"],
) -> Tables:
    """Of models by p(s' | s, a) and p(o | a, s'), or p(o | s, a, s')."""
    ends, R = outcomes(pomdp)
    T, O = jnp.moveaxis(T, 0, -1), jnp.swapaxes(jnp.moveaxis(O, 0, -1), -2, -3)
    on = jnp.where(ends[..., None], 0, T)
    return Tables(on, O if O.ndim == 4 else on[:, :, None] * O, jnp.sum(T * R[..., None], axis=2))


def bounds_of(tables: Tables, discount: float, horizon: int, own: Own, sizes: tuple[int, ...]) -> Bounds:
    """Bounds in each of the models: of one who would see which it is, from above; of one who will never know
    more, from below. They hold for what is learned in the tree, too."""
    lower, upper = value_iteration(ManyRows(tables.T, tables.R), discount, horizon)
    flat = lambda x: x.reshape(*x.shape[:2], -1)
    return Bounds(flat(lower), flat(upper), own, sizes)


def root_weights(drawn: Drawn, models: int, sizes: tuple[int, ...]) -> Float[Array, " S_models"]:
    """The weights of the drawn particles by state and model; one model: all of them together."""
    S = int(np.prod(sizes))
    rank = jax.vmap(lambda s: flat_index(s, sizes))(drawn.s)
    if models == 1:
        return mass_of(rank, drawn.weights, S)
    here = jnp.arange(S, dtype=rank.dtype)[:, None] == rank[None]
    return jnp.where(here, drawn.weights[None], 0).reshape(-1)
