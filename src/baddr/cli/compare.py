"""`baddr compare DIR...`."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baddr.cli.options import Debug, Folders, Level, Reference, Trust
from baddr.cli.parse import parse
from baddr.cli.plot import reference_of
from baddr.errors import UserError, counted


@dataclass(frozen=True)
class Compare:
    """Compare results in numbers, with 95 % bootstrap intervals over runs.

    The first folder is the baseline. Each other folder is compared with it run by run, over the runs that
    both have: with the same seed, run i gets the same random numbers in both.

    examples:
      baddr compare results/tiger-ba-pomcp-1 results/tiger-baddr-1
      baddr compare results/* --last 50 --level 2.2 --json
    """

    dirs: Folders
    last: int = 0
    """How many episodes count as the final ones. 0: a tenth of the shortest result."""
    level: Level = None
    window: int = 0
    """Number of episodes to average for --level. 0: a twentieth of the shortest result."""
    reference: Reference = "none"
    trust: Trust = False
    json: bool = False
    """Print JSON."""
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Compare = parse(Compare, "compare", arguments)
    if not options.dirs:
        raise UserError("Name at least one result folder: `baddr compare DIR...`.")
    for name in ("last", "window"):
        if getattr(options, name) < 0:
            raise UserError(f"--{name} must not be negative.")
    from baddr.lab.results import check_same_domain, labels, results_of
    from baddr.lab.statistics import compare, default_window

    found = results_of(options.dirs)
    check_same_domain(list(found))
    results = dict(zip(labels(list(found)), found.values(), strict=True))
    shortest = min(int(columns["episode"].max()) + 1 for columns in results.values())
    last = options.last or max(1, shortest // 10)
    if last > shortest:
        raise UserError(f"--last {last} is more than the {shortest} episodes of the shortest result.")
    window = options.window or default_window(shortest)
    if options.level is not None and not math.isfinite(options.level):
        raise UserError("--level must be a finite number.")
    rows = compare(results, last, options.level, window)
    optimum = None if options.reference == "none" else reference_of(list(found), options.trust)
    if options.json:
        values = {name: {key: _plain(x) for key, x in row.items()} for name, row in rows.items()}
        bounds = {} if optimum is None else {"optimum": {"lower": optimum[0], "upper": optimum[1]}}
        print(json.dumps({"last": last, "window": window, "results": values} | bounds))
        return 0
    print(f"discounted returns, with 95 % intervals over runs; final: the last {last} episodes")
    for name, row in rows.items():
        print(_paragraph(name, row, options.level, window))
    if optimum is not None:
        print(f"optimum: {optimum}")
    return 0


def _plain(x: Any) -> Any:
    """An estimate as a table; `null` where it is infinite."""
    finite = lambda value: value if math.isfinite(value) else None
    return {key: finite(value) for key, value in x._asdict().items()} if hasattr(x, "_asdict") else x


def _paragraph(name: str, row: dict[str, Any], level: float | None, window: int) -> str:
    """About one result."""
    lines = [
        f"{name}: {counted(row['runs'], 'run')} of {counted(row['episodes'], 'episode')}",
        f"  final mean                {row['final']}",
        f"  final interquartile mean  {row['final_interquartile']}",
        f"  mean over all episodes    {row['area']}",
    ]
    if level is not None:
        value, low, high = (f"{x:.0f}" if x < math.inf else "never" for x in row["episodes_to_level"])
        interval = f"[{low}, {high}]" if row["episodes_to_level"].has_interval else "[no interval]"
        lines.append(f"  episodes to {level:g}: {value} {interval} (the mean of {window})")
    if "difference" in row:
        difference = f"{row['difference']} ({row['common_runs']} common runs)"
        lines.append(f"  final, less the first     {difference}")
    return "\n".join(lines)
