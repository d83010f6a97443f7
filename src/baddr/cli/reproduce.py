"""`baddr reproduce FIGURE...`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from baddr.cli.folders import interruptible, new_folder
from baddr.cli.options import Debug, Flat, Out, Watch, Where, engine_of
from baddr.cli.parse import parse
from baddr.cli.progress import whole_progress
from baddr.lab.output import in_line


@dataclass(frozen=True)
class Reproduce:
    """Reproduce figures and tables of the paper: run the experiments, draw the figures, judge the claims.

    FIGURE is a to i, episodes (the table of episodes to equal return), runtime, several of these, or all. The
    folder holds a result folder for each experiment, a picture and the scores of each figure, and a report:
    report.md, and report.html, a single self-contained page.

    examples:
      baddr reproduce a
      baddr reproduce all --out results/paper
      baddr reproduce a h i --preset paper --runs 256 --device gpu
      baddr reproduce all --preset paper --dry-run
      baddr resume results/reproduce-a-1
    """

    figures: Positional[Annotated[tuple[str, ...], arg(metavar="FIGURE...")]]
    """a to i, episodes, runtime, or all."""
    preset: Literal["quick", "paper"] = "quick"
    """quick: a recognisable picture in minutes. paper: the paper's sizes."""
    runs: int = 0
    """Number of runs of each curve, over all its ensembles (at most, for dpfrl and a2c). 0: the preset's."""
    episodes: int = 0
    """The most episodes per run. 0: the preset's."""
    ensembles: int = 0
    """Number of ensembles of networks that each curve of baddr or filtering pools. 0: the preset's."""
    seed: int = 0
    """The first seed. Each ensemble has its own."""
    out: Out = None
    dry_run: bool = False
    """List the experiments, estimate memory and time, and stop."""
    where: Flat[Where] = field(default_factory=Where)
    watch: Watch = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Reproduce = parse(Reproduce, "reproduce", arguments)
    from baddr.paper.folder import Reproduction, Request

    sizes = {name: getattr(options, name) for name in ("preset", "runs", "episodes", "ensembles", "seed")}
    request = Request(figures=options.figures, **sizes)
    request.check()
    with new_folder(options.out, f"reproduce-{'-'.join(request.figures)}", options.dry_run) as path:
        folder = Reproduction(path)
        if not options.dry_run:
            folder.check_free()
        engine = engine_of(options.where)
        if options.dry_run:
            return _dry_run(request, engine)
        return _start(request, folder, engine, options.watch)


def _start(request: Any, folder: Any, engine: Any, watch: bool) -> int:
    from baddr.paper.reproduce import start

    with whole_progress(watch) as (progress, listeners):
        failed = interruptible(folder, lambda: start(request, folder, progress, engine, listeners))
    return finish(folder, failed)


def _dry_run(request: Any, engine: Any) -> int:
    from baddr.paper.part import estimates

    rows = estimates(request, engine)
    width = max(len(row["part"]) for row in rows)
    for row in rows:
        sizes = f"{row['runs']:6d} runs x {row['episodes']:6d} episodes"
        memory = f"{row['memory_bytes'] / 2**20:8.0f} MiB"
        print(f"{row['part']:{width}s} {sizes} {memory} {row['seconds'] / 60:8.1f} min")
    seconds = sum(row["seconds"] for row in rows)
    whole = f"{seconds / 60:.0f} minutes" if seconds < 36_000 else f"{seconds / 3600:,.0f} hours"
    print(f"{len(rows)} parts, roughly {whole} on two CPU cores (a rule of thumb). Nothing was run.")
    return 0


def finish(folder: Any, failed: int) -> int:
    """The verdicts and where the report is; the exit code."""
    for figure in folder.read_request().chosen:
        scores = json.loads((folder.path / f"figure-{figure.name}.json").read_text())
        size = ", at reduced size" if scores["reduced"] else ""
        print(f"{figure.name}: {figure.title}{size}")
        for claim in scores["claims"]:
            print(f"  {claim['verdict']:9s}  {claim['says']}")
    wall = folder.read_parts()["wall_seconds"]
    print(f"wall time {wall:.0f} s; pictures, data and report.html in {in_line(folder.path)}")
    if failed:
        print(f"baddr: some runs of {failed} part(s) failed; the report names them.", file=sys.stderr)
    return 3 if failed else 0
