"""Gridverse, the empty room of gym-gridverse: walk to the goal seeing only what is ahead."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
