"""Gridverse's settings, names and presets. Needs no JAX."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from baddr.core.checks import wrong
from baddr.core.filters import Rejection
from baddr.domains.entry import Entry, Names, Preset, Quantity, by_module, learners, with_wide
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import LatentSettings, Network, Pretrain

LARGEST_SIZE = 1000  # it has 4 n^2 states, and observes 3 n features


@dataclass(frozen=True)
class GridverseSettings:
    """Gridverse's empty room, and the prior over it."""

    name: ClassVar[str] = "gridverse"
    size: int = 8
    """N: cells along each side, including the walls."""
    forward_length: int = 1
    """How many cells the action forward walks. 1: the original environment. Preset paper: 4, and 8 from size
    32 on."""
    certainty: float = 0.0
    """c: each simulator draws from Dirichlet(c * uniform) how likely forward is to walk each number of cells,
    from 1 behind to 5 or more ahead. 0: the paper's single simulator, where forward lands on any open cell
    nearby. 1: a wide prior."""
    leaf: Literal["distance", "rollout"] = "distance"
    """The value below the search tree. distance: 1 / (Manhattan distance to the goal). rollout: the return of
    a random rollout."""
    discount: float = 0.95
    """The discount factor gamma."""
    horizon: int = 30
    """K: the most steps in an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (self.size >= 3, "domain.size must be at least 3: a cell and its walls"),
            (self.size <= LARGEST_SIZE, f"domain.size must be at most {LARGEST_SIZE}"),
            (self.forward_length >= 1, "domain.forward-length must be at least 1"),
            (
                self.forward_length <= LARGEST_SIZE,
                f"domain.forward-length must be at most {LARGEST_SIZE}: no room is larger",
            ),
            (self.certainty >= 0, "domain.certainty must not be negative"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )


def names(settings: GridverseSettings) -> Names:
    cells = tuple(str(i) for i in range(settings.size))
    kinds = ("beyond", "floor", "wall", "goal")
    columns = ("left", "middle", "right")
    return Names(
        state=(("y", cells), ("x", cells), ("heading", ("north", "east", "south", "west"))),
        action=("forward", "turn-left", "turn-right"),
        observation=tuple((f"{d} ahead {column}", kinds) for d in cells for column in columns),
        model=(
            Quantity("advance", "cells that forward walks", ("forward",), (float(settings.forward_length),)),
        ),
    )


PAPER = Preset(
    runs=50,
    episodes=250,
    groups={
        "planner": PoUct(num_simulations=8, exploration=1.0, in_flight=1),
        "filter": Rejection(num_particles=8),
        "network": Network(
            hidden=256, dropout=0.1, inputs=("scaled", "scaled", "onehot"), learning_rate=0.0005
        ),
        "pretrain": Pretrain(batches=512, batch_size=32, learning_rate=0.0025, optimizer="adam"),
    },
)

OURS = PAPER.changed(PAPER.runs, PAPER.episodes, planner=IMPROVED)
WIDE = {"certainty": 1.0}  # where the paper's prior is one simulator there is no other one to learn
# All simulators see alike; theta is small, so there is place for many particles.
LATENT = PAPER.changed(
    PAPER.runs,
    PAPER.episodes,
    filter={"num_particles": 1024},
    latent=LatentSettings(dimensions=8, hidden=128, learn_observation=False),
)
TREE = BeliefTree(num_expansions=32, num_particles=64)


def presets(settings: GridverseSettings) -> dict[str, Preset]:
    # One cell a step cannot give the paper's returns; these lengths can (docs/domains/gridverse.md).
    domain = {"forward_length": 4 if settings.size < 32 else 8}
    particles = 30 if settings.size < 32 else 15
    presets = {
        "quick": OURS.changed(8, 50, planner=TREE),
        # The table's 512 batches leave the networks short of their simulator, so `quick` trains them longer.
        "quick/network": OURS.changed(8, 50, pretrain={"batches": 4096}),
        "quick/latent": replace(LATENT.changed(8, 50, planner=IMPROVED), domain=WIDE),
        "paper": replace(PAPER, domain=domain),
        "paper/latent": replace(LATENT, domain=domain | WIDE),
        **learners(20_000, domain, learning_rate=1e-3, num_particles=particles),
    }
    return with_wide(presets, 4 * settings.size**2, **WIDE)


ENTRY = Entry(
    summary="walk through an empty room to the goal, seeing only what lies ahead",
    settings=GridverseSettings(),
    names=names,
    presets=presets,
    make_domain=by_module("baddr.domains.gridverse.model"),
)
