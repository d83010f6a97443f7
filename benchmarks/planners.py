"""Returns of PO-UCT and of the belief tree on the true model, against model steps and CPU time of a plan.

    python benchmarks/planners.py [--quick] [--problems tiger road-racing-3] [--files FOLDER/*.pomdp]
                                  [--picture results/planners.png] [--jobs 8] [--keep results/planners.json]

PO-UCT as published and with Bellman's backup, at 1/4, 1 and 4 times the simulations of the paper (of a file:
of its preset); the belief tree with 4, 16 and 64 expansions. Agent pomcp acts with the paper's filter. Means
over runs with their standard errors; a plan's time is CPU time on one core, over all plans of all episodes.
Model steps: of PO-UCT simulated ones; of the tree by tables each (s, a) of an expansion, with all that may
follow it, and elsewhere each particle by each action. What is worked out once (its bounds) is not counted.
`--jobs` measures so many problems at a time, each on a core of its own; the first to end is printed first.
Where a rare accident decides (collision avoidance), the error of few runs is too small.
The optimum is that of `baddr solve`, for a file without a horizon; its episodes here end where the discount
comes to 1 %. `--quick` has a few runs, and leaves out the largest budgets. `--keep` keeps what is found,
problem by problem; what is there already is not measured again, and is in the picture.
"""

import argparse
import json
import math
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from timing import pin, processor

PROBLEMS: dict[str, dict[str, int]] = {
    "tiger": {},
    "collision-avoidance-5": {"size": 5},
    "collision-avoidance-7": {"size": 7},
    "road-racing-3": {"lanes": 3},
    "gridverse-8": {"size": 8, "forward_length": 4},
}
SHARES, EXPANSIONS = (0.25, 1, 4), (4, 16, 64)
# Colour, line and marker of each planner.
STYLES = {
    "PO-UCT, published": ("#D55E00", "--", "s"),
    "PO-UCT, Bellman": ("#E69F00", "-.", "^"),
    "belief tree": ("#0072B2", "-", "o"),
}


class Row(NamedTuple):
    """What a planner with some budget has on a problem."""

    planner: str
    budget: int
    value: float
    error: float  # of the mean over runs
    steps: float  # of the model, in a plan
    milliseconds: float  # of a plan


# What is measured.


def experiment_of(problem: str) -> Any:
    """Agent pomcp at the paper's sizes. `problem` is a name of the list above, or a .pomdp file."""
    from baddr.domains.catalog import entry
    from baddr.lab.build import build_domain
    from baddr.lab.experiment import preset

    if problem in PROBLEMS:
        name = problem.rstrip("-0123456789")
        return preset(name, "pomcp", "paper", replace(entry(name).settings, **PROBLEMS[problem]))
    experiment = preset(problem, "pomcp", "paper")
    discount = build_domain(experiment).pomdp.discount
    horizon = math.ceil(math.log(0.01) / math.log(discount)) + 1 if discount < 1 else 100
    return replace(experiment, domain=replace(experiment.domain, horizon=horizon))


def planners_of(experiment: Any, quick: bool) -> Iterator[tuple[str, int, Any]]:
    """Each planner by its name and its budget."""
    from baddr.lab.experiment import preset
    from baddr.planners.po_uct import PoUct

    published = replace(experiment.settings.planner, in_flight=1)
    assert isinstance(published, PoUct)
    tree = preset(experiment.name, "pomcp", "quick", experiment.domain, {"planner": "belief-tree"})
    for share in SHARES[: 2 if quick else 3]:
        simulations = max(1, int(share * published.num_simulations))
        planner = replace(published, num_simulations=simulations)
        yield "PO-UCT, published", simulations, planner
        yield "PO-UCT, Bellman", simulations, replace(planner, backup="max")
    for expansions in EXPANSIONS[: 2 if quick else 3]:
        yield "belief tree", expansions, replace(tree.settings.planner, num_expansions=expansions)


def rows_of(experiment: Any, domain: Any, options: argparse.Namespace) -> Iterator[Row]:
    from lives import live

    from baddr.lab.build import build_agent

    runs, actor = options.file_runs if hasattr(experiment.domain, "path") else options.runs, None
    for name, budget, planner in planners_of(experiment, options.quick):
        agent = build_agent(experiment.changed(planner=planner), domain)
        actor = actor or agent
        life = live(agent, actor, domain.pomdp, runs, options.episodes)
        error = float(life.returns.std(ddof=1)) / math.sqrt(runs)
        yield Row(name, budget, float(life.returns.mean()), error, life.steps, 1e3 * life.seconds)


def optimum_of(experiment: Any, domain: Any, seconds: float) -> tuple[float, float]:
    """Bounds on it, after so many seconds at most."""
    from baddr.domains.solving import true_model
    from baddr.solve.point_based import Budget
    from baddr.solve.stored import stored_solution

    model, horizon = true_model(domain, experiment.domain)
    solution = stored_solution(model, Budget(seconds=seconds), horizon)
    return solution.lower, solution.upper


# What is shown.


def draw(found: dict[str, tuple[list[Row], tuple[float, float]]], path: Path, note: str) -> None:
    """A panel each: returns against the logarithm of a plan's time."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    size = (3.8 * columns, 3.0 * lines + 0.8)
    figure, panels = plt.subplots(lines, columns, figsize=size, squeeze=False)
    for panel in panels.flat[len(found) :]:
        panel.set_visible(False)
    listed = list(PROBLEMS)
    titles = sorted(found, key=lambda title: listed.index(title) if title in listed else len(listed))
    for panel, title in zip(panels.flat, titles, strict=False):
        rows, (lower, upper) = found[title]
        panel.axhspan(lower, upper, color="0.6", alpha=0.3, linewidth=0)
        panel.axhline(lower, color="0.4", linewidth=1, label="optimum (baddr solve)")
        for planner, (colour, line, marker) in STYLES.items():
            mine = [row for row in rows if row.planner == planner]
            x, y = [row.milliseconds for row in mine], [row.value for row in mine]
            look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "capsize": 2}
            panel.errorbar(x, y, [row.error for row in mine], label=planner, **look)
        panel.set(xscale="log", title=title, xlabel="CPU ms of a plan", ylabel="discounted return")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.margins(y=0.12)
        panel.grid(alpha=0.3)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"True model, ± one standard error. {note}", fontsize=8)
    figure.tight_layout(rect=(0, 0.5 / size[1], 1, 1 - 0.15 / size[1]))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def heading(title: str, domain: Any, optimum: tuple[float, float]) -> str:
    pomdp = domain.pomdp
    of = f"{title}: {pomdp.num_states:,} states, at most {pomdp.horizon} steps"
    columns = f"{'planner':18s} {'budget':>7s} {'return':>9s} {'+-':>7s} {'steps/plan':>11s} {'ms/plan':>9s}"
    return f"\n{of}, optimum between {optimum[0]:.6g} and {optimum[1]:.6g}\n{columns}"


def line(row: Row) -> str:
    value = f"{row.planner:18s} {row.budget:7,d} {row.value:9.4g} {row.error:7.2g}"
    return f"{value} {row.steps:11,.0f} {row.milliseconds:9.3f}"


Found = tuple[str, list[Row], tuple[float, float], str]  # its title, the rows, the optimum, and all as text


def title_of(problem: str) -> str:
    return Path(problem).name.removesuffix(".pomdp").removesuffix(".POMDP")


def measured(problem: str, options: argparse.Namespace) -> Found:
    """All planners on a problem; alone, they are printed one by one."""
    from baddr.lab.build import build_domain

    experiment = experiment_of(problem)
    domain, title = build_domain(experiment), title_of(problem)
    optimum = optimum_of(experiment, domain, options.seconds)
    said, rows = [heading(title, domain, optimum)], []
    for row in rows_of(experiment, domain, options):
        rows.append(row)
        said.append(line(row))
        if options.jobs == 1:
            print(*said[-2 if len(rows) == 1 else -1 :], sep="\n", flush=True)
    said.append(f"load {os.getloadavg()[0]:.1f}")
    return title, rows, optimum, "\n".join(said)


def all_measured(problems: list[str], options: argparse.Namespace) -> Iterator[Found]:
    if options.jobs == 1:
        pin()
        yield from (measured(problem, options) for problem in problems)
        return
    spawn = multiprocessing.get_context("spawn")
    cores = spawn.Queue()
    for core in range(options.jobs):
        cores.put(core)
    with ProcessPoolExecutor(options.jobs, spawn, on_its_core, (cores,)) as pool:
        work = [pool.submit(measured, problem, options) for problem in problems]
        yield from (done.result() for done in as_completed(work))


def kept(path: Path | None) -> dict[str, tuple[list[Row], tuple[float, float]]]:
    """What an earlier call found."""
    if path is None or not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {title: ([Row(*row) for row in rows], (low, high)) for title, (rows, (low, high)) in found.items()}


def on_its_core(cores: Any) -> None:
    pin(first=cores.get())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--files", nargs="*", type=Path, default=[], help=".pomdp files, besides")
    parser.add_argument("--quick", action="store_true", help="a few minutes")
    parser.add_argument("--runs", type=int, help="4096, or 1024 with --quick")
    parser.add_argument("--file-runs", type=int, help="of files, whose episodes are long: 128, or 16")
    parser.add_argument("--episodes", type=int, help="of each run: 4, or 1 with --quick")
    parser.add_argument("--seconds", type=float, help="of solving: 60, or 10 with --quick")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time, each on a core of its own")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    parser.add_argument("--keep", type=Path, help="a JSON file of what was found")
    options = parser.parse_args()
    sizes = (1024, 16, 1, 10.0) if options.quick else (4096, 128, 4, 60.0)
    for name, value in zip(("runs", "file_runs", "episodes", "seconds"), sizes, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    if min(options.runs, options.file_runs) < 2:
        parser.error("--runs must be at least 2: errors are those of a mean over runs")
    note = processor()
    runs = f"{options.runs} runs ({options.file_runs} of files) x {options.episodes}"
    print(f"Planners on the true model, {runs}, {options.jobs} at a time on {note}", flush=True)
    found = kept(options.keep)
    problems = [x for x in [*options.problems, *map(str, options.files)] if title_of(x) not in found]
    for title, rows, optimum, said in all_measured(problems, options):
        found[title] = rows, optimum
        print(said if options.jobs > 1 else "", flush=True)
        if options.keep:
            options.keep.write_text(json.dumps(found))
        if options.picture:
            draw(found, options.picture, note)
    if options.picture and found:
        draw(found, options.picture, note)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
