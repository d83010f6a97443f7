"""The curves that figures share: agents at a preset's settings, whatever the domain. Needs no JAX."""

from dataclasses import replace
from typing import Any

from baddr.agents.kinds import agent_class
from baddr.lab.experiment import AnyExperiment, preset
from baddr.paper.claims import FEWEST_ENSEMBLES
from baddr.paper.figures.figure import BLACK, BLUE, GREEN, PURPLE, VERMILION, Curve, Sizes

AGENT_STYLES = {
    "baddr": (BLUE, "-", "o"),
    "filtering": (BLUE, ":", "s"),
    "fba-pomcp": (VERMILION, "--", "s"),
    "ba-pomcp": (GREEN, "-.", "^"),
    "dpfrl": (PURPLE, "--", "D"),
    "pomcp": (BLACK, ":", ""),
}
# The paper's planner, whatever a preset prefers: the kind that has simulations.
PUBLISHED = {"planner": frozenset({"num_simulations"})}
BOUND = "POMCP, true model"
LATENT_NOTE = (
    "Agent latent is ours, not the paper's, and has a wider prior where the paper's is certain; no claim is "
    "about it (docs/latent.md)."
)
TREE_NOTE = (
    f"The curve of BADDr with the belief tree is ours, not the paper's; no claim is about it. {LATENT_NOTE}"
)


def published(domain: Any, agent: str, name: str) -> AnyExperiment:
    """At a preset's settings, but planning as the paper does: PO-UCT, one simulation after the other."""
    start = preset(domain.name, agent, name, domain, PUBLISHED)
    planner = start.settings.groups().get("planner")
    return start if planner is None else start.changed(planner=replace(planner, in_flight=1, backup="mean"))


def curve(
    sizes: Sizes,
    name: str,
    label: str,
    domain: Any,
    agent: str,
    quick: dict[str, int],
    ensembles: int = 1,
    changes: dict[str, Any] | None = None,
    **others: Any,
) -> Curve:
    """`agent` on `domain` at the preset's settings; `quick` holds the runs and episodes of the quick one."""
    start = published(domain, agent, sizes.preset)
    experiment = replace(start.changed(**(changes or {})), seed=sizes.seed)
    if sizes.quick:
        experiment = replace(experiment, **quick)
    variant = agent_class(agent).variant
    if variant in ("network", "latent"):  # one ensemble says nothing about another training
        ensembles = sizes.ensembles or (ensembles if sizes.quick else max(ensembles, FEWEST_ENSEMBLES))
    runs = sizes.runs or experiment.runs * (ensembles if sizes.quick else 1)
    if variant == "learner":  # a learner is a run of tens of thousands of episodes
        runs = min(runs, experiment.runs)
    episodes = min(sizes.episodes or experiment.episodes, experiment.episodes)
    experiment = replace(experiment, runs=-(-runs // ensembles), episodes=episodes)
    style = others.pop("style", None) or AGENT_STYLES[agent]
    return Curve(name, label, experiment, ensembles, style=style, **others)


def timed(sizes: Sizes, domain: Any, agent: str, label: str, panel: str) -> Curve:
    """One run at the paper's sizes of planner, filter and network, a few steps of it."""
    experiment = published(domain, agent, "paper")
    # How well the networks fit does not matter much for the time of a step; 512 batches are enough to act.
    if pretrain := experiment.settings.groups().get("pretrain"):
        trained = replace(pretrain, batches=min(pretrain.batches, 512), max_gap=100.0)
        experiment = experiment.changed(pretrain=trained)
    experiment = replace(experiment, runs=1, episodes=1, chunk_size=1, seed=sizes.seed)
    return Curve(f"{panel}/{agent}", label, experiment, panel=panel, style=AGENT_STYLES[agent], timed=True)


def with_tree(published: Curve) -> Curve:
    """BADDr as this curve has it, with our planner in place of the paper's: no claim is about it."""
    e = published.experiment
    tree = preset(e.name, e.agent, "quick", e.domain, {"planner": "belief-tree"}).settings.planner
    return replace(
        published,
        name="baddr-tree",
        label="BADDr with the belief tree (ours)",
        experiment=e.changed(planner=tree),
        style=(PURPLE, "--", "*"),
        paper="",
    )


def latent(sizes: Sizes, domain: Any, runs: int, episodes: int, **others: Any) -> Curve:
    """Agent latent, planning as the paper does: no claim is about it."""
    quick, style = {"runs": runs, "episodes": episodes}, (PURPLE, "-.", "P")
    return curve(sizes, "latent", "latent (ours)", domain, "latent", quick, style=style, **others)


def dpfrl(sizes: Sizes, name: str, domain: Any, episodes: int, **others: Any) -> Curve:
    quick = {"runs": 4, "episodes": episodes}
    return curve(sizes, name, "DPFRL", domain, "dpfrl", quick, **others)
