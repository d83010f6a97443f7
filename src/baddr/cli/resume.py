"""`baddr resume DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from baddr.agents.kinds import kinds_in
from baddr.cli.folders import config_of, interruptible
from baddr.cli.options import Debug, Flat, Track, Trust, Watch, Where, engine_of
from baddr.cli.parse import parse, prepare_for
from baddr.cli.progress import followed, whole_progress
from baddr.cli.summary import finish
from baddr.errors import UserError, counted
from baddr.files.store import Folder
from baddr.lab.experiment import extend, of_folder
from baddr.lab.output import in_line
from baddr.lab.sources import check_sources


@dataclass(frozen=True)
class Resume:
    """Continue an interrupted run, reproduce or suite. If it is finished, nothing changes.

    You may use another engine or device than before.

    examples:
      baddr resume results/tiger-ba-pomcp-1
      baddr resume results/tiger-ba-pomcp-1 --episodes 400 --runs 64
      baddr resume results/reproduce-all-1
    """

    dir: Positional[Annotated[Path, arg(metavar="DIR")]]
    """The result folder."""
    runs: int | None = None
    """Extend the result to this many runs."""
    episodes: int | None = None
    """Extend each run to this many episodes."""
    trust: Trust = False
    where: Flat[Where] = field(default_factory=Where)
    track: Track = ()
    watch: Watch = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Resume = parse(Resume, "resume", arguments)
    if (options.dir / "reproduce.toml").exists():
        return _resume_reproduce(options)
    if (options.dir / "suite.toml").exists():
        return _resume_suite(options)
    folder = Folder(options.dir)
    config = config_of(folder)
    if not options.trust:  # before JAX is loaded
        check_sources(config, folder.read_manifest(), folder)
    prepare_for([str(config.get("name")), *kinds_in(config).values()], options.where.device)
    before = of_folder(folder, options.trust)
    for name, value in (("runs", options.runs), ("episodes", options.episodes)):
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1.")
    experiment = extend(before, options.runs, options.episodes)
    experiment.check_values()
    if experiment == before and folder.is_whole:
        if not (folder.path / "curve.png").exists():  # a kill came between the last row and the pictures
            from baddr.agents.life import Failure

            return finish(experiment, folder, [Failure(**x) for x in folder.read_manifest()["failures"]])
        size = f"{counted(before.runs, 'run')} of {counted(before.episodes, 'episode')}"
        print(f"{in_line(folder.path)} is complete: {size}.")
        return 0
    engine = engine_of(options.where)
    from baddr.lab import runner

    watching = options.watch, options.track
    with followed(experiment.title, folder, *watching) as (progress, listeners):
        how = {"engine": engine, "listeners": listeners, "trust": options.trust}
        failures = interruptible(folder, lambda: runner.resume(experiment, folder, progress, **how))
    return finish(experiment, folder, failures)


def _resume_reproduce(options: Resume) -> int:
    from baddr.cli.reproduce import finish
    from baddr.paper.folder import Reproduction, status
    from baddr.paper.reproduce import resume

    folder = Reproduction(options.dir)
    if options.runs is not None or options.episodes is not None:
        raise UserError(
            f"{folder.path} holds figures, whose sizes are fixed; extend one of its parts or start a new one."
        )
    request = folder.read_request()
    if status(folder) == "complete" and folder.has_all(request):
        print(f"{in_line(folder.path)} is complete: `{request.command}`; its report is report.html there.")
        return 0
    engine = engine_of(options.where)
    with whole_progress(options.watch) as (progress, listeners):
        failed = interruptible(folder, lambda: resume(folder, progress, engine, listeners))
    return finish(folder, failed)


def _resume_suite(options: Resume) -> int:
    from baddr.bench.folder import Suite, resume
    from baddr.cli.suite import finish

    folder = Suite(options.dir, options.trust)
    if options.runs is not None or options.episodes is not None:
        raise UserError(f"{folder.path} holds a suite, whose sizes are fixed; start a new one.")
    request = folder.read_request()
    if folder.is_complete(request):
        print(f"{in_line(folder.path)} is complete: `{request.command}`; its scoreboard is suite.html there.")
        return 0
    engine = engine_of(options.where)
    with whole_progress(options.watch) as (progress, listeners):
        failed = interruptible(folder, lambda: resume(folder, progress, engine, listeners))
    return finish(folder, failed)
