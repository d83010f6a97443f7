"""The report of `baddr reproduce`: one document, as Markdown and as a single page of HTML. Needs no JAX.

A document is a list of blocks: ("h1" | "h2" | "h3" | "p" | "note", text), ("list", texts), ("code", text),
("table", header, rows) and ("picture", file, caption). The page refers to nothing outside of itself.
"""

import base64
import html
from collections.abc import Callable
from typing import Any

import numpy as np

from baddr.agents.kinds import kind_of
from baddr.lab.statistics import Estimate, estimate, interquartile_mean
from baddr.paper.claims import FEWEST_ENSEMBLES, FEWEST_RUNS, Data, Finding, block_means, what_decides
from baddr.paper.figures.figure import Curve, Figure, Sizes, part_name

Block = tuple[Any, ...]
MARKS = {"held": "✓ held", "not held": "✗ not held", "undecided": "? undecided"}


# Scores: plain numbers and words, `figure-NAME.json`.


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


def _planner_in_words(planner: Any) -> str:
    depth = f", depth {planner.depth}" if planner.depth else ""
    if kind_of("planner", planner) == "belief-tree":
        return f"belief tree, {planner.num_expansions} expansions of {planner.num_particles} particles{depth}"
    return f"{planner.num_simulations} simulations, u {planner.exploration:g}{depth}"


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


# The document.


def report(
    request: Any,
    found: dict[str, dict[str, Any]],
    manifest: dict[str, Any],
    manifests: dict[str, dict[str, Any]],  # of the parts
) -> list[Block]:
    """What was claimed and what was found, figure after figure, and how it was made."""
    figures = request.chosen
    name = "all figures and tables" if "all" in request.figures else ", ".join(f.name for f in figures)
    blocks: list[Block] = [("h1", f"BADDr reproduced: {name}"), ("note", _in_short(request, found))]
    blocks += [("p", _opening(request, manifest)), *_overview(found)]
    for figure in figures:
        blocks += _figure(figure, found[figure.name])
    blocks += [("h2", "How to read this"), ("list", METHOD)]
    return [*blocks, *_made(request, found, manifest, manifests)]


def _opening(request: Any, manifest: dict[str, Any]) -> str:
    size = {"quick": "at reduced sizes (preset quick)", "paper": "at the paper's settings (preset paper)"}
    hardware = manifest["hardware"]
    return (
        "Katt et al., BADDr: Bayes-Adaptive Deep Dropout RL for POMDPs (AAMAS 2022), run again with baddr "
        f"{manifest['baddr']} {size[request.preset]}. Begun {manifest['started'][:10]} on "
        f"{hardware['cores']} cores ({hardware['processor']}), device {manifest['device']}, "
        f"{duration(manifest['wall_seconds'])} in all. Returns are discounted by .95."
    )


def _in_short(request: Any, found: dict[str, dict[str, Any]]) -> str:
    """What came of it, in a plain sentence or two."""
    claims = [claim for scores in found.values() for claim in scores["claims"]]
    verdicts = [claim["verdict"] for claim in claims]
    small = sum(bool(claim["too_small"]) for claim in claims)
    judged = len(claims) - small
    held, failed, open_ = (verdicts.count(verdict) for verdict in MARKS)
    said = f"Of {len(claims)} claims of the paper this could judge {judged}: {held} held, {failed} did not"
    both = "the interval, with disasters that were not seen, reaches to both sides."
    said += f", and for {open_ - small} {both}" if open_ - small else "."
    if small:
        said += f" For the other {small} the experiment is too small"
        said += "; `--preset paper` has the sizes that they need." if request.preset == "quick" else "."
    return said


def _overview(found: dict[str, dict[str, Any]]) -> list[Block]:
    """The verdicts, claim by claim."""
    rows = [
        [scores["figure"], claim["says"], _amount(claim), claim["region"], _verdict(claim, scores)]
        for scores in found.values()
        for claim in scores["claims"]
    ]
    header = ["figure", "the paper says", "found, 99.5 % interval", "needed", "verdict"]
    return [("h2", "Verdicts"), ("table", header, rows)]


def _verdict(claim: dict[str, Any], scores: dict[str, Any]) -> str:
    exact = claim["found"]["low"] == claim["found"]["high"] is not None
    why = "reduced size" if scores["reduced"] and not exact else ""
    why = claim["too_small"] or ("unseen disasters" if claim["only_unseen"] else why)
    return MARKS[claim["verdict"]] + (f" ({why})" if why else "")


def _figure(figure: Figure, scores: dict[str, Any]) -> list[Block]:
    kind = "Figure" if len(figure.name) == 1 else "Table"
    blocks: list[Block] = [
        ("h2", f"{kind} {figure.name}: {figure.title}"),
        ("p", figure.shows),
        ("picture", f"figure-{figure.name}.png", figure.title),
    ]
    if figure.note:
        blocks.append(("note", figure.note))
    header = ["the paper says", "measured", "paper", "ours, 99.5 % interval", "with unseen disasters"]
    header += ["over", "needed", "verdict"]
    rows = [
        [
            *(c["says"], c["what"], c["paper"], _amount(c), ends(c["with_unseen"]), c["basis"], c["region"]),
            _verdict(c, scores),
        ]
        for c in scores["claims"]
    ]
    blocks += [("h3", "Claims"), ("table", header, rows)]
    open_ = [f"{c['says']} Undecided. {c['decides']}" for c in scores["claims"] if c["decides"]]
    blocks += [("list", open_)] if open_ else []
    blocks += [("h3", "Scores"), _score_table(scores["curves"])]
    blocks += _until_table(scores)
    settings = [[c["label"], *c["settings"].values()] for c in scores["curves"]]
    names = list(scores["curves"][0]["settings"])
    return [*blocks, ("h3", "Settings"), ("table", ["curve", *names], settings)]


def _until_table(scores: dict[str, Any]) -> list[Block]:
    rows = [
        [c["label"], f"{c['goal']:g}", f"{c['until']:,}" if c["until"] else f"not within {c['episodes']:,}"]
        for c in scores["curves"]
        if "until" in c
    ]
    words = "From this episode on the mean over runs and ten episodes first reaches it."
    table = ("table", ["curve", "return", "episode"], rows)
    return [("h3", "Episodes until the paper's final return"), ("p", words), table] if rows else []


def _score_table(curves: list[dict[str, Any]]) -> Block:
    if "milliseconds" in curves[0]:
        rows = [[c["label"], str(c["steps"]), interval(c["milliseconds"])] for c in curves]
        return ("table", ["curve", "steps timed", "ms a step, 95 % interval"], rows)
    header = ["curve", "runs", "episodes", "first tenth", "last quarter", "interquartile mean of it"]
    header += ["all episodes (area)", "paper"]
    rows = []
    for c in curves:
        many = f"{c['runs']} in {c['units']} ensembles" if c["unit"] == "ensembles" else str(c["runs"])
        numbers = [interval(c[name]) for name in ("first", "last", "last_interquartile", "area")]
        rows.append([c["label"], many, f"{c['episodes']:,}", *numbers, c["paper"]])
    return ("table", header, rows)


METHOD = [
    "A claim of the paper is read as a region for a quantity. It is held where the whole 99.5 % interval of "
    "ours lies in the region, not held where none of it does, and undecided otherwise. Where the paper says "
    "nearly, similar or the same, the margin is our choice; it is part of the region.",
    f"There is no verdict from fewer than {FEWEST_RUNS} runs, from fewer than {FEWEST_ENSEMBLES} ensembles "
    "where runs share trained networks, or from curves that are shorter than the claim speaks of: the "
    "verdict then says what there was too little of.",
    "Intervals of claims are Student's t at 99.5 % (Welch's degrees of freedom for independent samples; two "
    "curves with the same seeds and runs are compared unit by unit), so that held is wrong in at most 5 of "
    "100 cases even where units are skewed.",
    "A disaster that was not seen is in the interval, too: a run, or all runs of a training, may fail in "
    "every episode (the wrong door, a collision, a goal that is never found, 20 steps right behind a car). "
    "Of n units that did not, at most 3 / n may (the rule of three, at 95 %), so the interval reaches lower "
    "by as much as these would cost. POMCP learns nothing from one episode to the next: its units are "
    "episodes.",
    "Intervals of scores are 95 % percentile bootstraps of 2000 resamples, widened as Student's t is for few "
    "units. Bands of fewer than four units are not drawn.",
    "The unit is a run. Where a curve has several ensembles, the unit is the ensemble: all of its runs "
    "share the networks that its seed drew.",
    "First tenth and last quarter are of a curve's episodes, or of the shorter curve's where two are "
    "compared; POMCP does not learn, and its mean is over all episodes. The interquartile mean is over "
    "units. All episodes: the mean, which is the area under the curve by its length.",
    "Episodes to equal return: until the mean over the last fiftieth of DPFRL's episodes first reaches "
    "the goal. Where DPFRL ended below it, the number is a lower bound (more than).",
    "At reduced size a verdict is about these sizes: fewer runs than the paper's.",
]


def _made(
    request: Any,
    found: dict[str, dict[str, Any]],
    manifest: dict[str, Any],
    manifests: dict[str, dict[str, Any]],
) -> list[Block]:
    versions = [
        ["baddr", manifest["baddr"]],
        ["commit", manifest["commit"] or "unknown"],
        ["JAX", manifest["jax"]],
        ["Python", manifest["python"]],
        ["device", manifest["device"]],
        ["processor", manifest["hardware"]["processor"]],
        ["cores", str(manifest["hardware"]["cores"])],
        ["memory", f"{manifest['hardware']['memory_bytes'] / 2**30:.0f} GiB"],
        ["started", manifest["started"]],
        ["wall time", duration(manifest["wall_seconds"])],
        ["time of all cores", duration(manifest["cpu_seconds"])],
    ]
    used: dict[str, list[str]] = {}
    for name, scores in found.items():
        for part in {part for curve in scores["curves"] for part in curve["parts"]}:
            used.setdefault(part, []).append(name)
    rows = [
        [
            part,
            ", ".join(used.get(part, [])),
            duration(took["wall_seconds"]),
            duration(took["cpu_seconds"]),
            _gap(manifests.get(part, {})),
            _failed(manifests.get(part, {})),
        ]
        for part, took in manifest["parts"].items()
    ]
    return [
        ("h2", "How it was made"),
        ("code", request.command),
        ("table", ["what", "value"], versions),
        ("h3", "Parts"),
        (
            "p",
            "Each is a result folder below parts/; baddr plot, compare and resume take it. Prior: how far "
            "the worst network's cross-entropy stays above its simulator's entropy, in nats.",
        ),
        ("table", ["part", "figures", "wall time", "time of all cores", "prior", "failed runs"], rows),
    ]


def _failed(part: dict[str, Any]) -> str:
    return ", ".join(str(failure["run"]) for failure in part.get("failures", []))


def _gap(part: dict[str, Any]) -> str:
    return number(max(part["prior"]["gap"])) if part.get("prior") else ""


# Numbers.


def number(x: float) -> str:
    """Three digits or so."""
    size = abs(x)
    digits = 0 if size >= 100 else 1 if size >= 20 else 2 if size >= 0.995 else 3
    return f"{x:,.{digits}f}"


def plain(estimate: Estimate) -> dict[str, float | None]:
    """As JSON has it: null where there is no end to the interval."""
    return {name: float(x) if np.isfinite(x) else None for name, x in estimate._asdict().items()}


def interval(estimate: dict[str, float | None]) -> str:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None:
        return "none"
    if low == high:
        return f"{number(value)} [no interval]" if low is None else number(value)
    return f"{number(value)} {ends(estimate)}"


def ends(estimate: dict[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    if low == high:
        return ""
    return f"[{'-∞' if low is None else number(low)}, {'∞' if high is None else number(high)}]"


def _amount(claim: dict[str, Any]) -> str:
    return ("more than " if claim["lower_bound"] else "") + interval(claim["found"])


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# Renderings.


def to_markdown(document: list[Block]) -> str:
    lines: list[str] = []
    cell = lambda text: str(text).replace("|", "\\|")
    for kind, *content in document:
        if kind in ("h1", "h2", "h3"):
            lines += [f"{'#' * int(kind[1])} {content[0]}"]
        elif kind == "picture":
            lines += [f"![{content[1]}]({content[0]})"]
        elif kind == "table":
            header, rows = content
            lines += ["| " + " | ".join(map(cell, header)) + " |", "|" + "---|" * len(header)]
            lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
        elif kind == "list":
            lines += [f"- {text}" for text in content[0]]
        else:
            lines += [f"```sh\n{content[0]}\n```" if kind == "code" else content[0]]
        lines.append("")
    return "\n".join(lines)


def to_html(document: list[Block], picture: Callable[[str], bytes]) -> str:
    """A page that needs nothing else; `picture` gives the bytes of a file."""
    title = next(text for kind, text, *_ in document if kind == "h1")
    body = "\n".join(_html_block(block, picture) for block in document)
    return PAGE.format(title=html.escape(title), style=STYLE, body=body)


def _html_block(block: Block, picture: Callable[[str], bytes]) -> str:
    kind, *content = block
    if kind == "table":
        return _html_table(*content)
    if kind == "picture":
        data = base64.b64encode(picture(content[0])).decode()
        return f'<figure><img src="data:image/png;base64,{data}" alt="{html.escape(content[1])}"></figure>'
    if kind == "list":
        return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in content[0])}</ul>"
    text = html.escape(content[0])
    return {
        "code": f"<pre>{text}</pre>",
        "note": f'<p class="note">{text}</p>',
    }.get(kind, f"<{kind}>{text}</{kind}>")


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    def cell(text: str) -> str:
        verdict = next((key for key, mark in MARKS.items() if str(text).startswith(mark)), "")
        mark = f' class="{verdict.replace(" ", "-")}"' if verdict else ""
        return f"<td{mark}>{html.escape(str(text))}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

STYLE = """
:root { color-scheme: light; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
figure { margin: 1rem 0; text-align: center; }
img { max-width: 100%; height: auto; }
pre { background: #f4f4f4; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.note { background: #f4f4f4; border-left: 4px solid #999; padding: .5rem .8rem; }
.table { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; }
td.held, td.not-held, td.undecided { min-width: 7rem; font-weight: 600; }
td.held { color: #00553d; background: #e2f4ee; }
td.not-held { color: #7a2f00; background: #fbe6d9; }
td.undecided { color: #444; background: #eee; }
@media (max-width: 40rem) {
  body { font-size: 15px; } table { font-size: .8rem; } th, td { padding: .3rem; }
}
@media print {
  main { max-width: none; padding: 0; }
  .table { overflow: visible; } table { font-size: 8pt; }
  figure, tr, .note { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
"""
