"""The belief tree: best-first search over weighted-particle beliefs with bounds.

`settings` says what is chosen about it, `search` is the tree, `nodes` are its beliefs (particles, or tables
over states), `bounds` are what its leaves are valued by. Needs no JAX itself.
"""

from baddr.planners.belief_tree.settings import BeliefTree

__all__ = ["BeliefTree"]
