"""`baddr suite`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from baddr.cli.folders import interruptible, new_folder
from baddr.cli.options import Debug, Flat, Out, Trust, Watch, Where, engine_of
from baddr.cli.parse import parse
from baddr.cli.progress import whole_progress
from baddr.errors import UserError
from baddr.lab.output import in_line


@dataclass(frozen=True)
class Suite:
    """Benchmark agents on domains, with reference lines and a scoreboard.

    A score is (return - prior only) / (planning on the truth - prior only). The folder holds suite.html, a
    page with sortable tables and curves, suite.json with the same numbers, and a result folder for each part.
    To continue an interrupted suite, use `baddr resume DIR`.

    --add adds the results of an outside agent: a Parquet file with the columns run, episode,
    discounted_return and domain. --join combines suites that were computed separately.

    examples:
      baddr suite
      baddr suite --agents ba-pomcp baddr --domains tiger t-maze --runs 4 --episodes 10
      baddr suite --preset full --device gpu --out results/suite
      baddr suite --add mine.parquet --name mine --out results/suite
      baddr suite --join results/tiger results/t-maze --out results/both
    """

    preset: Literal["quick", "full"] = "quick"
    """quick: some domains and agents, within half an hour on two cores. full: all, for a GPU or a cluster."""
    agents: Annotated[tuple[str, ...], arg(metavar="NAME...")] = ()
    """The agents. By default, the preset's."""
    domains: Annotated[tuple[str, ...], arg(metavar="DOMAIN...")] = ()
    """The domains. By default, the preset's."""
    runs: int = 0
    """Number of runs of each part, over all its trainings. 0: the preset's."""
    episodes: int = 0
    """Number of episodes in each run. 0: the preset's."""
    trainings: int = 0
    """How often networks are trained anew; the trainings share the runs. 0: the preset's."""
    seed: int = 0
    """The first seed. Each training has its own."""
    out: Out = None
    dry_run: bool = False
    """List the experiments, estimate memory and time, and stop."""
    add: Annotated[Path | None, arg(metavar="FILE.parquet")] = None
    """Add an outside agent's results to the suite in --out, and rewrite its scoreboard."""
    name: str = ""
    """The name of the outside agent."""
    join: Annotated[tuple[Path, ...], arg(metavar="DIR...")] = ()
    """Suites of the same sizes, to combine in --out with the agents and domains of all."""
    trust: Trust = False
    where: Flat[Where] = field(default_factory=Where)
    watch: Watch = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Suite = parse(Suite, "suite", arguments)
    if options.add is not None or options.name:
        return _add(options)
    if options.join:
        return _join(options)
    from baddr.bench.folder import Suite as SuiteFolder
    from baddr.bench.folder import start
    from baddr.bench.suite import Request

    fields = ("preset", "agents", "domains", "runs", "episodes", "trainings", "seed")
    request = Request(**{name: getattr(options, name) for name in fields})
    request.check()
    with new_folder(options.out, f"suite-{request.preset}", options.dry_run) as path:
        folder = SuiteFolder(path)
        if not options.dry_run:
            folder.check_free()
        engine = engine_of(options.where)
        if options.dry_run:
            return _dry_run(request, engine)
        with whole_progress(options.watch) as (progress, listeners):
            failed = interruptible(folder, lambda: start(request, folder, progress, engine, listeners))
        return finish(folder, failed)


def _add(options: Suite) -> int:
    from baddr.bench.folder import Suite as SuiteFolder
    from baddr.bench.outside import add
    from baddr.bench.scoreboard import write_scoreboard

    if options.add is None or not options.name or options.out is None:
        raise UserError("An outside agent needs all three: --add FILE.parquet --name NAME --out DIR.")
    folder = SuiteFolder(options.out, options.trust)
    domains = add(folder, options.add, options.name, options.domains)
    write_scoreboard(folder)
    print(f"{options.name} is on the scoreboard of {in_line(folder.path)}, on {', '.join(domains)}.")
    return 0


def _join(options: Suite) -> int:
    from baddr.bench.folder import Suite as SuiteFolder
    from baddr.bench.join import join
    from baddr.bench.scoreboard import write_scoreboard

    with new_folder(options.out, "suite-joined") as path:
        folder = SuiteFolder(path, options.trust)
        missing = join(folder, [SuiteFolder(path, options.trust) for path in options.join])
        write_scoreboard(folder)
    if missing:
        print(f"{missing} part(s) are not computed yet: `baddr resume {in_line(folder.path)}` computes them.")
    return finish(folder, sum(bool(found["failures"]) for found in folder.read_parts()["parts"].values()))


def _dry_run(request: Any, engine: Any) -> int:
    from baddr.bench.suite import parts, refusal
    from baddr.lab import runner
    from baddr.lab.build import build_domain

    domains, seconds, count = {}, 0.0, 0
    for part in parts(request):
        if part.domain not in domains:
            domains[part.domain] = build_domain(part.experiment)
        if refusal(part.agent, domains[part.domain]):
            print(f"{part.name:40s} not possible")
            continue
        found, count = runner.estimate(part.experiment, engine), count + 1
        seconds += found["seconds"] + STARTING
        sizes = f"{part.experiment.runs:5d} runs x {part.experiment.episodes:6d} episodes"
        print(f"{part.name:40s} {sizes} {found['memory_bytes'] / 2**20:8.0f} MiB")
    print(f"{count} parts, roughly {seconds / 60:.0f} minutes (a rule of thumb). Nothing was run.")
    return 0


STARTING = 15.0  # seconds to compile a part, and to train


def finish(folder: Any, failed: int) -> int:
    """The final scores, and where the page is; the exit code."""
    import json

    found = json.loads((folder.path / "suite.json").read_text())
    for domain, said in found["domains"].items():
        of = said["references"]
        clear = "" if said["clear"] else "; not clearly better, so scores mean little"
        print(f"{domain}: prior only {of['prior']:.3f}, planning on the truth {of['truth']:.3f}{clear}")
        for agent, scores in sorted(said["agents"].items(), key=lambda pair: -(pair[1]["final"][0] or -1e9)):
            value, low, high = (float("nan") if x is None else x for x in scores["final"])
            to = scores["episodes_to_.9"][0]
            when = "never" if to is None else f"after {to:.0f} episodes"
            print(f"  {agent:12s} score {value:6.2f} [{low:.2f}, {high:.2f}], .9 {when}")
    print(f"scoreboard: {in_line(folder.path / 'suite.html')}")
    if failed:
        print(f"baddr: some runs of {failed} part(s) failed; manifest.json names them.", file=sys.stderr)
    return 3 if failed else 0
