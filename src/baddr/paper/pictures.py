"""The paper's figures as pictures: first what is drawn, as numbers and words, then the drawing."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baddr.lab.columns import histograms
from baddr.lab.plots import draw_optimum, save
from baddr.lab.statistics import (
    Estimate,
    curve_of,
    default_window,
    equal_blocks,
    estimate,
    growing_blocks,
    per_run,
)
from baddr.paper.claims import Data
from baddr.paper.figures.episodes import TABLE
from baddr.paper.figures.figure import Curves, Figure, Sizes
from baddr.paper.hearing import accuracy
from baddr.paper.optima import optimum
from baddr.paper.reached import reached
from baddr.paper.returns import block_means


class Series(NamedTuple):
    """A curve, or points, with their intervals."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    style: tuple[str, str, str]  # colour, line, marker
    bars: bool = False  # intervals as bars in the place of a band


class Bound(NamedTuple):
    """A dotted horizontal line: what planning on the truth is worth."""

    label: str
    estimate: Estimate
    colour: str


class Panel(NamedTuple):
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    series: list[Series]
    bounds: list[Bound] = []  # noqa: RUF012
    scale: str = "linear"  # of x
    rows: tuple[str, ...] = ()  # names for y = 0, 1, ...
    lines: tuple[tuple[float, str], ...] = ()  # vertical: where, and what it is
    heat: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # edges of x, edges of y, density
    optima: tuple[tuple[float, float], ...] = ()  # lower and upper bounds of the optimum


def panels(figure: Figure, sizes: Sizes, data: Data) -> list[Panel]:
    """What a figure's picture shows."""
    curves = figure.curves(sizes)
    if figure.kind == "models":
        panel = _curves(_some_models(curves), data, "learning curves", sizes)
        # Too many bands for one picture, and long labels would leave no room for it.
        bare = [s._replace(low=s.y, high=s.y, label=s.label.partition(" (")[0]) for s in panel.series]
        panel = panel._replace(series=bare, ylabel="discounted return (95 %: left)")
        return [_models(curves, data, panel), panel]
    if figure.kind == "histogram":
        return [panel for curve in curves for panel in _histograms(curve, data)]
    if figure.kind == "episodes":
        return [_episodes(curves, data)]
    if figure.kind == "runtime":
        return [_runtime(curves, data)]
    titles = dict.fromkeys(curve.panel for curve in curves)
    return [
        _curves(tuple(c for c in curves if c.panel == title), data, title, sizes, figure.log)
        for title in titles
    ]


RETURN = "discounted return, 95 % band"


def _curves(curves: Curves, data: Data, title: str, sizes: Sizes, log: bool = False) -> Panel:
    """Learning curves, and the bounds as dotted lines; fewer points where there are few runs."""
    learning = [curve for curve in curves if not curve.is_bound]
    episodes = [data.sample(curve.name).episodes for curve in learning]
    window = max(default_window(max(episodes)), min(episodes) // 5 if sizes.quick else 1)
    series = []
    for curve in learning:
        s = data.sample(curve.name)
        first, growth = min(16, s.episodes // (10 if sizes.quick else 50)), 2.0 if sizes.quick else 1.4
        equal = equal_blocks(s.episodes, min(window, s.episodes))
        found = curve_of(s, growing_blocks(s.episodes, first, growth) if log else equal)
        many = f"{s.num_runs} run{'s' * (s.num_runs != 1)}"
        many += f", {len(s.ids)} ensembles" if s.unit == "ensembles" else ""
        label = f"{curve.label} ({many})"
        series.append(Series(label, found.episode, found.mean, found.low, found.high, curve.style))
    bounds = []
    for curve in curves:
        if curve.is_bound:
            means = np.array(list(block_means(data.sample(curve.name), "all").values()))
            bounds.append(Bound(curve.label, estimate(means), curve.style[0]))
    smoothing = "the mean since the point before" if log else f"the mean of {window}"
    xlabel = f"episode (each point: {smoothing})" if log or window > 1 else "episode"
    optima = dict.fromkeys(optimum(curve.experiment.domain) for curve in curves)
    known = tuple(bounds for bounds in optima if bounds is not None)
    return Panel(title, xlabel, RETURN, series, bounds, "log" if log else "linear", optima=known)


def _some_models(curves: Curves) -> Curves:
    """The curves with the fewest, the middle and the most models: more cannot be told apart in a picture."""
    shades = {1: "#E69F00", 8: "#0072B2", 128: "#009E73"}
    return tuple(
        curve if curve.is_bound else replace(curve, style=(shades[curve.models], *curve.style[1:]))
        for curve in curves
        if curve.is_bound or curve.models in shades
    )


def _models(curves: Curves, data: Data, beside: Panel) -> Panel:
    """The last quarter's return against the number of models: BADDr solid, filtering dotted; and the lines of
    the panel beside it."""
    series = []
    for agent, label in (("baddr", "BADDr"), ("filtering", "filtering (never trained online)")):
        mine = sorted((c for c in curves if c.experiment.agent == agent), key=lambda c: c.models)
        means = [np.array(list(block_means(data.sample(c.name), "last").values())) for c in mine]
        y, low, high = np.array([estimate(m) for m in means]).T
        x = np.array([c.models for c in mine])
        series.append(Series(label, x, y, low, high, mine[0].style, bars=True))
    ylabel = "discounted return, 95 % interval"
    title = "last quarter of the episodes"
    lines = {"bounds": beside.bounds, "optima": beside.optima}
    return Panel(title, "networks in the prior", ylabel, series, scale="models", **lines)


def _histograms(curve: Any, data: Data) -> list[Panel]:
    """The belief over the hearing accuracy: one run's after some episodes, and the mean over all runs."""
    results = data.results[curve.name]
    first = next(iter(results.values()))
    bins = histograms(first)["accuracy"]
    tables = {seed: [per_run(columns, name) for name in bins] for seed, columns in results.items()}
    run = np.stack([table[0] for table in next(iter(tables.values()))])  # [bin, episode]
    mass = np.stack([np.nanmean(np.concatenate(t), axis=0) for t in zip(*tables.values(), strict=True)])
    centres = (np.arange(len(bins)) + 0.5) / len(bins)
    shades = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#000000")
    episodes = list(dict.fromkeys(min(e, run.shape[1]) for e in (1, 5, 10, 20, 40)))
    series = []
    for episode, colour, line in zip(episodes, shades, ("-", "--", "-.", "-", "-"), strict=False):
        density = run[:, episode - 1] * len(bins)
        style = (colour, line, "")
        series.append(Series(f"after episode {episode}", centres, density, density, density, style))
    truth = curve.experiment.domain.accuracy
    lines = ((truth, f"truth: {truth:g}"),)
    middle = accuracy(results, "accuracy_mean").table
    episode = 1.0 + np.arange(middle.shape[1])
    mean = np.nanmean(middle, axis=0)
    path = Series(f"mean of the belief: {mean[-1]:.3g}", episode, mean, mean, mean, ("#E69F00", "-", ""))
    level = np.full(2, truth)
    ends = np.array([0.5, len(mean) + 0.5])
    line = Series(f"truth: {truth:g}", ends, level, level, level, ("#D55E00", "--", ""))
    edges = 0.5 + np.arange(mass.shape[1] + 1), np.linspace(0, 1, len(bins) + 1)
    title = f"all runs, {curve.models} network{'s' * (curve.models > 1)}"
    return [
        Panel("one run", "p(hear the good door) under the belief", "density", series, lines=lines),
        Panel(title, "episode", "p(hear the good door)", [path, line], heat=(*edges, mass * len(bins))),
    ]


def _episodes(curves: Curves, data: Data) -> Panel:
    """BADDr's episodes, and those that DPFRL needs for the same return; hollow: the paper's."""
    names = list(dict.fromkeys(curve.panel for curve in curves))
    table = [TABLE[name] for name in names]
    y = np.arange(len(names))[::-1].astype(float)
    ours = np.array([min(data.sample(f"{n}/baddr").episodes, TABLE[n][0]) for n in names], float)
    within = {name: TABLE[name][0] for name in names}
    found = [reached(f"{n}/dpfrl", f"{n}/baddr", within=within[n], ratio=False)(data) for n in names]
    most = [data.sample(f"{name}/dpfrl").episodes for name in names]
    needed = np.array([f.estimate.value for f in found])
    low = np.array([max(f.estimate.low, 1.0) for f in found])
    high = np.array([min(f.estimate.high, 2.0 * m) for f, m in zip(found, most, strict=True)])
    theirs = np.array([row[1] or np.nan for row in table], float)
    bounded = np.array([f.at_least for f in found])
    blue, purple = "#0072B2", "#CC79A7"
    in_paper = np.array([row[0] for row in table], float)

    def points(label: str, x: np.ndarray, style: tuple[str, str, str], up: float) -> Series:
        return Series(label, x, y + up, x, x, style)

    dpfrl = Series("DPFRL", needed, y + 0.12, low, high, (purple, "", "D"), bars=True)
    only = lambda series, rows: series._replace(
        **{f: getattr(series, f)[rows] for f in ("x", "y", "low", "high")}
    )
    series = [
        points("BADDr", ours, (blue, "", "o"), 0.12),
        only(dpfrl, ~bounded),
        only(points("DPFRL ended below: more than", needed, (purple, "", ">"), 0.12), bounded),
        points("BADDr, paper", in_paper, (blue, "", "hollow o"), -0.2),
        points("DPFRL, paper", theirs, (purple, "", "hollow D"), -0.2),
    ]
    series = [points for points in series if len(points.x)]
    xlabel = "episodes until DPFRL has BADDr's return, 95 % interval"
    return Panel("", xlabel, "", series, scale="log", rows=tuple(names)[::-1])


def _runtime(curves: Curves, data: Data) -> Panel:
    """Milliseconds of a real step: mean and 95 % interval."""
    rows = tuple(dict.fromkeys(curve.panel for curve in curves))[::-1]
    series = []
    for agent, up in (("baddr", 0.1), ("fba-pomcp", -0.1)):
        mine = [curve for curve in curves if curve.experiment.agent == agent]
        seconds = [np.array(data.timings[curve.name]["seconds"]) for curve in mine]
        x, low, high = 1e3 * np.array([estimate(s) for s in seconds]).T
        y = np.array([rows.index(curve.panel) + up for curve in mine])
        colour, _, marker = mine[0].style
        series.append(Series(mine[0].label, x, y, low, high, (colour, "", marker), bars=True))
    return Panel(
        "", "ms a real step: plan and belief update, one run, 95 %", "", series, scale="log", rows=rows
    )


def draw(pictured: list[Panel], paths: list[Path], title: str = "") -> None:
    """Panels side by side, in one picture, written to every path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    width = 6.4 if len(pictured) == 1 else 5.2 * len(pictured)
    tallest = max(len(p.series) + len(p.bounds) + len(p.lines) + bool(p.optima) for p in pictured)
    canvas = Canvas(figsize=(width, 4.2 + 0.12 * tallest), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(1, len(pictured), squeeze=False)[0]
    for panel, ax in zip(pictured, axes, strict=True):
        _draw_panel(panel, ax, canvas)
    canvas.suptitle(title)
    for path in paths:
        save(canvas, path)


def _draw_panel(panel: Panel, ax: Any, canvas: Any) -> None:
    if panel.heat is not None:
        image = ax.pcolormesh(*panel.heat, cmap="Blues", vmin=0)
        canvas.colorbar(image, ax=ax, label="density, mean over the runs")
    for i, series in enumerate(panel.series):
        aside = 1.05 ** (2 * i - 1) if panel.scale == "models" else 1.0  # bars beside each other
        _draw_series(series._replace(x=series.x * aside), ax, bool(panel.rows))
    for bound in panel.bounds:
        value, low, high = bound.estimate
        label = f"{bound.label}: {value:.3g}"
        ax.axhline(value, color=bound.colour, linestyle=":", linewidth=1.8, label=label)
        if np.isfinite([low, high]).all():
            ax.axhspan(low, high, color=bound.colour, alpha=0.08, linewidth=0)
    for i, bounds in enumerate(panel.optima):
        draw_optimum(ax, bounds, "optimum" if i == 0 else "")
    for x, label in panel.lines:
        ax.axvline(x, color="#D55E00", linestyle="--", label=label)
    _scale(panel, ax)
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel, title=panel.title)
    if panel.rows:
        ax.set_yticks(range(len(panel.rows)), panel.rows)
        ax.set_ylim(-0.6, len(panel.rows) - 0.4)
    ax.spines[["top", "right"]].set_visible(False)
    if panel.heat is None:
        ax.grid(alpha=0.3)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    ax.legend(frameon=False, fontsize="small", ncols=2, **below)


def _draw_series(series: Series, ax: Any, horizontal: bool) -> None:
    colour, line, marker = series.style
    hollow = marker.startswith("hollow")
    look: dict[str, Any] = {"color": colour, "linestyle": line or "none", "label": series.label}
    look |= {"marker": marker.removeprefix("hollow ") or None, "markersize": 5}
    look |= {"markerfacecolor": "none"} if hollow else {}
    finite = lambda edge: np.where(np.isfinite(edge), edge, series.x if horizontal else series.y)
    low, high = finite(series.low), finite(series.high)
    if series.bars:
        middle = series.x if horizontal else series.y
        error = np.abs(np.stack([middle - low, high - middle]))
        ax.errorbar(series.x, series.y, **{"xerr" if horizontal else "yerr": error}, capsize=3, **look)
        return
    many = 1 < len(series.x) and line
    ax.plot(series.x, series.y, **look, markevery=max(1, len(series.x) // 8) if many else None)
    if not horizontal:
        ax.fill_between(series.x, low, high, color=colour, alpha=0.15, linewidth=0)


def _scale(panel: Panel, ax: Any) -> None:
    if panel.scale == "linear":
        return
    ax.set_xscale("log", base=2 if panel.scale == "models" else 10)
    if panel.scale == "models":
        models = sorted({int(n) for series in panel.series for n in series.x})
        ax.set_xticks(models, [str(n) for n in models], minor=False)
        ax.minorticks_off()
        return
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 200 else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
