"""How far a command is: a live bar on a terminal, a plain line now and then otherwise."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from baddr.files.store import Folder
from baddr.lab.output import unescaped
from baddr.lab.progress import Show, progress

ShowPart = Callable[[str, float, str], None]  # which part, what share of the whole is done, and what happens


@contextlib.contextmanager
def followed(
    title: str, folder: Folder, watch: bool, track: Sequence[str]
) -> Iterator[tuple[Show, list[Any]]]:
    """The progress display, and who else hears of every episode."""
    from baddr.lab.track import trackers
    from baddr.lab.watch import watched

    show: Any = watched if watch and sys.stderr.isatty() else progress
    with show(title) as shown, trackers(track, folder) as listeners:
        shown, watching = shown if isinstance(shown, tuple) else (shown, [])
        yield shown, [*listeners, *watching]


@contextlib.contextmanager
def whole_progress(watch: bool) -> Iterator[tuple[ShowPart, list[Any]]]:
    """Of all parts of `reproduce`, and who hears of every episode."""
    if not sys.stderr.isatty():
        yield _plain_whole(), []
        return
    if watch:
        from baddr.lab.watch import watched_parts

        with watched_parts() as shown:
            yield shown
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(file=unescaped(sys.stderr))) as bar:
        task = bar.add_task("starting", total=1.0)
        show = lambda part, done, what: bar.update(task, description=f"{part}: {what}", completed=done)
        yield show, []


def _plain_whole(seconds: float = 20.0) -> ShowPart:
    started, last, told = time.monotonic(), [0.0], [""]

    def show(part: str, done: float, what: str) -> None:
        now = time.monotonic()
        if part == told[0] and now - last[0] < seconds:
            return
        last[0], told[0] = now, part
        print(f"{100 * done:3.0f} % {part}: {what}, {now - started:.0f} s", file=sys.stderr, flush=True)

    return show
