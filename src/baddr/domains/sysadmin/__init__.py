"""Sysadmin (Guestrin et al. 2003, as a POMDP): keep the computers of a network running."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
