"""How a .pomdp file looks: a table of the state and the observation."""

from baddr.domains.render import TABLE as RENDERER

__all__ = ["RENDERER"]
