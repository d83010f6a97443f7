"""Learning problems: a folder for each (settings, model, view), and what they share. Needs no JAX itself."""

import importlib
from collections.abc import Callable
from typing import Any

_HOMES = {
    "Domain": "domain",
    "Names": "entry",
    "Prior": "finite",
    "from_environment": "black_box",
    "from_gymnasium": "toy_text",
    "from_simulators": "black_box",
    "from_tables": "finite",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'baddr.domains' has no attribute {name!r}")
    return getattr(importlib.import_module(f"baddr.domains.{_HOMES[name]}"), name)


def members_of_model(folder: str) -> Callable[[str], Any]:
    """The `__getattr__` of a domain's folder: its members are those of its model, which imports JAX."""

    def member(name: str) -> Any:
        if name in ("settings", "model", "view", "format"):
            return importlib.import_module(f"{folder}.{name}")
        if name.startswith("__"):  # what Python itself asks for
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{folder}.model"), name)

    return member
