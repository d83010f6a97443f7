"""How the network looks: a table of its computers."""

from baddr.domains.render import TABLE as RENDERER

__all__ = ["RENDERER"]
