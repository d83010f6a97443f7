"""What came out of a suite, as JSON and as a page. Needs no JAX."""

import json
import math
from typing import Any

from baddr.bench.folder import Suite
from baddr.bench.outside import outside
from baddr.bench.page import page
from baddr.bench.scores import Interval, Scale, scale_of, scores
from baddr.bench.suite import EXACT, PRIOR, TRUTH, Part, parts
from baddr.domains.catalog import DOMAINS, entry, short_name
from baddr.files.tables import Arrays
from baddr.files.writing import write
from baddr.lab.results import rows_of

Results = dict[str, dict[str, dict[int, Arrays]]]  # by domain, agent and seed


def write_scoreboard(folder: Suite) -> dict[str, Any]:
    """`suite.json` and `suite.html`."""
    found = scoreboard(folder)
    write(folder.path / "suite.json", (json.dumps(found, indent=1) + "\n").encode())
    write(folder.path / "suite.html", page(found).encode())
    return found


def scoreboard(folder: Suite) -> dict[str, Any]:
    """All numbers of the page."""
    request, manifest = folder.read_request(), folder.read_parts()
    folder.check_kept(request)
    plan = list(parts(request))
    results = _results(folder, plan)
    domains = {}
    for domain in request.chosen_domains:
        mine = results.get(short_name(domain), {})
        if PRIOR in mine and TRUTH in mine:
            domains[short_name(domain)] = _domain(folder, domain, mine, plan, manifest)
    return {
        "command": request.command,
        "preset": request.preset,
        "status": manifest["status"],
        "device": manifest.get("device", ""),
        "baddr": manifest.get("baddr", ""),
        "domains": domains,
        "refused": manifest["refused"],
    }


def _results(folder: Suite, plan: list[Part]) -> Results:
    """The rows of all parts that have some, and those of outside agents."""
    found: Results = {}
    for part in plan:
        here = folder.part(part)
        if here.has_experiment and here.episodes.exists():
            rows = rows_of(here.path)
            if len(rows["run"]):
                agents = found.setdefault(short_name(part.domain), {})
                agents.setdefault(part.agent, {})[part.experiment.seed] = rows
    for name, by_domain in outside(folder).items():
        for domain, by_seed in by_domain.items():
            found.setdefault(domain, {})[name] = by_seed
    return found


def _domain(
    folder: Suite, domain: str, results: dict[str, Any], plan: list[Part], manifest: dict[str, Any]
) -> dict[str, Any]:
    """The reference lines of a domain, and each agent's scores."""
    prior, truth = (next(iter(results[name].values())) for name in (PRIOR, TRUTH))
    scale = scale_of(prior, truth)
    parts_of = lambda agent: [p.name for p in plan if p.domain == domain and p.agent == agent]
    agents = {}
    for agent, by_seed in results.items():
        if agent not in (PRIOR, TRUTH):
            agents[agent] = _agent(by_seed, scale) | _cost(parts_of(agent), manifest)
    return {
        "references": {
            "prior": scale.prior,
            "truth": scale.truth,
            "standard_error": _plain(scale.error),
            "optimum": folder.read_optimum(domain),
            "exact": EXACT if EXACT in agents else None,
        },
        "clear": scale.is_clear,
        "settings": dict(entry(domain).suite) if domain in DOMAINS else {},
        "agents": agents,
    }


def _agent(by_seed: dict[int, Arrays], scale: Scale) -> dict[str, Any]:
    found = scores(by_seed, scale)
    return {
        "episode": found.episode.tolist(),
        "return": _list(found.returns),
        "score": _list(found.score),
        "low": _list(found.low),
        "high": _list(found.high),
        "final": _interval(found.final),
        "episodes_to_.9": _interval(found.to_reach),
        "units": found.units,
        "runs": found.runs,
        "trainings": len(by_seed),
    }


def _cost(names: list[str], manifest: dict[str, Any]) -> dict[str, Any]:
    """Of all trainings together; nothing is known of outside agents."""
    known = [manifest["parts"][name] for name in names if name in manifest["parts"]]
    if not known:
        return {"seconds": None, "memory_bytes": None}
    most = max(part["memory_bytes"] for part in known)
    return {"seconds": round(sum(part["seconds"] for part in known), 1), "memory_bytes": most}


def _interval(x: Interval) -> list[float | None]:
    return [_plain(value) for value in x]


def _list(values: Any) -> list[float | None]:
    return [_plain(float(x)) for x in values]


def _plain(x: float) -> float | None:
    """JSON has no infinity."""
    return round(x, 6) if math.isfinite(x) else None
