"""What is said about a figure, as plain numbers and words: `figure-NAME.json`. Needs no JAX."""

from typing import Any

import numpy as np

from baddr.agents.kinds import kind_of
from baddr.lab.statistics import estimate, interquartile_mean
from baddr.paper.claims import Data, Finding, what_decides
from baddr.paper.figures.figure import Curve, Figure, Sizes, part_name
from baddr.paper.numbers import plain
from baddr.paper.returns import block_means


def scores(figure: Figure, sizes: Sizes, data: Data) -> dict[str, Any]:
    """All that is said about a figure."""
    curves = figure.curves(sizes)
    return {
        "figure": figure.name,
        "title": figure.title,
        "preset": sizes.preset,
        "reduced": is_reduced(figure, sizes),
        "curves": [curve_scores(c, data) | until(c, final_return(curves, c), data) for c in curves],
        "claims": [claim_scores(claim, data) for claim in figure.claims(sizes)],
    }


def final_return(curves: tuple[Curve, ...], curve: Curve) -> float | None:
    """What the paper's BADDr returns in the end ("2.2 after 400") on a domain of this size, where a figure
    has one such number."""
    baddr = [c for c in curves if c.experiment.agent == "baddr" and c.paper and size_of(c) == size_of(curve)]
    found = {c.paper.split(" after ")[0] for c in baddr}
    return float(found.pop()) if len(found) == 1 else None


def size_of(curve: Curve) -> Any:
    e = curve.experiment
    return e.name, getattr(e.domain, "size", None), getattr(e.domain, "lanes", None)


def until(curve: Curve, goal: float | None, data: Data) -> dict[str, Any]:
    """The first episode from which the mean over runs and 10 episodes reaches the goal; None: it never does.
    Nothing for a curve that does not learn."""
    if goal is None or curve.timed or curve.is_bound:
        return {}
    returns = np.nanmean(data.sample(curve.name).table, axis=0)
    window = min(10, len(returns))
    means = np.convolve(returns, np.full(window, 1 / window), mode="valid")
    found = np.flatnonzero(means >= goal)
    return {"goal": goal, "until": int(found[0]) + 1 if len(found) else None}


def is_reduced(figure: Figure, sizes: Sizes) -> bool:
    """Whether something of a figure has fewer runs or episodes than the paper, or other networks."""
    size = lambda curve: (curve.experiment.runs * curve.ensembles, curve.experiment.episodes)
    paper = {curve.name: size(curve) for curve in figure.curves(Sizes(preset="paper"))}
    curves = figure.curves(sizes)
    if all(curve.timed for curve in curves):
        return False
    fewer = lambda curve: any(x < y for x, y in zip(size(curve), paper[curve.name], strict=True))
    return sizes.quick or any(map(fewer, curves))


def curve_scores(curve: Curve, data: Data) -> dict[str, Any]:
    e = curve.experiment
    row = {
        "name": curve.name,
        "label": curve.label if not curve.panel else f"{curve.label}, {curve.panel}",
        "paper": curve.paper,
        "parts": [part_name(part, curve.timed) for part in curve.parts().values()],
        "settings": settings_row(curve),
    }
    if curve.timed:
        seconds = np.array(data.timings[curve.name]["seconds"])
        return {**row, "steps": len(seconds), "milliseconds": plain(estimate(1e3 * seconds))}
    s = data.sample(curve.name)
    block = "all" if curve.is_bound else "last"
    final = np.array(list(block_means(s, block).values()))
    area = np.array(list(block_means(s, "all").values()))
    first = np.array(list(block_means(s, "first").values()))
    return {
        **row,
        "runs": s.num_runs,
        "episodes": s.episodes,
        "asked_episodes": e.episodes,
        "unit": s.unit,
        "units": len(s.ids),
        "first": plain(estimate(first)),
        "last": plain(estimate(final)),
        "last_interquartile": plain(estimate(final, interquartile_mean)),
        "area": plain(estimate(area)),
    }


def settings_row(curve: Curve) -> dict[str, str]:
    """A curve's settings in words."""
    e = curve.experiment
    size = getattr(e.domain, "size", None) or getattr(e.domain, "lanes", None)
    row = {
        "domain": f"{e.name} {size}" if size else e.name,
        "agent": e.agent,
        "runs x episodes": f"{curve.ensembles} x {e.runs} x {e.episodes}"
        if curve.ensembles > 1
        else f"{e.runs} x {e.episodes}",
    }
    settings = e.settings
    if e.agent == "dpfrl":
        how = settings.dpfrl
        learning = f"{how.num_particles} particles, rate {how.learning_rate:g}, {how.actors} actors"
        return row | {"planner": "", "filter": "", "networks": learning}
    planner, filter = settings.groups().get("planner"), settings.filter
    row["planner"] = "" if planner is None else _planner_in_words(planner)
    below = f", resampled below {filter.resample_below:g}" if hasattr(filter, "resample_below") else ""
    row["filter"] = f"{kind_of('filter', filter)}, {filter.num_particles} particles{below}"
    if e.agent not in ("baddr", "filtering"):
        return row | {"networks": f"graph {settings.factored.graph}" if e.agent == "fba-pomcp" else ""}
    n, p = settings.network, settings.pretrain
    row["networks"] = (
        f"{p.num_networks} of {n.hidden} nodes, dropout {n.dropout:g}, rate {n.learning_rate:g}; trained "
        f"with {p.optimizer} at {p.learning_rate:g}, {p.batches} batches of {p.batch_size}"
    )
    return row


def _planner_in_words(planner: Any) -> str:
    depth = f", depth {planner.depth}" if planner.depth else ""
    if kind_of("planner", planner) == "belief-tree":
        return f"belief tree, {planner.num_expansions} expansions of {planner.num_particles} particles{depth}"
    return f"{planner.num_simulations} simulations, u {planner.exploration:g}{depth}"


def claim_scores(claim: Any, data: Data) -> dict[str, Any]:
    found: Finding = claim.measure(data)
    return {
        "says": claim.says,
        "what": claim.what,
        "paper": claim.paper,
        "region": claim.region,
        "found": plain(found.seen or found.estimate),
        "with_unseen": plain(found.estimate),
        "lower_bound": found.at_least,
        "basis": found.basis,
        "verdict": claim.verdict(found),
        "too_small": claim.too_small(found),
        "only_unseen": claim.only_unseen(found),
        "decides": what_decides(claim, data),
    }
