"""How factored tiger looks: as tiger does."""

from baddr.domains.tiger.view import RENDERER

__all__ = ["RENDERER"]
