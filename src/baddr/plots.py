"""Pictures: learning curves with confidence bands."""

import io
from pathlib import Path

from baddr.errors import UserError
from baddr.experiments.store import Arrays, write
from baddr.statistics import default_window, learning_curve

# Okabe and Ito's colours, which colour-blind readers can tell apart; the first is the paper's blue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
FORMATS = (".png", ".svg", ".pdf")


def plot_curves(results: dict[str, Arrays], title: str, paths: list[Path], window: int = 0) -> None:
    """One learning curve per entry of `results`, in one picture, written to every path."""
    for path in paths:
        if path.suffix not in FORMATS:
            raise UserError(f"A picture ends in {', '.join(FORMATS)}; {path.name!r} does not.")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
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
    mean = "mean" if window == 1 else f"mean over {window} episodes"
    axes.set(xlabel="episode", ylabel=f"discounted return ({mean}, 95 % band)", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    for path in paths:
        buffer = io.BytesIO()
        # A date or random names in the file would make equal results differ.
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with rc_context({"svg.hashsalt": "baddr"}):
            figure.savefig(buffer, format=path.suffix[1:], dpi=150, metadata=metadata)
        write(path, buffer.getvalue())
