"""The report of `baddr reproduce`: one document for all figures. Needs no JAX.

A document is a list of blocks: ("h1" | "h2" | "h3" | "p" | "note", text), ("list", texts), ("code", text),
("table", header, rows) and ("picture", file, caption).
"""

from typing import Any

from baddr.paper.claims import FEWEST_ENSEMBLES, FEWEST_RUNS
from baddr.paper.figures.figure import Figure
from baddr.paper.numbers import duration, ends, interval, number

Block = tuple[Any, ...]
MARKS = {"held": "✓ held", "not held": "✗ not held", "undecided": "? undecided"}


def report(
    request: Any,
    found: dict[str, dict[str, Any]],
    manifest: dict[str, Any],
    manifests: dict[str, dict[str, Any]],  # of the parts
) -> list[Block]:
    """What was claimed and what was found, figure after figure, and how it was made."""
    figures = request.chosen
    name = "all figures and tables" if "all" in request.figures else ", ".join(f.name for f in figures)
    blocks: list[Block] = [("h1", f"BADDr reproduced: {name}"), ("note", in_short(request, found))]
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
        f"{manifest['baddr']} {size[request.preset]}. Started {manifest['started'][:10]} on "
        f"{hardware['cores']} cores ({hardware['processor']}), device {manifest['device']}, "
        f"{duration(manifest['wall_seconds'])} in all. Returns are discounted by .95."
    )


def in_short(request: Any, found: dict[str, dict[str, Any]]) -> str:
    """What came of it, in a plain sentence or two."""
    claims = [claim for scores in found.values() for claim in scores["claims"]]
    verdicts = [claim["verdict"] for claim in claims]
    small = sum(bool(claim["too_small"]) for claim in claims)
    too_small = "the experiment is too small"
    too_small += "; `--preset paper` has the sizes that they need." if request.preset == "quick" else "."
    if small and small == len(claims):
        return f"None of the {small} claims of the paper can be judged: {too_small}"
    held, failed, open_ = (verdicts.count(verdict) for verdict in MARKS)
    said = f"Of {len(claims)} claims of the paper, {held} held and {failed} did not."
    if open_ - small:
        said += f" {open_ - small} stayed undecided: their intervals reach to both sides of the bound."
    return f"{said} The other {small} cannot be judged: {too_small}" if small else said


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


def _amount(claim: dict[str, Any]) -> str:
    return ("more than " if claim["lower_bound"] else "") + interval(claim["found"])


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
