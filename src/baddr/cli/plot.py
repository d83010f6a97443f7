"""`baddr plot DIR...`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from baddr.cli.options import Debug, Folders, Reference, Trust
from baddr.cli.parse import parse
from baddr.errors import UserError
from baddr.lab.output import in_line

if TYPE_CHECKING:
    from baddr.lab.reference import Line


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of one or more result folders in one picture, with confidence bands.

    examples:
      baddr plot results/tiger-ba-pomcp-1
      baddr plot results/* --out curves.svg --window 10
      baddr plot results/tiger-ba-pomcp-1 --reference optimum
      baddr plot results/* --lines paper=2.2 "by hand=1.5" --window 20
    """

    dirs: Folders
    out: Path = Path("curves.png")
    """The picture to write: .png, .svg or .pdf."""
    window: int = 0
    """Smoothing: the number of episodes averaged per point. 0: so that there are about 20 points."""
    reference: Reference = "none"
    lines: tuple[str, ...] = ()
    """Horizontal lines to compare with: NAME=VALUE."""
    title: str = ""
    """The title. By default, the names of the domains."""
    trust: Trust = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Plot = parse(Plot, "plot", arguments)
    if not options.dirs:
        raise UserError("Name at least one result folder: `baddr plot DIR...`.")
    if options.window < 0:
        raise UserError("--window must not be negative.")
    lines = [line_of(text) for text in options.lines]
    from baddr.lab.plots import plot_curves
    from baddr.lab.results import labels, results_of, title_of

    results = results_of(options.dirs)
    labelled = dict(zip(labels(list(results)), results.values(), strict=True))
    best = None if options.reference == "none" else reference_of(list(results), options.trust)
    more = all_of(list(results), options.trust) if options.reference == "all" else []
    title = options.title or title_of(list(results))
    plot_curves(labelled, title, [options.out], options.window, best, [*more, *lines])
    print(in_line(options.out))
    return 0


def line_of(text: str) -> tuple[str, float]:
    """NAME=VALUE."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name or not math.isfinite(number):
        raise UserError(f"--lines {text!r}: a line must be NAME=VALUE, such as paper=2.2.")
    return name, number


def all_of(folders: Sequence[Path], trust: bool) -> list["Line"]:
    """What planning with the prior only and on the truth are worth, as the first result's planner has it."""
    from baddr.files.store import Folder
    from baddr.lab.experiment import of_folder
    from baddr.lab.reference import references

    return references(of_folder(Folder(folders[0]), trust)).lines()


def reference_of(folders: Sequence[Path], trust: bool = False) -> tuple[float, float]:
    """The bounds of the optimum, if all results are on one domain."""
    from baddr.lab.results import check_same_domain

    check_same_domain(folders)
    from baddr.lab.device import prepare

    prepare("cpu")
    from baddr.lab.reference import optimum_of

    return optimum_of(folders[0], trust)
