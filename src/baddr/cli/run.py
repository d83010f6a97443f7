"""`baddr run DOMAIN`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from baddr.cli.folders import interruptible, new_folder, stem_of
from baddr.cli.options import Config, Debug, DryRun, Flat, Out, Reference, Track, Watch, Where, engine_of
from baddr.cli.parse import parse_with_domain
from baddr.cli.progress import followed
from baddr.cli.summary import describe_plan, finish
from baddr.domains.catalog import entry
from baddr.files.store import Folder
from baddr.lab.experiment import AnyExperiment
from baddr.lab.output import in_line

E = TypeVar("E")


@dataclass(frozen=True)
class Run(Generic[E]):
    """Let an agent act and learn. Save the results and a learning curve.

    examples:
      baddr run tiger
      baddr run tiger --agent pomcp --runs 100 --episodes 20 --out results/upper-bound
      baddr run tiger --preset paper --runs 64 --planner.num-simulations 2048 --dry-run
      baddr run examples/machine.pomdp --agent ba-pomcp --domain.horizon 30
      baddr run examples/maintenance.py:make_domain --domain.horizon 10
    """

    experiment: Flat[E]
    out: Out = None
    config: Config = None
    dry_run: DryRun = False
    render: Path | None = None
    """Draw the last episode of the traced run (run 0 without --trace): FILE.gif, FILE.png or FILE.txt."""
    reference: Reference = "none"
    where: Flat[Where] = field(default_factory=Where)
    track: Track = ()
    watch: Watch = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Run, "run", arguments, Run)
    experiment: AnyExperiment = options.experiment
    if options.render is not None:
        from baddr.domains.render import check_path

        check_path(options.render)
        experiment = replace(experiment, trace=max(experiment.trace, 0))
    experiment.check()
    with new_folder(options.out, stem_of(experiment), options.dry_run) as path:
        return _run(options, experiment, Folder(path))


def _run(options: Run, experiment: AnyExperiment, folder: Folder) -> int:
    if not options.dry_run:
        folder.check_new()
    engine = engine_of(options.where)
    from baddr.lab import runner

    if options.dry_run:
        print(describe_plan(experiment, runner.estimate(experiment, engine, folder.free, True)))
        return 0
    watching = options.watch, options.track
    with followed(experiment.title, folder, *watching) as (progress, listeners):
        how = {"engine": engine, "listeners": listeners}
        failures = interruptible(folder, lambda: runner.start(experiment, folder, progress, **how))
    code = finish(experiment, folder, failures, options.reference)
    if options.render is not None:
        _render(experiment, folder, options.render)
    return code


def _render(experiment: AnyExperiment, folder: Folder, path: Path) -> None:
    from baddr.domains.render import render_episode
    from baddr.lab.build import build_domain

    names = entry(experiment.name).names(experiment.domain)
    render_episode(folder.path / "trace.jsonl", build_domain(experiment), names, path)
    print(f"  last episode of run {experiment.trace}: {in_line(path)}")
