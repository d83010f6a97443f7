"""The command line. `--help` and `list` answer without loading JAX."""

import contextlib
import gc
import io
import itertools
import json
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from tyro.conf import Positional, UseAppendAction, arg

from baddr.errors import ClusterError, StorageError, UserError
from baddr.files.store import Folder, load_results, merge, read_toml
from baddr.lab import catalog
from baddr.lab.experiment import Experiment, extend, from_toml, of_folder, preset

E = TypeVar("E")
MOST_LINES = 6  # of `baddr list` for features with the same values

OVERVIEW = """\
usage: baddr COMMAND ...

Bayesian reinforcement learning in POMDPs.

  run DOMAIN       learn and act for some runs and episodes; leaves results and a learning curve
  resume DIR       go on with an interrupted run or reproduce, or extend a finished run
  sweep DOMAIN     runs for every combination of some settings' values; a table and a picture
  plot DIR...      learning curves of several results in one picture
  compare DIR...   several results in numbers, with their uncertainty
  reproduce FIGURE a figure or table of the paper, or all, with data, verdicts and a report
  belief DOMAIN    the belief after a given history, as JSON
  plan DOMAIN      the search after a given history, as JSON
  check DOMAIN     whether a domain keeps its promises: shapes, ranges, probabilities
  list             domains, agents, presets and figures
  cache            trained priors and compiled code on disk

DOMAIN is one of those that `baddr list` names, or a file: FILE.pomdp, or FILE.py:FUNCTION with a function
that returns a Domain (make_domain where none is named).

examples:
  baddr run tiger
  baddr run tiger --agent pomcp --runs 100 --out results/upper-bound
  baddr plot results/* --out curves.png
  baddr compare results/* --level 2.2
  baddr reproduce a
  baddr COMMAND --help
"""


@dataclass(frozen=True)
class Run(Generic[E]):
    """Learn and act for some runs and episodes.

    examples:
      baddr run tiger
      baddr run tiger --agent pomcp --runs 100 --episodes 20 --out results/upper-bound
      baddr run tiger --preset paper --runs 64 --planner.num-simulations 2048 --dry-run
      baddr run examples/machine.pomdp --agent ba-pomcp --domain.horizon 30
      baddr run examples/maintenance.py:make_domain --domain.horizon 10
    """

    experiment: Annotated[E, arg(name="")]
    out: Path | None = None
    """The result folder; by default a new one below results/."""
    config: Path | None = None
    """A TOML file with settings: they replace the preset's, and flags replace them."""
    engine: Literal["local", "ray"] = "local"
    """Where chunks of runs are computed: here, or on a Ray cluster."""
    address: str = ""
    """Of a Ray cluster's head, HOST:PORT; without one, Ray uses this machine's cores."""
    cpus_per_chunk: float = 1.0
    """CPU cores that Ray gives to a chunk."""
    gpus_per_chunk: float = -1.0
    """GPUs that Ray gives to a chunk; -1: one where the cluster has some (and --device is not cpu)."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes them."""
    track: tuple[Literal["jsonl", "tensorboard"], ...] = ()
    """Also write every episode as it ends: to metrics.jsonl, or to events for TensorBoard."""
    watch: bool = False
    """Show the learning curve in the terminal while it grows."""
    dry_run: bool = False
    """Say what would run, with estimates of memory and time, and stop."""
    render: Path | None = None
    """Draw the last episode of the traced run (run 0 without --trace): FILE.gif, FILE.png or FILE.txt."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted run or reproduce; a finished one says so and changes nothing.

    examples:
      baddr resume results/tiger-ba-pomcp-1
      baddr resume results/tiger-ba-pomcp-1 --episodes 400 --runs 64
      baddr resume results/reproduce-all-1
    """

    dir: Positional[Annotated[Path, arg(metavar="DIR")]]
    """The result folder."""
    runs: int | None = None
    """Extend to this many runs."""
    episodes: int | None = None
    """Extend to this many episodes per run."""
    engine: Literal["local", "ray"] = "local"
    """Where chunks of runs are computed; not necessarily where they were before."""
    address: str = ""
    """Of a Ray cluster's head, HOST:PORT; without one, Ray uses this machine's cores."""
    cpus_per_chunk: float = 1.0
    """CPU cores that Ray gives to a chunk."""
    gpus_per_chunk: float = -1.0
    """GPUs that Ray gives to a chunk; -1: one where the cluster has some (and --device is not cpu)."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes them."""
    track: tuple[Literal["jsonl", "tensorboard"], ...] = ()
    """Also write every episode as it ends; a tracker that the folder has goes on anyway."""
    watch: bool = False
    """Show the learning curve in the terminal while it grows."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Sweep(Generic[E]):
    """A run for every combination of some settings' values, and how they compare.

    Every combination gets a result folder of its own, below one folder: `plot`, `compare` and `resume` take
    them like any other. The same command with the same --out goes on where it was stopped, and does not
    repeat what is finished; more --runs or --episodes, or more values, add to it.

    examples:
      baddr sweep tiger --agent dpfrl --preset paper --runs 5 --level 2 \\
          --over dpfrl.learning-rate=1e-4,3e-4,1e-3 --over dpfrl.num-particles=15,30,45
      baddr sweep tiger --over agent=dpfrl,a2c --episodes 5000 --out results/memory
      baddr sweep tiger --agent ba-pomcp --over planner.num-simulations=256,1024,4096
    """

    experiment: Annotated[E, arg(name="")]
    over: UseAppendAction[tuple[str, ...]] = ()
    """NAME=VALUE,VALUE,...: a setting as its flag names it, and its values; once for every setting."""
    out: Path | None = None
    """The folder of the result folders; by default a new one below results/."""
    level: float | None = None
    """Also say after how many episodes the mean return reaches this."""
    config: Path | None = None
    """A TOML file with settings: they replace the preset's, and flags replace them."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes them."""
    dry_run: bool = False
    """Say what would run, with estimates of memory and time, and stop."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Plot:
    """Learning curves with confidence bands, several folders in one picture.

    examples:
      baddr plot results/tiger-ba-pomcp-1
      baddr plot results/* --out curves.svg --window 10
    """

    dirs: Positional[Annotated[tuple[Path, ...], arg(metavar="DIR...")]]
    """Result folders."""
    out: Path = Path("curves.png")
    """The picture: .png, .svg or .pdf."""
    window: int = 0
    """Episodes averaged per point; 0: about 20 points."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Compare:
    """Several results in numbers, each with its 95 % bootstrap interval over runs.

    The first folder is the baseline: the others' differences to it are taken run by run, over the runs that
    both have (run i of one seed meets the same random numbers in both).

    examples:
      baddr compare results/tiger-ba-pomcp-1 results/tiger-baddr-1
      baddr compare results/* --last 50 --level 2.2 --json
    """

    dirs: Positional[Annotated[tuple[Path, ...], arg(metavar="DIR...")]]
    """Result folders."""
    last: int = 0
    """Episodes at the end that count as final; 0: a tenth of the shortest result."""
    level: float | None = None
    """Also say after how many episodes the mean return reaches this."""
    window: int = 0
    """Episodes that the mean return is taken over for --level; 0: a twentieth of the shortest result."""
    json: bool = False
    """Print JSON."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Reproduce:
    """Figures and tables of the paper: runs their experiments, draws them, and judges the paper's claims.

    FIGURE is a to i, episodes (the table of episodes to equal return), runtime, several of these, or all.
    Leaves a folder with a result folder for each experiment, a picture and the scores of each figure, and a
    report as report.md and report.html, which is one page that needs nothing else.

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
    """`quick`: a recognisable picture in minutes; `paper`: the paper's sizes."""
    runs: int = 0
    """Runs of every curve, over all of its ensembles (of learners: at most); 0: the preset's."""
    episodes: int = 0
    """Episodes per run at most; 0: the preset's."""
    ensembles: int = 0
    """Ensembles of networks that a curve of BADDr or filtering is pooled over; 0: the preset's."""
    seed: int = 0
    """The first seed; an ensemble has its own."""
    out: Path | None = None
    """The folder; by default a new one below results/."""
    engine: Literal["local", "ray"] = "local"
    """Where chunks of runs are computed: here, or on a Ray cluster."""
    address: str = ""
    """Of a Ray cluster's head, HOST:PORT; without one, Ray uses this machine's cores."""
    cpus_per_chunk: float = 1.0
    """CPU cores that Ray gives to a chunk."""
    gpus_per_chunk: float = -1.0
    """GPUs that Ray gives to a chunk; -1: one where the cluster has some (and --device is not cpu)."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes them."""
    watch: bool = False
    """Show the learning curve in the terminal while it grows."""
    dry_run: bool = False
    """List the experiments with estimates of memory and time, and stop."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Belief(Generic[E]):
    """The belief after a given history, as JSON on stdout.

    examples:
      baddr belief tiger --agent ba-pomcp --history history.json --particles 10000
    """

    experiment: Annotated[E, arg(name="")]
    history: Path | None = None
    """A JSON file: {"episodes": [{"actions": [2], "observations": [[0]]}]}; needed."""
    particles: int | None = None
    """Particles in the belief; the same as --filter.num-particles."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes it."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Plan(Generic[E]):
    """The root of the search after a given history, as JSON on stdout.

    examples:
      baddr plan tiger --agent ba-pomcp --history history.json --simulations 4096
    """

    experiment: Annotated[E, arg(name="")]
    history: Path | None = None
    """A JSON file: {"episodes": [{"actions": [2], "observations": [[0]]}]}; needed."""
    simulations: int | None = None
    """Simulations; the same as --planner.num-simulations."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes it."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Check(Generic[E]):
    """Whether a domain keeps its promises: shapes, types, ranges, probabilities and frequencies.

    Prints a sentence for everything that is wrong; the exit code is 0 where nothing is.

    examples:
      baddr check tiger
      baddr check examples/machine.pomdp
      baddr check examples/maintenance.py:make_domain --domain.horizon 10
    """

    domain: E
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What computes it."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class List:
    """Domains with their features and numbering, agents and presets.

    Files are domains too, and are not listed: where a command takes a DOMAIN, FILE.pomdp (in Cassandra's
    format) and FILE.py:FUNCTION (whose function returns a Domain) will do.

    examples:
      baddr list
      baddr list --json
    """

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Cache:
    """Trained priors and compiled code on disk: all of it can be made again.

    examples:
      baddr cache
      baddr cache --clear
    """

    clear: bool = False
    """Delete it."""


# Parsing.


def parse(
    options: Any, command: str, arguments: Sequence[str], default: Any = None, others: bool = False
) -> Any:
    """tyro, with its complaint as one sentence; `others` lets arguments that are not options' pass."""
    given = {} if default is None else {"default": default}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                options, prog=f"baddr {command}", args=list(arguments), return_unknown_args=others, **given
            )
            return parsed[0] if others else parsed
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None


def _sentence(box: str, command: str) -> str:
    """What a box of tyro's says, without its frame and its hints on --help."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip(" │╭╮╰╯─") for line in text.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("For full helptext")]
    said = " ".join(lines) or "The command line could not be read"
    said = re.sub(r" Perhaps you meant: (--\S+).*", r"; perhaps you meant \1", said)
    said = re.sub(r" Argument helptext: .*|\s*\(default: [^)]*\)|\s*\(required\)", "", said)
    said = re.sub(r"(Missing from [^:]*: --\S+).*", r"\1", said).rstrip(".")
    return f"{said}. (`baddr {command} --help` lists the options.)"


def _flag(arguments: Sequence[str], name: str, default: str) -> str:
    """A flag's value before the command line is parsed: it decides what the defaults are."""
    for i, argument in enumerate(arguments):
        if argument == f"--{name}" and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
    return default


def parse_with_domain(
    options: Any, command: str, arguments: Sequence[str], default: Callable[[Any], Any]
) -> Any:
    """DOMAIN and flags. Later wins: preset, config file, flags."""
    name, flags = _domain_first(command, arguments)
    config = _flag(flags, "config", "")
    domain = _domain_settings(command, name, flags, config)
    start = preset(name, _flag(flags, "agent", "baddr"), _flag(flags, "preset", "quick"), domain)
    if config:
        start = from_toml(Path(config), start)
    kind = options[Experiment[type(start.domain)]]  # type: ignore[misc]
    return parse(kind, f"{command} {name}", flags, default(start))


def _domain_first(command: str, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """DOMAIN and the flags after it; `--help` alone is answered for tiger."""
    if not arguments or arguments[0].startswith("-"):
        if {"-h", "--help"}.isdisjoint(arguments):
            known = ", ".join(catalog.DOMAINS)
            raise UserError(
                f"Name a domain first: `baddr {command} DOMAIN ...`; known: {known}; or a file (.pomdp, .py)."
            )
        arguments = ["tiger", *arguments]
    name, *flags = arguments
    _prepare_for(name, _flag(flags, "device", "auto"))
    return name, flags


@dataclass(frozen=True)
class _Domain(Generic[E]):
    domain: E


def _domain_settings(command: str, name: str, flags: Sequence[str], config: str) -> Any:
    """The domain's settings before the rest is parsed: a preset depends on the domain's size."""
    settings = start = catalog.entry(name).settings
    if config:
        table = {name: value for name, value in read_toml(Path(config)).items() if name == "domain"}
        settings = merge(_Domain(settings), table, config).domain
    flags = [flag for flag in flags if flag not in ("-h", "--help")]
    if any(flag.startswith("--domain.") for flag in flags):
        kind = _Domain[type(settings)]  # type: ignore[misc]
        settings = parse(kind, f"{command} {name}", flags, _Domain(settings), others=True).domain
    _check_same_file(name, start, settings)
    return settings


def _check_same_file(name: str, start: Any, settings: Any) -> None:
    """Refuse a path among the settings that is not the file that was named as the DOMAIN."""
    if name != "cassandra" and settings.name != start.name:
        raise UserError(f"The domain is {start.name}, but domain.path names another file: {settings.name}.")


# Commands. Each imports what it needs when it runs.


def prepare(device: str) -> None:
    """Choose JAX's device, and keep compiled code on disk."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    from baddr.files.cache import compiled_code

    if device == "gpu" and jax.default_backend() != "gpu":
        raise UserError("--device gpu: JAX sees no GPU here; install jax with its CUDA extra, or use cpu.")
    jax.config.update("jax_compilation_cache_dir", str(compiled_code()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def engine_of(options: Any) -> Any:
    """The engine that --engine, --address, --cpus-per-chunk, --gpus-per-chunk and --device name."""
    if options.engine == "local":
        if options.address:
            raise UserError("--address names a Ray cluster: it needs --engine ray.")
        prepare(options.device)
        from baddr.lab.engine import Local

        return Local()
    if options.cpus_per_chunk < 0 or options.cpus_per_chunk + max(0, options.gpus_per_chunk) == 0:
        raise UserError("--cpus-per-chunk must not be negative, nor zero without --gpus-per-chunk.")
    # This process computes little: it need not have the device that the cluster has. Where it has, it trains
    # the prior there, and leaves the memory to the workers.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    prepare("cpu" if options.device == "cpu" else "auto")
    from baddr.lab.engine import Ray

    return Ray(options.address, options.device, options.cpus_per_chunk, options.gpus_per_chunk)


@contextlib.contextmanager
def _followed(experiment: Experiment[Any], folder: Folder, options: Any):
    """The progress display, and who else hears of every episode."""
    from baddr.lab.track import trackers
    from baddr.lab.watch import watched

    show = watched if options.watch and sys.stderr.isatty() else _progress
    with show(experiment.title) as shown, trackers(options.track, folder) as listeners:
        progress, watching = shown if isinstance(shown, tuple) else (shown, [])
        yield progress, [*listeners, *watching]


def _prepare_for(name: str, device: str) -> None:
    """A user's own file imports JAX, and may use it at once: its device is chosen before."""
    if catalog.is_python(name):
        prepare(device)


def run(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Run, "run", arguments, Run)
    experiment: Experiment[Any] = options.experiment
    catalog.nearest("agent", experiment.agent, catalog.AGENTS)
    if options.render is not None:
        from baddr.domains.render import check_path

        check_path(options.render)
        experiment = replace(experiment, trace=max(experiment.trace, 0))
    experiment.check()
    folder = Folder(options.out or _new_folder(experiment))
    if not options.dry_run:
        folder.check_new()
    engine = engine_of(options)
    from baddr.lab import runner

    if options.dry_run:
        print(_describe_plan(experiment, runner.estimate(experiment, engine)))
        return 0
    with _followed(experiment, folder, options) as (progress, listeners):
        how = {"engine": engine, "listeners": listeners}
        failures = _interruptible(folder, lambda: runner.begin(experiment, folder, progress, **how))
    code = _finish(experiment, folder, failures)
    if options.render is not None:
        _render(experiment, folder, options.render)
    return code


def resume(arguments: Sequence[str]) -> int:
    options: Resume = parse(Resume, "resume", arguments)
    if (options.dir / "reproduce.toml").exists():
        return _resume_reproduce(options)
    folder = Folder(options.dir)
    _prepare_for(_config_of(folder).get("name", ""), options.device)
    before = of_folder(folder)
    for name, value in (("runs", options.runs), ("episodes", options.episodes)):
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1.")
    experiment = extend(before, options.runs, options.episodes)
    if experiment == before and folder.read_manifest()["status"] == "complete":
        print(f"{folder.path} is complete: {before.runs} runs of {before.episodes} episodes.")
        return 0
    engine = engine_of(options)
    from baddr.lab import runner

    with _followed(experiment, folder, options) as (progress, listeners):
        how = {"engine": engine, "listeners": listeners}
        failures = _interruptible(folder, lambda: runner.go_on(experiment, folder, progress, **how))
    return _finish(experiment, folder, failures)


def sweep(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Sweep, "sweep", arguments, Sweep)
    from baddr.lab import sweep

    root = options.out or _numbered(f"{_stem(options.experiment)}-sweep")
    over, parts = sweep.parse_over(options.over), []
    for name in over:
        if _flag(arguments, name, ""):
            raise UserError(f"--{name} is set and swept over; leave one of them out.")
    for combination in sweep.combinations(over):
        words = [*arguments, *sweep.flags(combination)]
        experiment = parse_with_domain(Sweep, "sweep", words, Sweep).experiment
        catalog.nearest("agent", experiment.agent, catalog.AGENTS)
        parts.append(sweep.make_part(root, combination, experiment))
    prepare(options.device)
    from baddr.lab import runner

    if options.dry_run:
        for part in parts:
            plan = _describe_plan(part.experiment, runner.estimate(part.experiment))
            print(f"{sweep.label(part.combination)}: {plan}")
        return 0
    codes = []
    for number, part in enumerate(parts):
        if sweep.is_complete(part):
            print(f"{part.folder.path} is complete.")
            continue
        title = f"{number + 1} of {len(parts)}, {sweep.label(part.combination)}"
        try:
            with _progress(title) as progress:
                failures = sweep.compute(part, progress)
        except runner.Interrupted:
            message = f"interrupted; all work is kept. The same command goes on, with --out {root}"
            print(f"baddr: {message}", file=sys.stderr)
            return 130
        codes.append(_finish(part.experiment, part.folder, failures))
    _compare_parts(root, parts, options.level)
    return max(codes, default=0)


def _compare_parts(root: Path, parts: list[Any], level: float | None) -> None:
    """A sweep's table and picture."""
    from baddr.lab import sweep
    from baddr.lab.plots import plot_curves
    from baddr.lab.statistics import compare, default_window

    results = sweep.results_of(parts)
    shortest = min(int(columns["episode"].max()) + 1 for columns in results.values())
    last = max(1, shortest // 10)
    rows = compare(results, last, level, default_window(shortest))
    print(f"\ndiscounted returns; final: the last {last} episodes")
    print("\n".join(sweep.table(parts, list(rows.values()), level)))
    plot_curves(results, "", [root / "curves.png"])
    print(f"curves of all: {root / 'curves.png'}")


def plot(arguments: Sequence[str]) -> int:
    options: Plot = parse(Plot, "plot", arguments)
    if not options.dirs:
        raise UserError("Name at least one result folder: `baddr plot DIR...`.")
    if options.window < 0:
        raise UserError("--window must not be negative.")
    from baddr.lab.plots import plot_curves

    results = {_label(path): load_results(path) for path in options.dirs}
    plot_curves(results, "", [options.out], options.window)
    print(options.out)
    return 0


def compare_(arguments: Sequence[str]) -> int:
    options: Compare = parse(Compare, "compare", arguments)
    if not options.dirs:
        raise UserError("Name at least one result folder: `baddr compare DIR...`.")
    for name in ("last", "window"):
        if getattr(options, name) < 0:
            raise UserError(f"--{name} must not be negative.")
    from baddr.lab.statistics import Estimate, compare, default_window

    results = {_label(path): load_results(path) for path in options.dirs}
    empty = [name for name, columns in results.items() if not len(columns["run"])]
    if empty:
        raise UserError(f"{empty[0]} has no finished episode yet.")
    shortest = min(int(columns["episode"].max()) + 1 for columns in results.values())
    last = options.last or max(1, shortest // 10)
    if last > shortest:
        raise UserError(f"--last {last} is more than the {shortest} episodes of the shortest result.")
    window = options.window or default_window(shortest)
    rows = compare(results, last, options.level, window)
    if options.json:
        finite = lambda x: None if x == float("inf") else x
        plain = lambda x: {k: finite(v) for k, v in x._asdict().items()} if isinstance(x, Estimate) else x
        values = {name: {key: plain(x) for key, x in row.items()} for name, row in rows.items()}
        print(json.dumps({"last": last, "window": window, "results": values}))
        return 0
    print(f"discounted returns, with 95 % intervals over runs; final: the last {last} episodes")
    for name, row in rows.items():
        print(_compared(name, row, options.level, window))
    return 0


def _compared(name: str, row: dict[str, Any], level: float | None, window: int) -> str:
    """A paragraph about one result."""
    number = lambda e: f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"
    lines = [
        f"{name}: {row['runs']} runs of {row['episodes']} episodes",
        f"  final mean                {number(row['final'])}",
        f"  final interquartile mean  {number(row['final_interquartile'])}",
        f"  mean over all episodes    {number(row['area'])}",
    ]
    if level is not None:
        value, low, high = (f"{x:.0f}" if x < float("inf") else "never" for x in row["episodes_to_level"])
        lines.append(f"  episodes to {level:g}: {value} [{low}, {high}] (the mean of {window})")
    if "difference" in row:
        lines.append(
            f"  final, less the first     {number(row['difference'])} ({row['common_runs']} common runs)"
        )
    return "\n".join(lines)


def reproduce(arguments: Sequence[str]) -> int:
    options: Reproduce = parse(Reproduce, "reproduce", arguments)
    from baddr.paper.reproduce import Reproduction, Request, begin

    sizes = {name: getattr(options, name) for name in ("preset", "runs", "episodes", "ensembles", "seed")}
    request = Request(figures=options.figures, **sizes)
    request.check()
    folder = Reproduction(options.out or _numbered(f"reproduce-{'-'.join(request.figures)}"))
    if not options.dry_run:
        folder.check_new()
    engine = engine_of(options)
    if options.dry_run:
        return _dry_reproduce(request, engine)
    with _whole_progress(options.watch) as (progress, listeners):
        failed = _interruptible(folder, lambda: begin(request, folder, progress, engine, listeners))
    return _finish_reproduce(folder, failed)


def _resume_reproduce(options: Resume) -> int:
    from baddr.paper.reproduce import Reproduction, go_on, status

    folder = Reproduction(options.dir)
    if options.runs is not None or options.episodes is not None:
        raise UserError(
            f"{folder.path} holds figures, whose sizes are fixed; extend one of its parts, or begin another."
        )
    request = folder.read_request()
    if status(folder) == "complete":
        print(f"{folder.path} is complete: `{request.command}`; its report is report.html there.")
        return 0
    engine = engine_of(options)
    with _whole_progress(options.watch) as (progress, listeners):
        failed = _interruptible(folder, lambda: go_on(folder, progress, engine, listeners))
    return _finish_reproduce(folder, failed)


def _dry_reproduce(request: Any, engine: Any) -> int:
    from baddr.paper.reproduce import estimates

    rows = estimates(request, engine)
    width = max(len(row["part"]) for row in rows)
    for row in rows:
        sizes = f"{row['runs']:6d} runs x {row['episodes']:6d} episodes"
        memory = f"{row['memory_bytes'] / 2**20:8.0f} MiB"
        print(f"{row['part']:{width}s} {sizes} {memory} {row['seconds'] / 60:8.1f} min")
    seconds = sum(row["seconds"] for row in rows)
    whole = f"{seconds / 60:.0f} minutes" if seconds < 36_000 else f"{seconds / 3600:,.0f} hours"
    print(f"{len(rows)} parts, about {whole} on two cores of a CPU. Nothing was run.")
    return 0


def _finish_reproduce(folder: Any, failed: int) -> int:
    """The verdicts and where the report is."""
    for figure in folder.read_request().chosen:
        scores = json.loads((folder.path / f"figure-{figure.name}.json").read_text())
        size = ", at reduced size" if scores["reduced"] else ""
        print(f"{figure.name}: {figure.title}{size}")
        for claim in scores["claims"]:
            print(f"  {claim['verdict']:9s}  {claim['says']}")
    wall = folder.read_manifest()["wall_seconds"]
    print(f"wall time {wall:.0f} s; pictures, data and report.html in {folder.path}")
    if failed:
        print(f"baddr: some runs of {failed} part(s) failed; the report names them.", file=sys.stderr)
    return 3 if failed else 0


def belief(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Belief, "belief", arguments, Belief)
    experiment = _with(options.experiment, "filter", "num_particles", options.particles)
    key, agent, domain, after = _after_history(experiment, options)
    from baddr.lab import history

    print(json.dumps(history.belief_json(key, agent, domain, after.belief)))
    return 0


def plan(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Plan, "plan", arguments, Plan)
    experiment = _with(options.experiment, "planner", "num_simulations", options.simulations)
    if experiment.agent == "random":
        raise UserError("Agent 'random' does not plan; choose another with --agent.")
    key, agent, domain, after = _after_history(experiment, options)
    from baddr.lab import history

    print(json.dumps(history.plan_json(key, agent, domain.pomdp, after)))
    return 0


def check_(arguments: Sequence[str]) -> int:
    name, flags = _domain_first("check", arguments)
    entry = catalog.entry(name)
    kind = Check[type(entry.settings)]  # type: ignore[misc]
    options = parse(kind, f"check {name}", flags, Check(entry.settings))
    _check_same_file(name, entry.settings, options.domain)
    problems = options.domain.problems()
    if problems:
        raise UserError("; ".join(problems) + ".")
    prepare(options.device)
    from baddr.domains import check

    domain = entry.make_domain(options.domain)
    problems = check.problems(domain)
    for problem in problems:
        print(f"{catalog.short_name(name)}: {problem}.")
    if not problems:
        print(f"{catalog.short_name(name)} is fine. Checked:")
        for line in check.checked(domain):
            print(f"  {line}")
    return 1 if problems else 0


def list_(arguments: Sequence[str]) -> int:
    options: List = parse(List, "list", arguments)
    listing = catalog.listing()
    if options.json:
        print(json.dumps(listing, indent=2))
        return 0
    for name, domain in listing["domains"].items():
        print(f"{name}: {domain['summary']}")
        for kind in ("state", "observation"):
            for line in _features(domain[kind]):
                print(f"    {kind} {line}")
        print("    actions: " + ", ".join(f"{i} {name}" for i, name in enumerate(domain["actions"])))
    for kind in ("agents", "presets", "figures"):
        print(f"\n{kind}:")
        for name, summary in listing[kind].items():
            print(f"    {name:10s} {summary}")
    return 0


def _features(features: list[dict[str, Any]]) -> Iterator[str]:
    """A line per feature, or per stretch of features with the same values."""
    number = 0
    for values, group in itertools.groupby(features, key=lambda feature: feature["values"]):
        names = [feature["name"] for feature in group]
        numbers = [str(number + i) for i in range(len(names))]
        number += len(names)
        if values == [str(i) for i in range(len(values))]:
            meaning = f"0 to {len(values) - 1}"
        else:
            meaning = ", ".join(f"{i} {value}" for i, value in enumerate(values))
        if len(names) > MOST_LINES:
            yield f"features {numbers[0]} ({names[0]}) to {numbers[-1]} ({names[-1]}): {meaning}"
        else:
            yield from (f"feature {i}, {name}: {meaning}" for i, name in zip(numbers, names, strict=True))


def cache_(arguments: Sequence[str]) -> int:
    options: Cache = parse(Cache, "cache", arguments)
    from baddr.files import cache

    if options.clear:
        print(f"{cache.clear() / 2**20:.1f} MiB deleted from {cache.root()}")
        return 0
    print(f"{cache.root()}")
    print(f"  compiled code: {cache.size(cache.compiled_code()) / 2**20:.1f} MiB")
    priors = cache.stored_priors()
    print(f"  trained priors: {len(priors)}")
    for entry in priors:
        gaps = [gap for gap in entry["gap"] if gap is not None]
        network, pretrain = entry["settings"]["network"], entry["settings"]["pretrain"]
        print(
            f"    {entry['name'][:24]}  {entry['created']}  {entry['bytes'] / 2**10:.0f} KiB  "
            f"{pretrain['num_networks']} network(s) of {network['hidden']}, dropout {network['dropout']}, "
            f"{pretrain['batches']} batches; gap to the floor {max(gaps, default=float('nan')):.4f} nats"
        )
    return 0


COMMANDS = {
    "run": run,
    "resume": resume,
    "sweep": sweep,
    "plot": plot,
    "compare": compare_,
    "reproduce": reproduce,
    "belief": belief,
    "plan": plan,
    "check": check_,
    "list": list_,
    "cache": cache_,
}


def main(arguments: Sequence[str] | None = None) -> None:
    gc.set_threshold(100_000)  # JAX makes many objects that stay: looking through them took half a second
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        from baddr import __version__

        print(__version__)
        sys.exit(0)
    try:
        catalog.nearest("command", arguments[0], COMMANDS)
        with warnings.catch_warnings():
            warnings.filterwarnings("always", module="baddr")
            warnings.showwarning = _warnings_once()
            sys.exit(COMMANDS[arguments[0]](arguments[1:]))
    except UserError as error:
        if "--debug" in arguments:
            raise
        print(f"baddr: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("baddr: interrupted.", file=sys.stderr, flush=True)
        if any(thread.name.startswith("compiling") for thread in threading.enumerate()):
            os._exit(130)  # Python would wait for XLA, which nothing stops
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if "--debug" in arguments:
            raise
        print(f"baddr: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        sys.exit(1)


# Pieces.


def _warnings_once() -> Callable[..., None]:
    """Tells each warning once, in a line, however often the command comes across it."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            print(f"baddr: warning: {message}", file=sys.stderr)

    return show


def _with(experiment: Experiment[Any], group: str, setting: str, value: int | None) -> Experiment[Any]:
    if value is None:
        return experiment
    return replace(experiment, **{group: replace(getattr(experiment, group), **{setting: value})})


def _after_history(experiment: Experiment[Any], options: Any) -> Any:
    """The key to go on with, the agent, the domain, and the belief after the history."""
    if options.history is None:
        raise UserError("Give the history with --history FILE.")
    catalog.nearest("agent", experiment.agent, catalog.AGENTS)
    experiment.check()
    prepare(options.device)
    import jax.random as jr

    from baddr.core import prng
    from baddr.lab import build, history

    domain = build.build_domain(experiment)
    episodes = history.read(options.history, domain.pomdp)
    agent = build.build_agent(experiment, domain)
    key_replay, key = jr.split(prng.key(experiment.seed))
    return key, agent, domain, history.replay(key_replay, agent, domain.pomdp, episodes)


def _new_folder(experiment: Experiment[Any]) -> Path:
    """results/DOMAIN-AGENT-N with the first free N."""
    return _numbered(_stem(experiment))


def _stem(experiment: Experiment[Any]) -> str:
    return f"{catalog.short_name(experiment.name).replace(':', '-')}-{experiment.agent}"


def _numbered(stem: str) -> Path:
    """results/STEM-N with the first free N."""
    number = 1
    while (Path("results") / f"{stem}-{number}").exists():
        number += 1
    return Path("results") / f"{stem}-{number}"


def _label(path: Path) -> str:
    config = _config_of(Folder(path))
    return f"{config.get('agent')} on {catalog.short_name(config.get('name', ''))}, {path.name}"


def _config_of(folder: Folder) -> dict[str, Any]:
    folder.check_existing()
    return read_toml(folder.config)


def _describe_plan(experiment: Experiment[Any], estimate: dict[str, Any]) -> str:
    minutes = estimate["seconds"] / 60
    return (
        f"{experiment.title}: {experiment.runs} runs of {experiment.episodes} episodes "
        f"in {estimate['chunks']} chunk(s) of {estimate['runs_per_chunk']} runs on a {estimate['device']}.\n"
        f"memory about {estimate['memory_bytes'] / 2**20:.0f} MiB, "
        f"disk at most {estimate['disk_bytes'] / 2**20:.0f} MiB, "
        f"time about {minutes:.1f} minutes and a compilation. Nothing was run." + _describe_cluster(estimate)
    )


def _describe_cluster(estimate: dict[str, Any]) -> str:
    cluster = estimate["engine"]
    if cluster["name"] != "ray":
        return ""
    gpus = f" and {cluster['gpus_per_chunk']:g} GPU" if cluster["gpus_per_chunk"] else ""
    return (
        f"\nRay: {cluster['nodes']} node(s), {cluster['chunks_at_a_time']} chunk(s) at a time, "
        f"each with {cluster['cpus_per_chunk']:g} CPU{gpus}."
    )


def _interruptible(folder: Folder, work: Callable[[], Any]) -> Any:
    from baddr.lab.runner import Interrupted

    try:
        return work()
    except Interrupted:
        message = f"baddr: interrupted; all work is kept. Go on with: baddr resume {folder.path}"
        print(message, file=sys.stderr)
        sys.exit(130)
    except (StorageError, ClusterError) as error:
        if not folder.config.exists() and not (folder.path / "reproduce.toml").exists():
            raise
        raise type(error)(f"{error} Go on with: baddr resume {folder.path}") from error


@contextlib.contextmanager
def _progress(title: str):
    """A live bar on a terminal; a plain line now and then otherwise."""
    if not sys.stderr.isatty():
        yield _plain_progress(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"{title} (compiling)", total=None, amount="")

        def show(what: str, done: int, total: int, value: float) -> None:
            amount = _amount(what, done, total, value)
            bar.update(task, description=title, completed=done, total=total, amount=amount)

        yield show


@contextlib.contextmanager
def _whole_progress(watch: bool):
    """Progress over all parts of `reproduce`, and who hears of every episode.

    A live picture or a live bar on a terminal; otherwise a line now and then.
    """
    if not sys.stderr.isatty():
        yield _plain_whole_progress(), []
        return
    if watch:
        from baddr.lab.watch import watched_parts

        with watched_parts() as shown:
            yield shown
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=1.0)
        show = lambda part, done, what: bar.update(task, description=f"{part}: {what}", completed=done)
        yield show, []


def _plain_whole_progress(seconds: float = 20.0) -> Callable[[str, float, str], None]:
    began, last, told = time.monotonic(), [0.0], [""]

    def show(part: str, done: float, what: str) -> None:
        now = time.monotonic()
        if part == told[0] and now - last[0] < seconds:
            return
        last[0], told[0] = now, part
        print(f"{100 * done:3.0f} % {part}: {what}, {now - began:.0f} s", file=sys.stderr, flush=True)

    return show


def _amount(what: str, done: int, total: int, value: float) -> str:
    if what == "pretraining":
        return f"pre-training: {done}/{total} batches, loss {value:.3f}"
    return f"{done}/{total} episodes, recent return {value:.2f}"


def _plain_progress(title: str, seconds: float = 10.0) -> Callable[[str, int, int, float], None]:
    began = time.monotonic()
    last = [began - seconds]
    print(f"{title}: compiling", file=sys.stderr, flush=True)

    def show(what: str, done: int, total: int, value: float) -> None:
        now = time.monotonic()
        if now - last[0] < seconds and done < total:
            return
        last[0] = now
        amount = _amount(what, done, total, value)
        print(f"{title}: {amount}, {now - began:.0f} s", file=sys.stderr, flush=True)

    return show


def _finish(experiment: Experiment[Any], folder: Folder, failures: list[Any]) -> int:
    """The pictures and the summary."""
    from baddr.lab.plots import plot_belief, plot_curves, plot_histograms

    results, title = load_results(folder.path), experiment.title
    if len(results["run"]):
        paths = [folder.path / "curve.png", folder.path / "curve.svg"]
        plot_curves({title: results}, "", paths)
        plot_belief(results, title, folder.path / "belief.png")
        plot_histograms(results, title, lambda name: getattr(experiment.domain, name, None), folder.path)
        print(_summary(experiment, folder, results))
    for failure in failures:
        print(
            f"baddr: run {failure.run} failed in episode {failure.episode}, step {failure.step}: "
            "its belief (or its weights) holds a NaN or an infinity; its earlier episodes are kept.",
            file=sys.stderr,
        )
    return 3 if failures else 0


def _render(experiment: Experiment[Any], folder: Folder, path: Path) -> None:
    from baddr.domains.render import render_episode
    from baddr.lab.build import build_domain

    names = catalog.entry(experiment.name).names(experiment.domain)
    render_episode(folder.path / "trace.jsonl", build_domain(experiment), names, path)
    print(f"  last episode of run {experiment.trace}: {path}")


def _summary(experiment: Experiment[Any], folder: Folder, results: dict[str, Any]) -> str:
    """One screen about the results."""
    from baddr.lab.statistics import mean_interval, per_run

    table = per_run(results, "discounted_return")
    episodes = table.shape[1]
    tenth = max(1, episodes // 10)
    blocks = [(0, tenth), (episodes // 2, episodes // 2 + tenth), (episodes - tenth, episodes)]
    lines = [f"{experiment.title}: {len(table)} runs of {episodes} episodes"]
    lines.append("  discounted return, mean over runs with its 95 % interval")
    for first, last in dict.fromkeys(blocks):
        mean, low, high = mean_interval(table[:, first:last])
        which = f"episode {first + 1}" if last == first + 1 else f"episodes {first + 1}-{last}"
        lines.append(f"    {which:18s} {mean:9.3f}   [{low:.3f}, {high:.3f}]")
    manifest = folder.read_manifest()
    if manifest.get("prior"):
        gaps = manifest["prior"]["gap"]
        floor = f"{max(gaps):.4f} nats above the entropy floor at most"
        lines.append(f"  prior: {len(gaps)} network(s), cross-entropy {floor}")
    impossible, filled = (
        results[name].sum() if name in results else 0
        for name in ("impossible_observations", "filled_particles")
    )
    if impossible or filled:
        lines.append(f"  depletion: {filled} particles filled, {impossible} impossible observations")
    lines.append(f"  wall time {manifest['wall_seconds']:.0f} s; results in {folder.path}")
    return "\n".join(lines)
