"""What a figure is: a set of curves, and what the paper claims about them. Needs no JAX.

A curve is an experiment, or several that differ in their seed only: all runs of one experiment share the
networks that its seed drew, so a curve over several seeds averages over ensembles. An experiment's results
lie in a folder that is named after its settings: figures share equal ones.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from baddr.lab.experiment import AnyExperiment, to_config
from baddr.paper.claims import Claim

# Okabe and Ito's colours: colour-blind readers can tell them apart. BADDr is blue, as in the paper.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What `baddr reproduce` was asked for; 0: as the figure has it."""

    preset: Literal["quick", "paper"] = "quick"
    runs: int = 0
    episodes: int = 0
    ensembles: int = 0
    seed: int = 0

    @property
    def quick(self) -> bool:
        return self.preset == "quick"


@dataclass(frozen=True)
class Curve:
    """A line of a picture, a point of it, or a row of a table."""

    name: str
    label: str
    experiment: AnyExperiment
    ensembles: int = 1
    panel: str = ""
    style: tuple[str, str, str] = (BLACK, "-", "o")  # colour, line, marker
    paper: str = ""  # what the paper says this curve reaches
    timed: bool = False  # a few steps of one run are timed, and nothing else
    models: int = 0  # in the ensemble, where that is what the picture is about

    @property
    def is_bound(self) -> bool:
        return self.experiment.agent == "pomcp"

    def parts(self) -> dict[int, AnyExperiment]:
        """The curve's experiments by their seeds."""
        e = self.experiment
        return {seed: replace(e, seed=seed) for seed in range(e.seed, e.seed + self.ensembles)}


Curves = tuple[Curve, ...]
Kind = Literal["curves", "models", "histogram", "episodes", "runtime"]


@dataclass(frozen=True)
class Figure:
    """A figure or a table: what is run for it, what is drawn, and what the paper says about it."""

    name: str
    title: str
    shows: str  # what the paper shows
    curves: Callable[[Sizes], Curves]
    claims: Callable[[Sizes], tuple[Claim, ...]]
    kind: Kind = "curves"
    log: bool = False  # the axis of episodes
    note: str = ""  # where we know that we differ


def part_name(experiment: AnyExperiment, timed: bool = False) -> str:
    """A folder's name: equal settings, equal names."""
    size = getattr(experiment.domain, "size", None) or getattr(experiment.domain, "lanes", None)
    words = [experiment.name, *([str(size)] if size else []), experiment.agent, *(["timed"] if timed else [])]
    return "-".join([*words, hashlib.sha256(to_config(experiment)).hexdigest()[:8]])
