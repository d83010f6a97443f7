"""A finite POMDP from a file in Cassandra's format, and a prior about it."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
