"""What there is to run: domains with their numbering, agents, presets. Needs no JAX."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from baddr.errors import UserError
from baddr.settings import Filter, Network, Planner, Pretrain, Tiger

Feature = tuple[str, tuple[str, ...]]  # a feature's name and the names of its values


@dataclass(frozen=True)
class Names:
    """What a domain's numbers mean."""

    state: tuple[Feature, ...]
    action: tuple[str, ...]
    observation: tuple[Feature, ...]


@dataclass(frozen=True)
class Preset:
    """One column of the appendix tables, or a size that fits a coffee break."""

    runs: int
    episodes: int
    planner: Planner
    filter: Filter
    network: Network
    pretrain: Pretrain


@dataclass(frozen=True)
class Entry:
    """A domain of this package."""

    module: str  # its `make_domain` takes the fields of `settings`
    summary: str
    settings: Any
    names: Callable[[Any], Names]
    presets: Callable[[Any], dict[str, Preset]]  # for a size of the domain

    def preset(self, name: str, agent: str, settings: Any) -> Preset:
        """NAME/network, where there is one, is for the agents whose networks take longer."""
        presets = self.presets(settings)
        special = f"{name}/network" if agent in NETWORK_AGENTS else name
        return presets.get(special, presets[name])


def tiger_names(settings: Tiger) -> Names:
    sides = ("left", "right")
    return Names(
        state=(("good door", sides),),
        action=("open-left", "open-right", "listen"),
        observation=(("heard", (*sides, "null")),),
    )


TIGER_PAPER = Preset(
    runs=7500,
    episodes=400,
    planner=Planner(num_simulations=4096, exploration=100.0),
    filter=Filter(kind="importance", num_particles=1024, resample_below=128.0),
    network=Network(hidden=32, dropout=0.5, learning_rate=0.005),
    pretrain=Pretrain(batches=4096, batch_size=32, learning_rate=0.1, optimizer="sgd"),
)


def tiger_presets(settings: Tiger) -> dict[str, Preset]:
    return {
        "quick": replace(TIGER_PAPER, runs=64, episodes=100),
        "quick/network": replace(TIGER_PAPER, runs=32, episodes=40),
        "paper": TIGER_PAPER,
    }


DOMAINS = {
    "tiger": Entry(
        module="baddr.domains.tiger",
        summary="listen for the good door, or open one",
        settings=Tiger(),
        names=tiger_names,
        presets=tiger_presets,
    ),
}

AGENTS = {
    "baddr": "dropout networks trained on simulators, then online: the paper's method",
    "filtering": "the same networks, re-weighted and never trained online: the paper's ablation",
    "ba-pomcp": "tabular Dirichlet counts, PO-UCT with the expected model of the root particle",
    "pomcp": "PO-UCT on the true model: the upper bound",
    "random": "uniformly random actions",
}

NETWORK_AGENTS = ("baddr", "filtering")

PRESETS = {
    "quick": "minutes on a laptop: the paper's planner and filter, fewer runs and episodes",
    "paper": "the sizes of the paper's appendix",
}


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """`name`, or a sentence that says what would have been right."""
    known = list(known)
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."
    raise UserError(f"There is no {kind} {name!r}; {hint}")


def listing() -> dict[str, Any]:
    """All of the above as plain values, for `baddr list --json`."""

    def features(named: tuple[Feature, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "values": list(values)} for name, values in named]

    domains = {}
    for name, entry in DOMAINS.items():
        names = entry.names(entry.settings)
        domains[name] = {
            "summary": entry.summary,
            "state": features(names.state),
            "actions": list(names.action),
            "observation": features(names.observation),
        }
    return {"domains": domains, "agents": AGENTS, "presets": PRESETS, "figures": {}}
