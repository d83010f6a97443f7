"""`baddr plot DIR...`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from baddr.cli.options import Debug, Folders, Reference, Trust
from baddr.cli.parse import parse
from baddr.errors import UserError


@dataclass(frozen=True)
class Plot:
    """Learning curves with confidence bands, several folders in one picture.

    examples:
      baddr plot results/tiger-ba-pomcp-1
      baddr plot results/* --out curves.svg --window 10
      baddr plot results/tiger-ba-pomcp-1 --reference optimum
    """

    dirs: Folders
    out: Path = Path("curves.png")
    """The picture: .png, .svg or .pdf."""
    window: int = 0
    """Episodes averaged per point. 0: about 20 points."""
    reference: Reference = "none"
    trust: Trust = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Plot = parse(Plot, "plot", arguments)
    if not options.dirs:
        raise UserError("Name at least one result folder: `baddr plot DIR...`.")
    if options.window < 0:
        raise UserError("--window must not be negative.")
    from baddr.lab.plots import plot_curves
    from baddr.lab.results import labels, results_of

    results = results_of(options.dirs)
    labelled = dict(zip(labels(list(results)), results.values(), strict=True))
    optimum = None if options.reference == "none" else reference_of(list(results), options.trust)
    plot_curves(labelled, "", [options.out], options.window, optimum)
    print(options.out)
    return 0


def reference_of(folders: Sequence[Path], trust: bool = False) -> tuple[float, float]:
    """The bounds of the optimum, if all results are on one domain."""
    from baddr.lab.results import check_same_domain

    check_same_domain(folders)
    from baddr.lab.device import prepare

    prepare("cpu")
    from baddr.lab.reference import optimum_of

    return optimum_of(folders[0], trust)
