"""`--watch`: the learning curve in the terminal, while it grows. Needs no JAX."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from baddr.files.tables import Arrays
from baddr.lab.columns import of_kind
from baddr.lab.output import unescaped, visible
from baddr.lab.progress import amount

HEIGHT = 12  # lines of the curve
POINTS = 40  # of it at most: episodes beside each other are averaged


@contextmanager
def watched(title: str) -> Iterator[tuple[Callable[[str, int, int, float | None], None], list["Watch"]]]:
    """A live picture on a terminal: the progress, and the listeners, to give to `start` or `resume`."""
    watch = Watch(title)
    with _live(watch):
        yield watch.progress, [watch]


@contextmanager
def watched_parts() -> Iterator[tuple[Callable[[str, float, str], None], list["Watch"]]]:
    """The same for `reproduce`, whose parts follow each other."""
    watch = Watch("starting")
    with _live(watch):
        yield watch.part, [watch]


@contextmanager
def _live(watch: "Watch") -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=unescaped(sys.stderr))
    picture = lambda: Text("\n".join(map(visible, watch.lines(console.width - 1))))
    with Live(console=console, get_renderable=picture, refresh_per_second=4) as live:
        yield
        live.refresh()


class Watch:
    """The mean return of each episode over the runs that have ended it, and where things stand."""

    def __init__(self, title: str):
        self.started, self.said = time.monotonic(), ""
        self.start(title)

    def start(self, title: str) -> None:
        """Another curve."""
        self.title = title
        self.what, self.done, self.total = "compiling", 0, 0
        self.value: float | None = None
        self.first: tuple[float, int] | None = None  # when the first episodes were known, and how many
        self.sums, self.counts = np.zeros(0), np.zeros(0)
        self.belief: dict[str, float] = {}

    def progress(self, what: str, done: int, total: int, value: float | None) -> None:
        self.what, self.done, self.total, self.value = what, done, total, value
        if what == "episodes" and self.first is None:
            self.first = time.monotonic(), done

    def part(self, title: str, done: float, what: str) -> None:
        """Where `reproduce` stands: done is a share of the whole."""
        if title != self.title:
            self.start(title)
        self.said = f"{100 * done:.0f} % of all; {what}"

    def __call__(self, rows: Arrays) -> None:
        more = max(0, int(rows["episode"].max()) + 1 - len(self.sums))
        self.sums, self.counts = np.pad(self.sums, (0, more)), np.pad(self.counts, (0, more))
        np.add.at(self.sums, rows["episode"], rows["discounted_return"])
        np.add.at(self.counts, rows["episode"], 1)
        latest = rows["episode"] == rows["episode"].max()
        self.belief = {name: float(rows[name][latest].mean()) for name in of_kind(rows, "belief")}

    def lines(self, width: int) -> list[str]:
        lines = [self.title, *self._curve(width), self._standing()]
        if self.belief:
            lines.append("belief: " + ", ".join(f"{name} {value:.3f}" for name, value in self.belief.items()))
        return [line[:width] for line in lines]

    def _curve(self, width: int) -> list[str]:
        if not self.counts.any():
            return []
        window = -(-len(self.counts) // POINTS)
        over = lambda x: np.add.reduceat(x, np.arange(0, len(x), window))
        sums, counts = over(self.sums), over(self.counts)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        low, high = float(np.nanmin(means)), float(np.nanmax(means))
        labels = [f"{high:8.2f} |", *["         |"] * (HEIGHT - 2), f"{low:8.2f} |"]
        dots = braille(means, width - len(labels[0]), HEIGHT, low, high)
        each = f" and {window} episodes" if window > 1 else ""
        axis = f"episode 1 to {len(self.counts)}; discounted return, mean over runs{each}"
        curve = [label + line for label, line in zip(labels, dots, strict=True)]
        return [*curve, " " * len(labels[0]) + axis]

    def _standing(self) -> str:
        seconds = time.monotonic() - self.started
        if self.said:
            return f"{self.said}  {clock(seconds)}"
        if not self.total:
            return f"{self.what}  {clock(seconds)}"
        said = f"{amount(self.what, self.done, self.total, self.value)}  {clock(seconds)}"
        if self.what != "episodes":
            return said
        since, before = self.first or (0.0, 0)
        rate = (self.done - before) / max(1e-9, time.monotonic() - since)
        if self.done > before:
            said += f", {rate:.3g} a second, {clock((self.total - self.done) / rate)} left"
        return said


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def braille(values: np.ndarray, width: int, height: int, low: float, high: float) -> list[str]:
    """A line through the values, of 2 x 4 dots a character; many values share a column of dots."""
    columns, levels = 2 * width, 4 * height
    dots = np.zeros((levels, columns), bool)
    edges = np.linspace(0, len(values), min(columns, len(values)) + 1).astype(int)
    before = None
    for column in range(columns):
        i = column * (len(edges) - 1) // columns
        bin_ = values[edges[i] : edges[i + 1]]
        if np.isnan(bin_).all():
            before = None
            continue
        share = (np.nanmean(bin_) - low) / (high - low) if high > low else 0.5
        level = round(float(share) * (levels - 1))
        start, end = sorted((level if before is None else before, level))
        dots[start : end + 1, column] = True
        before = level
    return [
        "".join(_character(dots[::-1][4 * y : 4 * y + 4, 2 * x : 2 * x + 2]) for x in range(width))
        for y in range(height)
    ]


def _character(dots: np.ndarray) -> str:
    """Two columns of four dots as a character of the braille block, which numbers them as here."""
    weights = np.array([[1, 8], [2, 16], [4, 32], [64, 128]])
    return chr(0x2800 + int((dots * weights).sum()))
