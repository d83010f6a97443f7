"""Pictures: learning curves with confidence bands, and what the belief learned. One style for all of them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baddr.domains.entry import Names
from baddr.errors import UserError
from baddr.files.tables import Arrays
from baddr.files.writing import file_name, write
from baddr.lab.certainty import never_seen
from baddr.lab.columns import MEAN, SEEN, STD, entries, histograms, stems
from baddr.lab.output import visible
from baddr.lab.statistics import default_window, learning_curve, per_run

# Okabe and Ito's colours, which colour-blind readers can tell apart; the first is the paper's blue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#555555"
STYLES = ("-", "--", "-.", ":")
LINES = ((0, (1, 1)), (0, (5, 2)), (0, (3, 1, 1, 1)), (0, (5, 1, 1, 1, 1, 1)))  # of references
LONGEST_LINE = 100  # characters
LEGEND_WIDTH = 92  # letters beside each other, with six for each line that they name
FORMATS = (".png", ".svg", ".pdf")
NOTHING = Names((), (), ())

Line = tuple[str, float] | tuple[str, float, float]  # a reference: its name, its value, its standard error


def plot_curves(
    results: dict[str, Arrays],
    title: str,
    paths: list[Path],
    window: int = 0,
    optimum: tuple[float, float] | None = None,
    lines: Sequence[Line] = (),
) -> None:
    """One learning curve per entry of `results`, in one picture, written to every path; the bounds of the
    optimum, and horizontal lines to compare with."""
    check_formats(paths)
    figure, (axes,) = _figure(1)
    _draw_curves(axes, results, window, optimum, lines)
    axes.set_title(title)
    _finish(figure, paths)


def plot_run(
    columns: Arrays,
    title: str,
    paths: list[Path],
    names: Names = NOTHING,
    optimum: tuple[float, float] | None = None,
    lines: Sequence[Line] = (),
) -> None:
    """One result: its learning curve and, below it, what was believed of the model as it learned."""
    check_formats(paths)
    known = [quantity.name for quantity in names.model]
    believed = sorted(stems(columns), key=lambda stem: stem not in known)  # what has a name first
    figure, axes = _figure(2 if believed else 1)
    window = max(1, (int(columns["episode"].max()) + 1) // 8)  # wide bands are quieter with few points
    _draw_curves(axes[0], {title: columns}, window, optimum, lines)
    axes[0].set_title(title)
    if believed:
        _draw_belief(figure, axes[1], columns, believed[0], names)
        axes[0].set_xlim(axes[1].get_xlim())
    _finish(figure, paths)


def check_formats(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix not in FORMATS:
            raise UserError(f"A picture file must end in {', '.join(FORMATS)}; {path.name!r} does not.")


def _draw_curves(
    axes: Any,
    results: dict[str, Arrays],
    window: int,
    optimum: tuple[float, float] | None,
    lines: Sequence[Line],
) -> None:
    longest = max(int(r["episode"].max()) + 1 for r in results.values())
    window = window or default_window(longest)
    bands = False
    for i, (name, columns) in enumerate(results.items()):
        curve = learning_curve(columns, window=min(window, int(columns["episode"].max()) + 1))
        colour, style = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]
        runs = f"{curve.num_runs} run" + "s" * (curve.num_runs != 1)
        marker = "o" if len(curve.episode) == 1 else None
        axes.plot(curve.episode, curve.mean, style, color=colour, marker=marker, label=f"{name} ({runs})")
        axes.fill_between(curve.episode, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
        bands |= bool(np.isfinite(curve.low).any())
    for i, (name, value, *error) in enumerate(lines):
        colour = COLOURS[(len(results) + i) % len(COLOURS)]
        style: Any = LINES[i % len(LINES)]
        said = f"{name}: {value:.3g}" + (f" ± {error[0]:.2g}" if error and error[0] else "")
        axes.axhline(value, color=colour, linestyle=style, linewidth=1.2, label=said)
    if optimum is not None:
        draw_optimum(axes, optimum)
    smoothing = "" if window == 1 else f" (each point: the mean of {window})"
    axes.set(xlabel=f"episode{smoothing}", ylabel="discounted return" + ", 95 % band" * bands)


def draw_optimum(axes: Any, bounds: tuple[float, float], label: str = "optimum") -> None:
    """A thin line, or a band where the bounds are apart. Without a label it is not in the legend."""
    lower, upper = bounds
    low, high = axes.get_ylim()
    apart = upper - lower > 1e-3 * (high - low)
    said = f"{label}: {lower:.4g} to {upper:.4g}" if apart else f"{label}: {lower:.4g}"
    axes.axhline(lower, color=GREY, linewidth=0.8, label=said if label else None)
    if apart:
        axes.axhline(upper, color=GREY, linewidth=0.8)
        axes.axhspan(lower, upper, color=GREY, alpha=0.12, linewidth=0)


def plot_belief(columns: Arrays, title: str, path: Path, names: Names = NOTHING) -> None:
    """What the belief says about the model, episode by episode: median and central 90 % of the runs, with the
    truth where it is known; and below it how certain the belief is of that.

    Draws the columns NAME_mean_I and NAME_std_I of the results, and nothing where there are none.
    """
    panels: list[tuple[str, Any]] = []
    for stem in stems(columns):
        panels += [(stem, _draw_means), (stem, _draw_spread)][: 2 if entries(columns, stem, STD) else 1]
    if not panels:
        return
    figure, axes = _figure(len(panels))
    for (stem, draw), ax in zip(panels, axes, strict=True):
        draw(ax, columns, stem, names)
    axes[0].set_title(title)
    _finish(figure, [path])


def _draw_means(axes: Any, columns: Arrays, stem: str, names: Names) -> None:
    quantity = names.quantity(stem)
    mine = entries(columns, stem, MEAN)
    truths = {quantity.true_value(i) for i in range(len(mine))}
    for i, name in enumerate(mine):
        truth = quantity.true_value(i)
        own = f" (truth: {truth:.3g})" if truth is not None and len(truths) > 1 else ""
        colour = _draw_runs(axes, per_run(columns, name), i, quantity.entry(i) + own)
        if own:
            axes.axhline(truth, color=colour, linestyle=LINES[0], linewidth=1.2)
    if len(truths) == 1 and (truth := truths.pop()) is not None:
        axes.axhline(truth, color=GREY, linestyle=LINES[0], linewidth=1.2, label=f"truth: {truth:.3g}")
    axes.set(xlabel="episode", ylabel=f"{quantity.title}\nmedian and 90 % of the runs")


def _draw_spread(axes: Any, columns: Arrays, stem: str, names: Names) -> None:
    """The belief's standard deviation, and who never saw what it is about."""
    quantity = names.quantity(stem)
    seen = entries(columns, stem, SEEN)
    for i, name in enumerate(entries(columns, stem, STD)):
        never = int(np.sum(never_seen(per_run(columns, seen[i])))) if i < len(seen) else 0
        said = f" (never seen by {never} run{'s' * (never != 1)})" if never else ""
        _draw_runs(axes, per_run(columns, name), i, quantity.entry(i) + said)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="episode", ylabel=f"{quantity.title}\nstandard deviation of the belief")


def _draw_runs(axes: Any, table: np.ndarray, i: int, label: str) -> str:
    """Line number i: median and central 90 % of the runs; its colour."""
    low, middle, high = np.nanquantile(table, [0.05, 0.5, 0.95], axis=0)
    episode, colour = 1 + np.arange(table.shape[1]), COLOURS[i % len(COLOURS)]
    axes.plot(episode, middle, STYLES[i % len(STYLES)], color=colour, label=label)
    axes.fill_between(episode, low, high, color=colour, alpha=0.2, linewidth=0)
    return colour


def plot_histograms(columns: Arrays, title: str, folder: Path, names: Names = NOTHING) -> None:
    """How a belief's distribution over a probability moves, episode by episode, in the mean over runs.

    Draws the columns NAME_histogram_I of the results, the mass in each of equal bins of [0, 1], as NAME.png.
    """
    for name in histograms(columns):
        figure, (axes,) = _figure(1)
        _draw_histogram(figure, axes, columns, name, names)
        axes.set_title(title)
        _finish(figure, [folder / f"{file_name(name)}.png"])


def _draw_belief(figure: Any, axes: Any, columns: Arrays, stem: str, names: Names) -> None:
    """The whole distribution where there is one, and means otherwise."""
    if stem in histograms(columns):
        _draw_histogram(figure, axes, columns, stem, names)
    else:
        _draw_means(axes, columns, stem, names)


def _draw_histogram(figure: Any, axes: Any, columns: Arrays, name: str, names: Names) -> None:
    quantity, bins = names.quantity(name), histograms(columns)[name]
    mass = np.stack([np.nanmean(per_run(columns, column), axis=0) for column in bins])
    edges = 0.5 + np.arange(mass.shape[1] + 1), np.linspace(0, 1, len(bins) + 1)
    image = axes.pcolormesh(*edges, mass * len(bins), cmap="Blues", vmin=0)
    figure.colorbar(image, ax=axes, label="density, mean over runs", pad=0.02)
    mine = entries(columns, name, MEAN)
    if mine:
        mean = np.nanmean([np.nanmean(per_run(columns, column), axis=0) for column in mine], axis=0)
        axes.plot(
            1 + np.arange(len(mean)), mean, color=COLOURS[4], label=f"mean of the belief: {mean[-1]:.3g}"
        )
    if (truth := quantity.true_value(0)) is not None:
        axes.axhline(truth, color=COLOURS[1], linestyle="--", label=f"truth: {truth:.3g}")
    axes.grid(visible=False)
    axes.set(xlabel="episode", ylabel=f"{quantity.title}\nunder the belief")


def _figure(panels: int) -> tuple[Any, list[Any]]:
    """Panels below each other, along episodes: no tick lies between two."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.8, 1.2 + 3.2 * panels), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(panels, 1, i + 1) for i in range(panels)]
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(figure: Any, paths: list[Path]) -> None:
    """Legends below their axes, where they cover nothing, and the files."""
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            columns = max(1, min(len(labels), LEGEND_WIDTH // (max(map(len, labels)) + 6)))
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": columns}
            axes.legend(handles, labels, frameon=False, fontsize="small", **place)
    for path in paths:
        save(figure, path)


def _words(figure: Any) -> list[Any]:
    """The texts of a figure, but for the numbers along its axes."""
    found = [*figure.texts, figure._suptitle] if figure._suptitle else [*figure.texts]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
    return found


def _readable(text: str) -> str:
    """Without what no font has; names that are longer than a picture is wide lose their middle."""
    short = lambda line: line if len(line) <= LONGEST_LINE else f"{line[:60]} ... {line[-30:]}"
    return "\n".join(map(short, visible(text).split("\n")))


def save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    for text in _words(figure):  # what stands between dollars in a name is no mathematics
        text.set_parse_math(False)
        text.set_text(_readable(text.get_text()))
    buffer = io.BytesIO()
    # A date or random names in the file would make equal results differ.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "baddr"}):
        figure.savefig(buffer, format=path.suffix[1:], dpi=150, metadata=metadata)
    write(path, buffer.getvalue())
