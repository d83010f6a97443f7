"""Light-Dark, discrete: go where one sees well, then to the goal, and stop there."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
