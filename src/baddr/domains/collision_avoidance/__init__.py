"""Collision avoidance (Luo et al. 2019): a plane crosses a grid and must not meet a moving obstacle."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
