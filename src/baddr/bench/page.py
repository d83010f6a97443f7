"""The scoreboard as one HTML page: no network, tables that a click sorts, small curves. Needs no JAX."""

from html import escape
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444", "#7A5195")
WIDTH, HEIGHT, LEFT, BOTTOM = 420, 200, 34, 22
NONE = "-"
ABOUT = """A score is (return &minus; prior only) / (planning on the truth &minus; prior only), of discounted
returns: 0 is an agent that takes the prior's expected model for the truth, 1 is planning on the truth.
Brackets are 95 % intervals over trainings and runs, with those of both references. Click a column's title to
sort by it."""
LOWEST, HIGHEST = -0.5, 1.5  # scores that a curve shows
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { cursor: pointer; user-select: none; } th[aria-sort]::after { content: " \\2195"; }
.domain { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
.wide { overflow-x: auto; } .note { color: #777; max-width: 60rem; } .dot { font-size: 1.1em; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
"""
SCRIPT = """
for (const th of document.querySelectorAll('th')) th.onclick = () => {
  const table = th.closest('table'), i = [...th.parentNode.children].indexOf(th);
  const up = th.getAttribute('aria-sort') === 'descending';
  for (const other of th.parentNode.children) other.removeAttribute('aria-sort');
  th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const value = row => { const cell = row.children[i];
    return cell.dataset.value === undefined ? cell.textContent : parseFloat(cell.dataset.value); };
  const rows = [...table.tBodies[0].rows].sort((a, b) => { const x = value(a), y = value(b);
    const order = typeof x === 'number' ? (isNaN(x) ? -1e9 : x) - (isNaN(y) ? -1e9 : y) : x.localeCompare(y);
    return up ? order : -order; });
  table.tBodies[0].append(...rows);
};
"""


def page(found: dict[str, Any]) -> str:
    """Of the numbers of `suite.json`."""
    names = sorted({agent for domain in found["domains"].values() for agent in domain["agents"]})
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    sections = [_section(name, domain, colours) for name, domain in found["domains"].items()]
    about = f"{found['command']} ({found['device']}, baddr {found['baddr']}, {found['status']})"
    refused = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in found["refused"].items())
    body = [
        "<h1>Learning in POMDPs with a stated prior: the scoreboard</h1>",
        f"<p><code>{escape(about)}</code></p>",
        f"<p class=note>{ABOUT}</p>",
        "<h2>Final scores (the last tenth of the episodes)</h2>",
        f"<div class=wide>{_overview(found['domains'], names, colours)}</div>",
        *sections,
        f"<h2>Not possible</h2><ul>{refused}</ul>" if refused else "",
    ]
    head = f"<meta charset=utf-8><title>baddr suite</title><style>{STYLE}</style>"
    whole = f"<body>{''.join(body)}<script>{SCRIPT}</script></body>"
    return f"<!doctype html><html lang=en><head>{head}</head>{whole}</html>"


def _overview(domains: dict[str, Any], names: list[str], colours: dict[str, str]) -> str:
    """Agents x domains."""
    titles = ["agent", *domains, "domains at .9"]
    rows = []
    for name in names:
        mine = [domain["agents"].get(name) for domain in domains.values()]
        cells = [_score(agent, d["clear"]) for agent, d in zip(mine, domains.values(), strict=True)]
        reached = sum(
            domain["clear"] and agent is not None and agent["episodes_to_.9"][0] is not None
            for agent, domain in zip(mine, domains.values(), strict=True)
        )
        rows.append([_named(name, colours), *cells, _cell(reached, str(reached))])
    return _table(titles, rows)


def _section(name: str, domain: dict[str, Any], colours: dict[str, str]) -> str:
    of, titles = domain["references"], ["agent", "final score", "episodes to .9", "final return"]
    titles += ["runs", "trainings", "seconds", "MB"]
    rows = []
    for agent, found in domain["agents"].items():
        to, megabytes = found["episodes_to_.9"], (found["memory_bytes"] or 0) / 2**20
        rows.append(
            [
                _named(agent, colours),
                _score(found, domain["clear"]),
                _cell(to[0], "never" if to[0] is None else f"{to[0]:.0f}{_between(to, 0)}"),
                _cell(found["return"][-1]),
                *(_cell(found[key], str(found[key])) for key in ("runs", "trainings")),
                _cell(found["seconds"], "" if found["seconds"] is None else f"{found['seconds']:.0f}"),
                _cell(megabytes, f"{megabytes:.0f}" if megabytes else ""),
            ]
        )
    error = "" if of["standard_error"] is None else f" (their difference ± {of['standard_error']:.3f})"
    lines = [f"prior only {of['prior']:.3f}, planning on the truth {of['truth']:.3f}{error}"]
    if chosen := domain["settings"]:
        truth = ", ".join(f"--domain.{key.replace('_', '-')} {value:g}" for key, value in chosen.items())
        lines.insert(0, f"a truth that is worth learning: {truth}")
    if "lower" in of["optimum"]:
        lines.append(
            f"the optimum lies between {of['optimum']['lower']:.3f} and {of['optimum']['upper']:.3f}"
        )
    if of["exact"]:
        lines.append(f"the exact posterior (by particles) is the curve of {of['exact']}")
    unclear = (
        ""
        if domain["clear"]
        else (
            "<p class=note>The truth is not clearly better than the prior here, with so few runs: scores say "
            "little.</p>"
        )
    )
    return (
        f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{escape('; '.join(lines))}.</p>{unclear}"
        f"<div class=domain>{_curves(domain, colours)}<div class=wide>{_table(titles, rows)}</div></div>"
    )


def _curves(domain: dict[str, Any], colours: dict[str, str]) -> str:
    """Scores by episode, with the lines of both references (and of the optimum) across."""
    last = max((found["episode"][-1] for found in domain["agents"].values()), default=1)
    x = lambda episode: LEFT + (WIDTH - LEFT - 8) * (episode - 1) / max(last - 1, 1)
    clip = lambda score: min(max(score, LOWEST), HIGHEST)
    y = lambda score: (HEIGHT - BOTTOM) * (HIGHEST - clip(score)) / (HIGHEST - LOWEST) + 4
    parts = [_line(0.0, "prior only", y), _line(1.0, "truth", y)]
    of = domain["references"]
    if "lower" in of["optimum"] and of["truth"] != of["prior"]:
        best = (of["optimum"]["lower"] - of["prior"]) / (of["truth"] - of["prior"])
        if abs(best - 1) > 0.08 and LOWEST < best < HIGHEST:
            parts.append(_line(best, "optimum", y))
    for agent, found in domain["agents"].items():
        known = [i for i, score in enumerate(found["score"]) if score is not None]
        at = lambda key, known=known, found=found: [
            (x(found["episode"][i]), y(found[key][i] or 0)) for i in known
        ]
        path = lambda points: " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        band = path([*at("low"), *reversed(at("high"))])
        parts.append(f"<polygon points='{band}' fill='{colours[agent]}' opacity='.13'/>")
        stroke = f"fill='none' stroke='{colours[agent]}' stroke-width='2'"
        parts.append(
            f"<polyline points='{path(at('score'))}' {stroke}><title>{escape(agent)}</title></polyline>"
        )
    parts += [f"<text x='{WIDTH - 8}' y='{HEIGHT}' text-anchor='end'>episode {last}</text>"]
    parts += [f"<text x='{LEFT}' y='{HEIGHT}'>1</text>"]
    return f"<svg width='{WIDTH}' height='{HEIGHT + 6}' role='img'>{''.join(parts)}</svg>"


def _line(score: float, name: str, y: Any) -> str:
    at = f"x1='{LEFT}' x2='{WIDTH - 8}' y1='{y(score):.1f}' y2='{y(score):.1f}'"
    label = f"<text x='{LEFT + 4}' y='{y(score) - 3:.1f}' opacity='.6'>{name}</text>"
    number = f"<text x='{LEFT - 6}' y='{y(score) + 4:.1f}' text-anchor='end'>{score:.2g}</text>"
    return f"<line {at} stroke='#888' stroke-dasharray='4 3'/>{label}{number}"


def _named(agent: str, colours: dict[str, str]) -> str:
    return f"<td><span class=dot style='color:{colours[agent]}'>&#9679;</span> {escape(agent)}</td>"


def _score(found: dict[str, Any] | None, clear: bool) -> str:
    if found is None:
        return _cell(None, NONE)
    value = found["final"][0]
    said = NONE if value is None else f"{value:.2f}{_between(found['final'], 2)}"
    return _cell(value, said if clear else f"({said})")


def _between(interval: list[float | None], digits: int) -> str:
    low, high = (NONE if x is None else f"{x:.{digits}f}" for x in interval[1:])
    return f" [{low}, {high}]" if (low, high) != (NONE, NONE) else ""


def _cell(value: Any, said: str | None = None) -> str:
    number = "nan" if value is None else f"{value}"
    text = said if said is not None else NONE if value is None else f"{value:.3f}"
    return f"<td data-value='{number}'>{escape(text)}</td>"


def _table(titles: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
