"""Baselines that are not Bayesian. Imported on first use: their settings need no JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baddr.agents.learners.a2c import A2C, Learner, advance, evaluate, start
    from baddr.agents.learners.actors import Episodes

__all__ = ["A2C", "Episodes", "Learner", "advance", "evaluate", "start"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'baddr.agents.learners' has no attribute {name!r}")
    from baddr.agents.learners import a2c

    return getattr(a2c, name)
