"""The factored BA-POMDP (Katt et al. 2019): a dynamic Bayes network per action with Dirichlet counts.

Only the counts of what is learned are part of theta, so that memory depends on what is uncertain. Where the
parents of a node are uncertain themselves, a particle carries its own graph: a bit for each edge. The tables
have room for all parents; a parent that is absent counts as 0 in the index of the row.
"""

from baddr.posteriors.factored.dynamics import FactoredDynamics
from baddr.posteriors.factored.graph import Computed, Feature, Graph, Node, Tie, parents
from baddr.posteriors.factored.posterior import Factored, FactoredCounts, expected_dynamics

__all__ = [
    "Computed",
    "Factored",
    "FactoredCounts",
    "FactoredDynamics",
    "Feature",
    "Graph",
    "Node",
    "Tie",
    "expected_dynamics",
    "parents",
]
