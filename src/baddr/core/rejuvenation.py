"""Rejuvenation: particles are moved at the end of an episode, where few of their ancestors are left.

A move is a Markov kernel that leaves p(s, theta | h) as it is, so a belief that was right stays right; one
whose particles are copies of few spreads out again. It needs h, which a run remembers for it.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import Particles
from baddr.core.pomdp import Action, Observation


class Moves(NamedTuple):
    """Whether particles were moved, and how many of them the moves changed."""

    times: Int[Array, "*runs"]
    relabelled: Int[Array, "*runs"]
    moved: Int[Array, "*runs"]


class Rejuvenation(eqx.Module):
    """What a run remembers, and when and how its belief is moved by that."""

    @abstractmethod
    def empty(self) -> PyTree:
        """What a run remembers before its first step."""

    @abstractmethod
    def remember(
        self,
        memory: PyTree,
        given: tuple[Action, Observation, Bool[Array, ""]],
        learned: Bool[Array, ""],
        survivors: Float[Array, ""],
        active: Bool[Array, ""],
    ) -> PyTree:
        """After a step (a, o, and whether it ended the episode): whether U learned from it, and the share of
        the particles that have children."""

    @abstractmethod
    def rejuvenate(
        self,
        key: Key[Array, ""],
        belief: Particles,
        memory: PyTree,
        ended: Bool[Array, ""],
        where: Callable[..., Any],
    ) -> tuple[tuple[Particles, PyTree], Moves]:
        """After the step that `ended` an episode: the belief and the memory, and what was moved. `where` is
        `life.masked`, or what does the same faster."""
