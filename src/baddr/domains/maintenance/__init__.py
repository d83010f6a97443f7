"""Maintenance: a machine wears out; run it, inspect it or replace it."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
