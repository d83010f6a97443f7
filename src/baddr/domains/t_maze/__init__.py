"""T-maze (Bakker 2001): remember a cue along a corridor, and turn to the side that it named."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
