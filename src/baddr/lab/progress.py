"""How far an experiment is: in words, and as a live bar on a terminal or a plain line now and then."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

from baddr.lab.output import unescaped, visible

Show = Callable[[str, int, int, float | None], None]  # what is done, how much, of how much, and its value

# What is counted, and what is told about the latest of them.
WORDS = {
    "pretraining": ("pre-training: {done}/{total} batches", "loss {value:.3f}"),
    "episodes": ("{done}/{total} episodes", "recent return {value:.2f}"),
    "steps": ("{done}/{total} steps", "{value:.2f} s each"),
}


def amount(what: str, done: int, total: int, value: float | None) -> str:
    """How much is done, and its latest value where there is one: no return before an episode has ended."""
    counted, latest = WORDS[what]
    said = counted.format(done=done, total=total)
    known = value is not None and not math.isnan(value)
    return f"{said}, {latest.format(value=value)}" if known else said


@contextlib.contextmanager
def progress(title: str) -> Iterator[Show]:
    """Of one experiment."""
    if not sys.stderr.isatty():
        yield _plain(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=unescaped(sys.stderr))) as bar:
        title = visible(title).replace("[", "\\[")  # rich reads what stands in brackets
        task = bar.add_task(f"{title} (compiling)", total=None, amount="")

        def show(what: str, done: int, total: int, value: float | None) -> None:
            said = amount(what, done, total, value)
            bar.update(task, description=title, completed=done, total=total, amount=said)

        yield show


def _plain(title: str, seconds: float = 10.0) -> Show:
    started = time.monotonic()
    last = [started - seconds]
    print(f"{title}: compiling", file=sys.stderr, flush=True)

    def show(what: str, done: int, total: int, value: float | None) -> None:
        now = time.monotonic()
        if now - last[0] < seconds and done < total:
            return
        last[0] = now
        said = amount(what, done, total, value)
        print(f"{title}: {said}, {now - started:.0f} s", file=sys.stderr, flush=True)

    return show
