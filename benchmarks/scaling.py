"""How a plan and a belief update grow with each size: tables, fitted exponents and a log-log picture.

    python benchmarks/scaling.py [--axes runs particles ...] [--picture docs/pictures/scaling.png]

BADDr. Every axis changes one size and keeps the others: tiger at the paper's settings (4096 simulations, 1024
particles, 32 nodes) for runs, particles, simulations and hidden nodes; road racing and gridverse for their
lanes and cells. An exponent is the slope of a line through the logarithms of the larger half of the sizes: 1
is proportional. Networks are not trained, and rejection sampling makes one round of proposals, so that every
size does the same work. One core of a CPU, or the accelerator that JAX finds; CPU seconds on a CPU; medians.
"""

import argparse
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from timing import about, pin


class Axis(NamedTuple):
    """A size that grows, and what it leaves as it is."""

    title: str
    sizes: list[int]
    about: str


def axes(gpu: bool) -> dict[str, Axis]:
    tiger = "tiger, 4096 simulations, 1024 particles, 32 nodes"
    runs = [1, 8, 64, 256, 1024, 2048, 4096] if gpu else [1, 4, 16, 64, 256]
    return {
        "runs": Axis("runs at once", runs, f"{tiger}; ms in all"),
        "particles": Axis("particles", [64, 256, 1024, 4096], "tiger, 4096 simulations, 32 nodes; one run"),
        "simulations": Axis(
            "simulations", [64, 256, 1024, 4096, 16384], "tiger, 1024 particles, 32 nodes; one run"
        ),
        "hidden": Axis(
            "nodes of a layer", [32, 128, 256, 512], "tiger, 4096 simulations, 128 particles; one run"
        ),
        "lanes": Axis(
            "lanes of the road", [3, 6, 9, 15], "128 simulations, 256 particles, 64 nodes; one run"
        ),
        "grid": Axis("cells of a side", [8, 16, 32, 64], "gridverse at the paper's settings; one run"),
    }


def experiment_of(axis: str, size: int) -> tuple[Any, int]:
    """The experiment, and its number of runs."""
    from baddr.core.filters import Rejection
    from baddr.domains.gridverse.settings import GridverseSettings
    from baddr.domains.road_racing.settings import RoadRacingSettings
    from baddr.lab.experiment import preset

    sizes = (
        {"lanes": RoadRacingSettings(lanes=size), "grid": GridverseSettings(size=size)} if size >= 3 else {}
    )
    domain = {"lanes": "road-racing", "grid": "gridverse"}.get(axis, "tiger")
    experiment = preset(domain, "baddr", "paper", sizes.get(axis))
    settings = experiment.settings
    planner, filter, network = settings.planner, settings.filter, settings.network
    if isinstance(filter, Rejection):
        filter = replace(filter, max_tries=1)
    if axis == "simulations":  # as many in flight at every size
        planner = replace(planner, num_simulations=size, in_flight=4)
    if axis == "particles":
        filter = replace(filter, num_particles=size)
    if axis == "hidden":
        filter, network = replace(filter, num_particles=128), replace(network, hidden=size)
    if axis == "lanes":
        filter, network = replace(filter, num_particles=256), replace(network, hidden=64)
    changed = experiment.changed(planner=planner, filter=filter, network=network)
    return changed, size if axis == "runs" else 1


def measure(axis: str, sizes: list[int]) -> Iterator[tuple[int, float, float]]:
    """Each size with the milliseconds of a plan and of an update."""
    from cases import case, time_plan, time_update

    for size in sizes:
        experiment, runs = experiment_of(axis, size)
        some = case(experiment, runs)
        plan, _ = time_plan(some, repeats=5, most=4)
        update, _ = time_update(some, repeats=5, most=4)
        yield size, 1e3 * plan, 1e3 * update


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of the least-squares line through the logarithms, of the larger half of the sizes."""
    start = max(0, min(len(sizes) // 2, len(sizes) - 3))
    x, y = ([math.log(value) for value in values[start:]] for values in (sizes, times))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def draw(
    found: dict[str, list[tuple[int, float, float]]], known: dict[str, Axis], path: Path, note: str
) -> None:
    import matplotlib.pyplot as plt

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(3.6 * columns, 3.0 * rows), squeeze=False)
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    for panel, (axis, points) in zip(panels.flat, found.items(), strict=False):
        sizes, *columns_of = (list(x) for x in zip(*points, strict=True))
        for name, times, marker in zip(("plan", "belief update"), columns_of, "os", strict=True):
            label = f"{name}: exponent {exponent(sizes, times):.2f}"
            panel.loglog(sizes, times, marker=marker, markersize=4, label=label)
        panel.set_xlabel(known[axis].title)
        panel.set_ylabel("ms")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
        panel.margins(y=0.25)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7)
    figure.suptitle(f"BADDr, {note}", fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--axes", nargs="+", choices=list(axes(False)), default=list(axes(False)))
    parser.add_argument("--picture", type=Path, help="where to draw it")
    options = parser.parse_args()
    pin()
    import jax
    from cases import fresh_cache

    known, note = axes(jax.default_backend() != "cpu"), about()
    print(f"How BADDr's plan and belief update grow\n{note}", flush=True)
    found: dict[str, list[tuple[int, float, float]]] = {}
    with fresh_cache() as folder:
        os.environ["BADDR_CACHE"] = folder
        for axis in options.axes:
            print(f"\n{known[axis].title} ({known[axis].about})")
            print(f"{'size':>8s} {'ms a plan':>12s} {'ms an update':>14s}")
            found[axis] = []
            for size, plan, update in measure(axis, known[axis].sizes):
                found[axis].append((size, plan, update))
                print(f"{size:8d} {plan:12.3f} {update:14.3f}", flush=True)
            sizes, plans, updates = (list(x) for x in zip(*found[axis], strict=True))
            slopes = exponent(sizes, plans), exponent(sizes, updates)
            print(f"exponent {slopes[0]:12.2f} {slopes[1]:14.2f}   load {os.getloadavg()[0]:.1f}", flush=True)
    if options.picture:
        draw(found, known, options.picture, note)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
