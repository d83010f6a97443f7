"""Every figure and table of the paper: one file each, and one line here. Needs no JAX."""

from baddr.errors import nearest
from baddr.lab.experiment import AnyExperiment
from baddr.paper.figures import a, b, c, d, e, episodes, f, g, h, i, runtime
from baddr.paper.figures.figure import Figure, Sizes, part_name

FIGURES = {file.FIGURE.name: file.FIGURE for file in (a, b, c, d, e, f, g, h, i, episodes, runtime)}


def chosen(names: tuple[str, ...]) -> list[Figure]:
    """The figures that were asked for, in the paper's order, each once."""
    if "all" in names:
        return list(FIGURES.values())
    for name in names:
        nearest("figure", name, [*FIGURES, "all"])
    return [figure for name, figure in FIGURES.items() if name in names]


def parts(figures: list[Figure], sizes: Sizes) -> dict[str, tuple[AnyExperiment, bool]]:
    """The experiments of some figures by the names of their folders, and whether they are only timed."""
    return {
        part_name(experiment, curve.timed): (experiment, curve.timed)
        for figure in figures
        for curve in figure.curves(sizes)
        for experiment in curve.parts().values()
    }
