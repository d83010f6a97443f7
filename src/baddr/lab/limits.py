"""Sizes that cannot fit are refused before any work, with the figure and with what would fit.

What needs no JAX is looked at first (`refuse_rows`); the rest follows from the shapes of an agent's life.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from baddr.errors import UserError
from baddr.files import machine
from baddr.files.settings import problems

BYTES_PER_ROW = 2 * 5 * 8  # at least: five columns, in the chunks and joined
LONGEST = 100 * 365.25 * 86_400.0  # seconds, of an experiment: its estimate may be wrong by far
LARGEST_OF_A_DOMAIN = 100_000  # of anything that a domain has, but for steps
NO_SIZES = ("horizon", "seed")
SMALLEST_TO_HALVE = 64  # settings below are not what makes an experiment too large


def refuse_rows(runs: int, episodes: int) -> None:
    """The rows of all runs are in memory when the table is written."""
    have = machine.memory()
    need = runs * episodes * BYTES_PER_ROW
    if need > have:
        instead = _runs_that_fit(runs, episodes, have)
        raise UserError(
            f"{runs:,} runs of {episodes:,} episodes produce {gib(need)} of rows, and this machine has "
            f"{gib(have)} of memory: at most {instead} fit."
        )


def refuse_disk(runs: int, episodes: int, free: int) -> None:
    """The rows of all runs are on disk twice when the table is written: in the log, and as the table."""
    need = runs * episodes * BYTES_PER_ROW
    if need > free:
        instead = _runs_that_fit(runs, episodes, free)
        raise UserError(
            f"{runs:,} runs of {episodes:,} episodes produce {gib(need)} of rows, and the disk has "
            f"{gib(free)} free: at most {instead} fit; choose another disk with --out."
        )


def _runs_that_fit(runs: int, episodes: int, have: int) -> str:
    """Fewer runs, or fewer episodes, or both."""
    rows = have // BYTES_PER_ROW
    if rows >= episodes:
        return f"{rows // episodes:,} runs"
    return f"{rows // runs:,} episodes" if rows >= runs else f"{rows:,} episodes of all runs together"


def domain_problems(settings: Any) -> list[str]:
    """What is wrong with a domain's settings. Of those of this package, sizes that nothing could hold are,
    whatever the domain itself says about them."""
    found = problems(settings, "domain.")
    if found or not type(settings).__module__.startswith("baddr."):
        return found
    sizes = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in NO_SIZES}
    return [
        f"domain.{name.replace('_', '-')} must be at most {LARGEST_OF_A_DOMAIN:,}, not {value:,}"
        for name, value in sizes.items()
        if type(value) is int and value > LARGEST_OF_A_DOMAIN
    ]


def refuse_memory(
    experiment: Any, bytes_of: Callable[[Any], int], memory: int, runs: int, what: str = "A run"
) -> None:
    """`runs` at a time must fit the memory of what computes; `bytes_of` a run of an experiment, or of `what`
    there is one of."""
    each = bytes_of(experiment)
    if each * runs <= memory:
        return
    if each <= memory:
        raise UserError(
            f"{runs:,} runs at a time need {gib(each * runs)}, and the device has {gib(memory)}: "
            f"--chunk-size {max(1, memory // each):,} fits."
        )
    name, value, fit = _what_fits(experiment, bytes_of, each, memory)
    instead = f"{name} {fit:,} would fit, not {value:,}" if fit else "choose smaller settings"
    raise UserError(f"{what} needs {gib(each)}, and the device has {gib(memory)}: {instead}.")


def refuse_time(seconds: float, runs: int) -> None:
    """Of what would end after everybody's life."""
    if seconds > LONGEST:
        years = LONGEST / (86_400 * 365.25)
        raise UserError(
            f"This would take about {years * seconds / LONGEST:,.0f} years; {runs * LONGEST / seconds:,.0f} "
            f"of the {runs:,} runs would finish within {years:.0f} years."
        )


def _what_fits(
    experiment: Any, bytes_of: Callable[[Any], int], each: int, memory: int
) -> tuple[str, int, int]:
    """The setting that makes a run large: its flag, its value, and about the largest that would fit (0: none
    would)."""
    largest = ("", 0, 0)
    smallest = each
    for group, name, value in _sizes(experiment):
        need = bytes_of(_changed(experiment, group, name, value // 2))
        if need < smallest:
            smallest, largest = need, (group, name, value)
    group, name, value = largest
    if not group:
        return "", 0, 0
    # Bytes are about a power of the setting: the second or so for the width of a network.
    power = max(1.0, math.log2(each / smallest))
    fit = 1 << int(value * (memory / each) ** (1 / power)).bit_length() >> 1
    while fit and bytes_of(_changed(experiment, group, str(name), fit)) > memory:
        fit //= 4
    return f"--{group}.{str(name).replace('_', '-')}", value, fit


def _sizes(experiment: Any) -> Iterator[tuple[str, str, int]]:
    """The agent's settings that may be sizes."""
    for group, settings in experiment.settings.groups().items():
        for field in fields(settings) if is_dataclass(settings) else ():
            value = getattr(settings, field.name)
            if type(value) is int and value >= SMALLEST_TO_HALVE:
                yield group, field.name, value


def _changed(experiment: Any, group: str, name: str, value: int) -> Any:
    settings = experiment.settings.groups()[group]
    return experiment.changed(**{group: replace(settings, **{name: value})})


def gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
