"""`baddr sweep DOMAIN`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from tyro.conf import UseAppendAction, arg

from baddr.cli.folders import new_folder, stem_of
from baddr.cli.options import Config, Debug, Device, DryRun, Flat, Level, Out
from baddr.cli.parse import parse_with_domain
from baddr.cli.summary import describe_plan, finish
from baddr.errors import UserError
from baddr.lab.output import in_line
from baddr.lab.progress import progress

E = TypeVar("E")


@dataclass(frozen=True)
class Sweep(Generic[E]):
    """Run every combination of some settings' values. Print a table and draw a picture.

    Each combination has its own result folder inside the sweep's folder. `plot`, `compare` and `resume` take
    these like any other. To resume a sweep, repeat the command with the same --out: finished parts are not
    run again. More --runs, --episodes or values add to it.

    examples:
      baddr sweep tiger --agent dpfrl --preset paper --runs 5 --level 2 \\
          --over dpfrl.learning-rate=1e-4,3e-4,1e-3 --over dpfrl.num-particles=15,30,45
      baddr sweep tiger --over agent=dpfrl,a2c --episodes 5000 --out results/memory
      baddr sweep tiger --agent ba-pomcp --over planner.num-simulations=256,1024,4096
    """

    experiment: Flat[E]
    over: UseAppendAction[Annotated[tuple[str, ...], arg(metavar="NAME=VALUE,...")]] = ()
    """A setting, named like its flag, and the values to try (yes,no for a switch). Repeat --over for each
    setting."""
    out: Out = None
    level: Level = None
    config: Config = None
    dry_run: DryRun = False
    device: Device = "auto"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Sweep, "sweep", arguments, Sweep)
    from baddr.lab.device import prepare

    with new_folder(options.out, f"{stem_of(options.experiment)}-sweep", options.dry_run) as root:
        parts = _parts(root, options.over, arguments)
        prepare(options.device)
        if options.dry_run:
            return _dry_run(parts)
        _refuse(root, parts)
        code = _compute(root, parts)
        if code != 130:
            _compare_parts(root, parts, options.level)
        return code


def _parts(root: Path, over: Sequence[str], arguments: Sequence[str]) -> list[Any]:
    """A part for each combination, with its settings checked."""
    from baddr.lab import sweep

    values, parts = sweep.parse_over(over), []
    for name in values:
        if sweep.is_given(arguments, name):
            raise UserError(f"--{name} is both set and swept over; leave one of them out.")
    start = parse_with_domain(Sweep, "sweep", arguments, Sweep).experiment
    for combination in sweep.combinations(values):
        words = [*arguments, *sweep.flags(combination, start)]
        experiment = parse_with_domain(Sweep, "sweep", words, Sweep).experiment
        parts.append(sweep.make_part(root, combination, experiment))
    return parts


def _refuse(root: Path, parts: list[Any]) -> None:
    """What does not fit, before anything is computed."""
    from baddr.files.store import Folder
    from baddr.lab import sweep
    from baddr.lab.parts import is_preset, refuse_disk_of_all, refuse_parts, with_domains

    left = [part for part in parts if not sweep.is_complete(part)]
    refuse_disk_of_all((part.experiment for part in left), Folder(root).free)
    others = [part for part in left if not is_preset(part.experiment)]
    refuse_parts(with_domains((sweep.label(part.combination), part.experiment) for part in others))


def _dry_run(parts: list[Any]) -> int:
    from baddr.lab import runner, sweep

    for part in parts:
        plan = describe_plan(part.experiment, runner.estimate(part.experiment, measured=True))
        print(f"{sweep.label(part.combination)}: {plan}")
    return 0


def _compute(root: Path, parts: list[Any]) -> int:
    """All parts that are not complete yet; the exit code."""
    from baddr.lab import runner, sweep

    codes = []
    for number, part in enumerate(parts):
        if sweep.is_complete(part):
            print(f"{in_line(part.folder.path)} is complete.")
            continue
        title = f"{number + 1} of {len(parts)}, {sweep.label(part.combination)}"
        try:
            with progress(title) as show:
                failures = sweep.compute(part, show)
        except runner.Interrupted:
            message = f"interrupted; all work is kept. Resume with the same command and --out {root}"
            print(f"baddr: {message}", file=sys.stderr)
            return 130
        codes.append(finish(part.experiment, part.folder, failures))
    return max(codes, default=0)


def _compare_parts(root: Path, parts: list[Any], level: float | None) -> None:
    """A sweep's table and picture."""
    from baddr.lab import sweep
    from baddr.lab.plots import plot_curves
    from baddr.lab.results import title_of
    from baddr.lab.statistics import compare, default_window

    results = sweep.results_of(parts)
    shortest = min(int(columns["episode"].max()) + 1 for columns in results.values())
    last = max(1, shortest // 10)
    rows = compare(results, last, level, default_window(shortest))
    print(f"\ndiscounted returns; final: the last {last} episodes")
    print("\n".join(sweep.table(parts, list(rows.values()), level)))
    title = f"{title_of([part.folder.path for part in parts])}, by {', '.join(parts[0].combination)}"
    plot_curves(results, title, [root / "curves.png"])
    print(f"all curves: {root / 'curves.png'}")
