"""What there is to run: agents and presets, with the domains of `baddr.domains.catalog`. Needs no JAX."""

from dataclasses import replace
from typing import Any

from baddr.domains.catalog import (
    DOMAINS,
    Entry,
    Feature,
    Names,
    Preset,
    entry,
    is_python,
    nearest,
    short_name,
)

__all__ = [
    "AGENTS",
    "DOMAINS",
    "LEARNERS",
    "NETWORK_AGENTS",
    "PRESETS",
    "Entry",
    "Feature",
    "Names",
    "Preset",
    "entry",
    "is_python",
    "listing",
    "nearest",
    "preset_of",
    "short_name",
]

AGENTS = {
    "baddr": "dropout networks trained on simulators, then online: the paper's method",
    "filtering": "the same networks, re-weighted and never trained online: the paper's ablation",
    "ba-pomcp": "tabular Dirichlet counts, PO-UCT with the expected model of the root particle",
    "fba-pomcp": "the same with a Bayes network per action: counts for what is uncertain only",
    "pomcp": "PO-UCT on the true model: the upper bound",
    "dpfrl": "a learned particle filter and actor-critic: no prior, no model; the paper's baseline",
    "a2c": "the same with a GRU in the particle filter's place",
    "random": "uniformly random actions",
}

NETWORK_AGENTS = ("baddr", "filtering")
LEARNERS = ("dpfrl", "a2c")  # the agents that have no belief and no planner

PRESETS = {
    "quick": "minutes on a laptop: the paper's planner and filter, fewer runs and episodes",
    "paper": "the sizes of the paper's appendix",
}


def preset_of(entry: Entry, name: str, agent: str, settings: Any) -> Preset:
    """NAME/network, where there is one, is for the agents whose networks take longer."""
    presets = entry.presets(settings)
    if agent in LEARNERS:  # how many runs the paper averages is not said
        dpfrl, episodes = entry.dpfrl(settings)
        runs, episodes = (2, 2_000) if name == "quick" else (10, episodes)
        return replace(presets[name], runs=runs, episodes=episodes, dpfrl=dpfrl)
    special = f"{name}/network" if agent in NETWORK_AGENTS else name
    return presets.get(special, presets[name])


def listing() -> dict[str, Any]:
    """All of the above as plain values, for `baddr list --json`."""

    def features(named: tuple[Feature, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "values": list(values)} for name, values in named]

    domains = {}
    for name, domain in DOMAINS.items():
        names = domain.names(domain.settings)
        domains[name] = {
            "summary": domain.summary,
            "state": features(names.state),
            "actions": list(names.action),
            "observation": features(names.observation),
        }
    from baddr.paper.figures import FIGURES

    figures = {name: figure.title for name, figure in FIGURES.items()}
    return {"domains": domains, "agents": AGENTS, "presets": PRESETS, "figures": figures}
