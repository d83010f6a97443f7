"""Factored tiger (Katt et al. 2019): tiger with binary features that have nothing to do with anything."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
