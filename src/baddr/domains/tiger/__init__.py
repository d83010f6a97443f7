"""Tiger (Kaelbling et al. 1998): two doors, one good; listen, or open one and end the episode."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
