"""Rao-Blackwell tables: a belief in which few features are sampled and the others are summed out.

The state is (u, x): features u that are computed, and features x_i that depend on x_i, u and a. A particle
holds u and, for each i, a table b_i(x_i, k_i) over the feature's value and a bank of models of it. A step
predicts every table, goes through the outcomes of the few that u' and o read, and conditions those on what
was seen. Given u's path this is exact: particles differ by u alone.

In the particle's s the x_i are one draw from the tables, for planners and readers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.models import Indices, Proposals, RestartingModels, draw_each
from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Action, Observation, State, Transition
from baddr.core.posterior import Posterior, Theta
from baddr.posteriors.factored import Factored, FactoredDynamics, Graph
from baddr.posteriors.factored.dynamics import inversion
from baddr.posteriors.forms import Form, numbers


class TableTheta(NamedTuple):
    """theta: b_i(x_i, k_i), and the x_i of the particle's s."""

    b: Float[Array, "*particles features values models"]
    x: Int[Array, "*particles features"]


class FeatureTables(Posterior):
    """Tables for features that have the form; their models are points of a bank in place of counts."""

    factored: Factored
    bank: Float[Array, "models counts"]  # weights in proportion to probabilities, as counts are
    weights: Float[Array, "features models"]  # of the models, by the prior
    start: Float[Array, "features values"]  # p(x_0)
    T: Float[Array, "contexts features values values models"]  # p(x' | x) of each model, by (u, a)
    evidence: tuple[Float[Array, "A _ features values models"], ...]  # of what is seen by chance
    reads: Int[Array, "contexts read"]  # the features that u' and o are computed from; beyond the last: none
    outcome: Int[Array, "contexts outcomes"]  # u', by the values of these
    seen: Int[Array, "contexts outcomes computed"]  # the computed features of o
    factors: Bool[Array, " contexts"]  # whether what is seen tells of each of them apart
    form: Form = eqx.field(static=True)

    def prior(self, key: Key[Array, ""]) -> TableTheta:
        b = self.start[:, :, None] * self.weights[:, None]
        return TableTheta(b, jnp.argmax(self.start, axis=1).astype(jnp.int32))

    def draw(self, key: Key[Array, ""], theta: TableTheta) -> Int[Array, " features"]:
        """k_i ~ b_i(. | x_i)."""
        rows = jnp.take_along_axis(theta.b, theta.x[:, None, None], axis=1)[:, 0]
        return drawn(jr.uniform(key, rows.shape[:1]), rows)

    def dynamics(self, theta: TableTheta, epsilon: Int[Array, " features"]) -> FactoredDynamics:
        f, owner = self.factored, jnp.array(self.form.owner, jnp.int32)
        nothing = jnp.zeros((0,), bool)
        return FactoredDynamics(self.bank, epsilon[owner], nothing, f.known, f.layout, None, f.places)

    def update(
        self, key: Key[Array, ""], theta: TableTheta, s: State, a: Action, s_next: State, o: Observation
    ) -> TableTheta:
        """Every table predicted, and those that were read conditioned on u' and o."""
        c, x = self.context(s, a), s_next[np.array(self.form.features)]
        same = self.possible(c, o) & (self.outcome[c] == self.form.sampled_number(s_next))
        q = jnp.where(self.kept(c, same, x)[:, :, None], self.predict(theta, c, a, o), 0)
        total = jnp.sum(q, axis=(1, 2), keepdims=True)
        return TableTheta(jnp.where(total > 0, q / jnp.where(total > 0, total, 1), theta.b), x)

    def context(self, s: State, a: Action) -> Int[Array, ""]:
        """The number of (u, a)."""
        return self.form.sampled_number(s) * self.form.num_actions + a

    def predict(
        self, theta: TableTheta, c: Int[Array, ""], a: Action, o: Observation
    ) -> Float[Array, "features values models"]:
        """b_i(x'_i, k_i), times the probability of what is seen of x'_i by chance."""
        b, T = theta.b, self.T[c]
        q = sum((b[:, x, None] * T[:, x] for x in range(1, b.shape[1])), b[:, 0, None] * T[:, 0])
        for of, table in zip(self.form.chance, self.evidence, strict=True):
            q = q * table[a, o[of]]
        return q

    def possible(self, c: Int[Array, ""], o: Observation) -> Bool[Array, " outcomes"]:
        """The outcomes whose computed features are those of o."""
        if not self.form.computed:
            return jnp.ones(self.outcome.shape[1:], bool)
        return jnp.all(self.seen[c] == o[np.array(self.form.computed)][None], axis=1)

    def joint(
        self, c: Int[Array, ""], marginals: Float[Array, "features values"]
    ) -> Float[Array, " outcomes"]:
        """The probability of each outcome: the product over the features that are read."""
        none = jnp.eye(1, marginals.shape[1], dtype=marginals.dtype)  # a feature that is not there is 0
        rows = jnp.concatenate([marginals, none])[self.reads[c]]
        digits = self.form.digits
        p = rows[0][digits[:, 0]]
        for r in range(1, digits.shape[1]):
            p = p * rows[r][digits[:, r]]
        return p

    def kept(
        self, c: Int[Array, ""], same: Bool[Array, " outcomes"], x: Int[Array, " features"]
    ) -> Bool[Array, "features values"]:
        """The values that what was seen leaves of each feature; where it does not tell them apart, those of
        s'."""
        m, size = self.start.shape
        values, digits = jnp.arange(size, dtype=jnp.int32), self.form.digits
        keep = jnp.ones((m + 1, size), bool)
        for r in range(digits.shape[1]):
            left = jnp.any(same[None] & (digits[:, r][None] == values[:, None]), axis=1)
            of = self.reads[c, r]
            drawn = values == jnp.concatenate([x, jnp.zeros((1,), x.dtype)])[of]
            keep = keep.at[of].set(jnp.where(self.factors[c], left, drawn))
        return keep[:m]


class TableModels(RestartingModels):
    """Steps that look at o: u' is drawn given o, and weighed by p(o | u, tables, a).

    For rejection sampling, o~ is o with that probability, and something else otherwise.
    """

    posterior: FeatureTables

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return jax.vmap(function)

    def dynamics(self, thetas: TableTheta, i: Int[Array, ""], epsilon: PyTree) -> FactoredDynamics:
        return self.posterior.dynamics(thetas, epsilon)

    def restart(self, thetas: TableTheta, s: Int[Array, "n state_features"]) -> TableTheta:
        """The values forgotten, the models kept."""
        models = jnp.sum(thetas.b, axis=2)
        b = self.posterior.start[None, :, :, None] * models[:, :, None]
        return TableTheta(b, s[:, np.array(self.posterior.form.features)])

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def propose(
        self,
        keys: Key[Array, " n"],
        thetas: TableTheta,
        i: Indices,
        epsilons: PyTree,
        s: Int[Array, "n state_features"],
        given: tuple[Action, Observation],
    ) -> Proposals:
        one = lambda key, i, s: self._one(key, tree_at_index(thetas, i), s, *given)
        return jax.vmap(one)(keys, i, s)

    def _one(self, key: Key[Array, ""], theta: TableTheta, s: State, a: Action, o: Observation) -> Proposals:
        p, form = self.posterior, self.posterior.form
        c, u = p.context(s, a), jr.uniform(key, (2 + len(form.features),))
        marginals = jnp.sum(p.predict(theta, c, a, o), axis=2)
        total = jnp.sum(marginals, axis=1)
        joint = p.joint(c, marginals)
        fits = jnp.where(p.possible(c, o), joint, 0)
        read = jnp.any(jnp.arange(len(form.features), dtype=jnp.int32)[:, None] == p.reads[c][None], axis=1)
        w = jnp.prod(jnp.where(read, 1, total)) * jnp.sum(fits)
        j = drawn(u[:1], jnp.where(w > 0, fits, joint)[None])[0]
        x = drawn(u[2:], marginals)
        digits, reads = jnp.asarray(form.digits)[j], p.reads[c]
        x = x.at[reads].set(digits, mode="drop")
        s_next = form.state(p.outcome[c, j], x)
        other = o.at[0].set((o[0] + 1) % form.first_size)
        return Proposals(s_next, jnp.where(u[1] < w, o, other), jnp.log(w))

    def log_likelihood(
        self, thetas: TableTheta, i: Indices, epsilons: PyTree, steps: Transition
    ) -> Float[Array, " n"]:
        raise NotImplementedError("tables weigh before the update")

    def update(
        self,
        keys: Key[Array, " n"],
        thetas: TableTheta,
        i: Indices,
        steps: Transition,
        learn: Bool[Array, ""],
    ) -> TableTheta:
        def one(key: Key[Array, ""], i: Int[Array, ""], s: State, s_next: State) -> TableTheta:
            theta = tree_at_index(thetas, i)
            after = self.posterior.update(key, theta, s, steps.a, s_next, steps.o)
            return jax.tree.map(lambda x, y: jnp.where(learn, x, y), after, theta)

        return jax.vmap(one)(keys, i, steps.s, steps.s_next)


def feature_tables(graph: Graph, start: Sequence[Float[np.ndarray, " _"]], grid: int) -> FeatureTables:
    """The tables of a graph, whose features start as `start` says; each Dirichlet has a grid of models."""
    found = numbers(graph, start, grid)
    return FeatureTables(
        factored=found.factored,
        bank=jnp.asarray(found.bank, jnp.float32),
        weights=jnp.asarray(found.weights, jnp.float32),
        start=jnp.asarray(found.start, jnp.float32),
        T=jnp.asarray(found.T),
        evidence=tuple(map(jnp.asarray, found.evidence)),
        reads=jnp.asarray(found.reads),
        outcome=jnp.asarray(found.outcome),
        seen=jnp.asarray(found.seen),
        factors=jnp.asarray(found.factors),
        form=found.form,
    )


def drawn(u: Float[Array, " n"], rows: Float[Array, "n values"]) -> Int[Array, " n"]:
    """A value of each row in proportion to its weights."""
    if rows.shape[1] <= 8:
        return inversion(u, rows)
    running = jnp.cumsum(rows, axis=1)
    index = jnp.sum(running <= u[:, None] * running[:, -1:], axis=1, dtype=jnp.int32)
    return jnp.minimum(index, jnp.sum(running < running[:, -1:], axis=1, dtype=jnp.int32))
