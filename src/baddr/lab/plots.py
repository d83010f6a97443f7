"""Pictures: learning curves with confidence bands, and what the belief learned."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from baddr.errors import UserError
from baddr.files.tables import Arrays
from baddr.files.writing import write
from baddr.lab.columns import histograms, means
from baddr.lab.statistics import default_window, learning_curve, per_run

# Okabe and Ito's colours, which colour-blind readers can tell apart; the first is the paper's blue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#555555"
STYLES = ("-", "--", "-.", ":")
FORMATS = (".png", ".svg", ".pdf")


def plot_curves(
    results: dict[str, Arrays],
    title: str,
    paths: list[Path],
    window: int = 0,
    optimum: tuple[float, float] | None = None,
) -> None:
    """One learning curve per entry of `results`, in one picture, written to every path; and the bounds of the
    optimum."""
    for path in paths:
        if path.suffix not in FORMATS:
            raise UserError(f"A picture ends in {', '.join(FORMATS)}; {path.name!r} does not.")
    figure, axes = _figure()
    longest = max(int(r["episode"].max()) + 1 for r in results.values())
    window = window or default_window(longest)
    for i, (name, columns) in enumerate(results.items()):
        curve = learning_curve(columns, window=min(window, int(columns["episode"].max()) + 1))
        colour = COLOURS[i % len(COLOURS)]
        runs = f"{curve.num_runs} run" + "s" * (curve.num_runs != 1)
        marker = "o" if len(curve.episode) == 1 else None
        axes.plot(
            curve.episode,
            curve.mean,
            STYLES[i % len(STYLES)],
            color=colour,
            marker=marker,
            label=f"{name} ({runs})",
        )
        axes.fill_between(curve.episode, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    if optimum is not None:
        draw_optimum(axes, optimum)
    smoothing = "" if window == 1 else f" (each point: the mean of {window})"
    axes.set(xlabel=f"episode{smoothing}", ylabel="discounted return, 95 % band", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    for path in paths:
        save(figure, path)


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


def plot_belief(columns: Arrays, title: str, path: Path) -> None:
    """What the belief says about the model, episode by episode: median and central 90 % of the runs.

    Draws the columns NAME_mean_I of the results, and nothing where there are none.
    """
    names = means(columns)
    if not names:
        return
    figure, axes = _figure()
    for i, name in enumerate(names):
        table = per_run(columns, name)
        low, middle, high = np.nanquantile(table, [0.05, 0.5, 0.95], axis=0)
        episode = 1 + np.arange(table.shape[1])
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(episode, middle, STYLES[i % len(STYLES)], color=colour, label=name.replace("_", " "))
        axes.fill_between(episode, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="episode", ylabel="belief (median and 90 % of the runs)", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path)


def plot_histograms(columns: Arrays, title: str, truth: Callable[[str], Any], folder: Path) -> None:
    """How a belief's distribution over a probability moves, episode by episode, in the mean over runs.

    Draws the columns NAME_histogram_I of the results, the mass in each of equal bins of [0, 1], as NAME.png;
    `truth` gives a name's true value, or None.
    """
    for name, bins in histograms(columns).items():
        mass = np.stack([np.nanmean(per_run(columns, column), axis=0) for column in bins])
        figure, axes = _figure()
        edges = 0.5 + np.arange(mass.shape[1] + 1), np.linspace(0, 1, len(bins) + 1)
        image = axes.pcolormesh(*edges, mass * len(bins), cmap="Blues", vmin=0)
        figure.colorbar(image, label="density, mean over the runs")
        if truth(name) is not None:
            axes.axhline(truth(name), color=COLOURS[1], linestyle="--", label=f"truth: {truth(name):g}")
            axes.legend(loc="lower right")
        axes.set(xlabel="episode", ylabel=f"{name} under the belief", title=title)
        save(figure, folder / f"{name}.png")


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # A date or random names in the file would make equal results differ.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "baddr"}):
        figure.savefig(buffer, format=path.suffix[1:], dpi=150, metadata=metadata)
    write(path, buffer.getvalue())
