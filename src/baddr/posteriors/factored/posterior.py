"""The posterior over the counts of a Bayes network, and over its edges where they are uncertain."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.core.pomdp import Action, Observation, Scalar, State
from baddr.core.posterior import Posterior
from baddr.posteriors.evidence import log_evidence
from baddr.posteriors.factored.dynamics import (
    Edges,
    FactoredDynamics,
    Places,
    entries,
    inversion,
    row_starts,
    vector,
)
from baddr.posteriors.factored.graph import Graph, Structure, num_edges
from baddr.posteriors.factored.layout import Layout, Table, lay_out
from baddr.posteriors.factored.ties import tie


class FactoredCounts(NamedTuple):
    """theta: the counts of all learned nodes in one vector, and which of the uncertain edges are there."""

    counts: Float[Array, "*particles counts"]
    edges: Edges


class Factored(Posterior):
    """Dirichlet counts per node, action and parents' values; U adds one to the row of each learned node.

    With structure "true" all particles have the graph as it is, with "full" the candidates are parents too,
    and with "uncertain" each edge of a node that has candidates is there with `edge_probability`, in each
    particle independently: the filter then weighs structures. With "matched" only its candidates are
    uncertain: the parents that its prior counts depend on are there. The prior row of a node that lacks some
    of its parents is the mean of the rows over their values: a row's total is the same in every structure.

    `expected` (the default): a draw is the expected model of the counts. Otherwise it is drawn from the
    Dirichlets.
    """

    counts: Float[Array, " counts"]  # of the prior, all parents present
    known: Float[Array, " known"]
    places: Places | None
    layout: Layout = eqx.field(static=True)
    num_edges: int = eqx.field(static=True)
    edge_probability: float = eqx.field(static=True)
    expected: bool = eqx.field(static=True)

    def __init__(
        self,
        graph: Graph,
        structure: Structure = "true",
        edge_probability: float = 0.5,
        expected: bool = True,
        tied: bool = False,
    ):
        self.layout, counts, known = lay_out(graph, structure)
        self.places = None
        if tied:
            if structure != "true":
                raise ValueError("tied parameters need a structure that is known")
            counts, places, _ = tie(graph, self.layout, counts)
            self.places = jnp.asarray(places)
        self.counts, self.known = jnp.asarray(counts, jnp.float32), jnp.asarray(known, jnp.float32)
        self.num_edges, self.edge_probability = num_edges(graph, structure), edge_probability
        self.expected = expected

    def prior(self, key: Key[Array, ""]) -> FactoredCounts:
        edges = jr.bernoulli(key, self.edge_probability, (self.num_edges,))
        return FactoredCounts(self.prior_counts(edges), edges)

    def prior_counts(self, edges: Edges) -> Float[Array, " counts"]:
        """The prior of a structure: the mean over the values of the parents that are absent."""
        if self.num_edges == 0:
            return self.counts
        return jnp.concatenate([_prior_table(self.counts, table, edges) for table in self.layout.tables])

    def draw(self, key: Key[Array, ""], theta: FactoredCounts) -> PyTree:
        return None if self.expected else jr.bits(key, (2,))

    def dynamics(self, theta: FactoredCounts, epsilon: PyTree) -> FactoredDynamics:
        return self.dynamics_among(jax.tree.map(lambda x: x[None], theta), jnp.int32(0), epsilon)

    def dynamics_among(self, thetas: FactoredCounts, i: Int[Array, ""], epsilon: PyTree) -> FactoredDynamics:
        """The D of particle i among stacked theta, of which it reads single rows."""
        return FactoredDynamics(
            thetas.counts, i, thetas.edges[i], self.known, self.layout, epsilon, self.places
        )

    def update(
        self, key: Key[Array, ""], theta: FactoredCounts, s: State, a: Action, s_next: State, o: Observation
    ) -> FactoredCounts:
        learned = np.array(self.layout.learned)
        nodes = tuple(np.flatnonzero(learned.any(axis=0)).tolist())
        if not nodes:
            return theta
        x, n = [*s, *s_next, *o], len(s)
        index = row_starts(self.layout, nodes, theta.edges, a, x) + vector([x[n + i] for i in nodes])
        grows = jnp.asarray(learned[:, nodes])[a]
        if self.places is not None:
            index = _shared(key, theta.counts, self.places.at[index].get(mode="clip"))
        counts = theta.counts.at[jnp.where(grows, index, theta.counts.shape[0])].add(1, mode="drop")
        return FactoredCounts(counts, theta.edges)

    def log_score(self, theta: FactoredCounts) -> Scalar:
        """The Bayesian-Dirichlet score of theta's structure: log p(the data in its counts | structure)."""
        prior, score = self.prior_counts(theta.edges), jnp.zeros(())
        for table in self.layout.tables:
            part = slice(table.start, table.start + math.prod(table.shape))
            score += log_evidence(prior[part].reshape(table.shape), theta.counts[part].reshape(table.shape))
        return score


def _shared(
    key: Key[Array, ""], counts: Float[Array, " counts"], places: Int[Array, "nodes shares"]
) -> Int[Array, " nodes"]:
    """Where a value that was seen counts: of several categories that give it, one in proportion."""
    if places.shape[1] == 1:
        return places[:, 0]
    weights = jnp.where(places >= 0, counts[jnp.maximum(places, 0)], 0)
    return entries(places.astype(float), inversion(jr.uniform(key, places.shape[:1]), weights)).astype(
        jnp.int32
    )


def _prior_table(counts: Float[Array, " counts"], table: Table, edges: Edges) -> Float[Array, " entries"]:
    rows = counts[table.start : table.start + math.prod(table.shape)].reshape(table.shape)
    for axis, edge in enumerate(table.edges):
        if edge >= 0:
            rows = jnp.where(edges[edge], rows, jnp.mean(rows, axis=axis, keepdims=True))
    return rows.reshape(-1)


def expected_dynamics(graph: Graph) -> FactoredDynamics:
    """The expected model of a graph's prior: the graph itself, where all its nodes are known."""
    posterior = Factored(graph)
    return posterior.dynamics(FactoredCounts(posterior.counts, jnp.zeros((0,), bool)), None)


def edge_probabilities(edges: Edges, weights: Float[Array, " particles"]) -> Float[Array, " edges"]:
    """p(edge | history) for each uncertain edge, from the particles."""
    return jax.vmap(lambda e: jnp.sum(jnp.where(e, weights, 0)), in_axes=1)(edges)
