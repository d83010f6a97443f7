"""Runs the experiments of figures, and draws and judges what came out; goes on where it was interrupted.

A folder of `baddr reproduce` holds `reproduce.toml` (what was asked for), `manifest.json`, a result folder
for each experiment below `parts/`, a picture and the scores of each figure, and a report. Parts are computed
one after the other, and a finished one is never computed again; pictures and the report are made at the end.
"""

import contextlib
import json
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from baddr.agents.kinds import agent_class
from baddr.errors import UserError
from baddr.files.machine import memory, num_cores
from baddr.files.manifest import check_parts
from baddr.files.settings import misfits, refuse
from baddr.files.store import Folder, load_results
from baddr.files.tables import Arrays
from baddr.files.toml import merge, read_toml, to_toml
from baddr.files.writing import write
from baddr.lab.experiment import AnyExperiment, of_folder, to_config
from baddr.lab.progress import amount
from baddr.paper.claims import FEWEST_STEPS, Data
from baddr.paper.figures import chosen, parts
from baddr.paper.figures.figure import Figure, Sizes, part_name

TIMED_SECONDS = 10.0  # that a part of the run-time comparison times steps for
TIMED_STEPS = 40  # at most
MOST_ENSEMBLES = 1000  # each is a part with a folder of its own
Progress = Callable[[str, float, str], None]  # which part, how much of all is done, what it does


@dataclass(frozen=True)
class Request(Sizes):
    """What was asked for: `reproduce.toml`."""

    figures: tuple[str, ...] = ("all",)

    @property
    def sizes(self) -> Sizes:
        return Sizes(**{f.name: getattr(self, f.name) for f in fields(Sizes)})

    @property
    def chosen(self) -> list[Figure]:
        return chosen(self.figures)

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = ["baddr reproduce", *self.figures, "--preset", self.preset]
        given = [("runs", self.runs), ("episodes", self.episodes), ("ensembles", self.ensembles)]
        for name, value in [*given, ("seed", self.seed)]:
            words += [f"--{name}", str(value)] if value else []
        return " ".join(words)

    def check(self) -> None:
        if not self.figures:
            raise UserError("Name a figure, a to i, episodes or runtime, or all: `baddr reproduce FIGURE`.")
        chosen(self.figures)
        refuse(misfits(self, "--"))
        for name in ("runs", "episodes", "ensembles"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name} must be at least 1, or 0 for the preset's.")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed must lie between 0 and {2**31 - 1}.")
        if self.ensembles > MOST_ENSEMBLES:
            raise UserError(f"--ensembles must be at most {MOST_ENSEMBLES:,}.")
        for experiment, _ in parts(self.chosen, self.sizes).values():
            experiment.check_values()


class Reproduction(Folder):
    """A folder of `baddr reproduce`."""

    @property
    def request(self) -> Path:
        return self.path / "reproduce.toml"

    def part(self, name: str) -> Folder:
        return Folder(self.path / "parts" / name)

    def timing(self, name: str) -> Path:
        return self.part(name).path / "timing.json"

    def check_free(self) -> None:
        """Refuse to start where something else lies; what a killed start left behind does not count."""
        if self.request.exists():
            raise UserError(
                f"{self.path} already holds figures; resume them with `baddr resume {self.path}`, or "
                "choose another folder with --out."
            )
        if self.path.is_dir():
            left = [p for p in self.path.iterdir() if p.name != ".lock" and p.suffix != ".part"]
            if not left:
                return
        self.check_new()

    def read_request(self) -> Request:
        request = merge(Request(), read_toml(self.request), str(self.request))
        request.check()
        return request

    def read_parts(self) -> dict[str, Any]:
        """The manifest, whose parts are whole."""
        return check_parts(self.read_manifest(), self.manifest, ("wall_seconds", "cpu_seconds"))

    def is_complete(self, name: str, timed: bool) -> bool:
        if timed:
            return self.timing(name).exists()
        part = self.part(name)
        return part.is_whole


def is_reproduction(path: Path) -> bool:
    return (path / "reproduce.toml").exists()


def start(
    request: Request, folder: Reproduction, progress: Progress, engine: Any = None, listeners: Any = ()
) -> int:
    """Make figures in a new folder; the number of parts in which a run failed."""
    request.check()
    folder.check_free()
    with folder.owned():
        folder.check_free()  # another program may have started in the meantime
        write(folder.request, to_toml(asdict(request)).encode())
        return _run(request, folder, progress, engine, listeners)


def resume(folder: Reproduction, progress: Progress, engine: Any = None, listeners: Any = ()) -> int:
    """Go on with the figures of a folder."""
    with folder.owned():
        return _run(folder.read_request(), folder, progress, engine, listeners)


def status(folder: Reproduction) -> str:
    """`running` or `complete`."""
    return folder.read_parts().get("status", "running") if folder.manifest.exists() else "running"


def _run(request: Request, folder: Reproduction, progress: Progress, engine: Any, listeners: Any) -> int:
    from baddr.lab.runner import Interrupted

    manifest = _manifest(folder)
    plan = parts(request.chosen, request.sizes)
    expected = {name: seconds(experiment, timed) for name, (experiment, timed) in plan.items()}
    total, done = sum(expected.values()), 0.0
    try:
        for number, (name, (experiment, timed)) in enumerate(plan.items()):
            title = f"part {number + 1} of {len(plan)}, {experiment.title}"
            share = expected[name] / total
            told = partial(_tell, progress, title, done, share)
            if not folder.is_complete(name, timed):
                with _clock(folder, manifest, name):
                    _part(folder, name, experiment, timed, told, engine, listeners)
            done += share
        progress("report", 1.0, "drawing")
        with _clock(folder, manifest, "report"):
            _write_figures(request, folder, manifest)
    except KeyboardInterrupt:
        raise Interrupted from None
    manifest["status"] = "complete"
    _write_report(request, folder, manifest)
    folder.write_manifest(manifest)
    return sum(bool(part["failures"]) for part in _manifests(folder, plan).values())


def _tell(progress: Progress, title: str, before: float, share: float, *what: Any) -> None:
    kind, done, total, _ = what
    within = 0.0 if kind == "pretraining" else min(1.0, done / max(total, 1))
    progress(title, before + share * within, amount(*what))


def _manifest(folder: Reproduction) -> dict[str, Any]:
    from baddr.lab.runner import environment

    new = {
        "status": "running",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_seconds": 0.0,
        "cpu_seconds": 0.0,
        "parts": {},
    }
    old = folder.read_parts() if folder.manifest.exists() else {}
    manifest = {**new, **old, "status": "running", **environment(), "hardware": hardware()}
    folder.write_manifest(manifest)
    return manifest


def hardware() -> dict[str, Any]:
    """What computes: processor, cores that may be used, memory."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), name)
    return {"processor": name, "cores": num_cores(), "memory_bytes": memory()}


@contextlib.contextmanager
def _clock(folder: Reproduction, manifest: dict[str, Any], name: str):
    """Add what a part takes to the manifest, also where it is interrupted: time, and that of all cores."""
    clocks = {"wall_seconds": time.monotonic, "cpu_seconds": time.process_time}
    started = {name: clock() for name, clock in clocks.items()}
    try:
        yield
    finally:
        part = manifest["parts"].setdefault(name, dict.fromkeys(clocks, 0.0))
        for measure, clock in clocks.items():
            took = clock() - started[measure]
            part[measure] = round(part[measure] + took, 3)
            manifest[measure] = round(manifest[measure] + took, 3)
        folder.write_manifest(manifest)


# Parts.


def _part(
    folder: Reproduction,
    name: str,
    experiment: AnyExperiment,
    timed: bool,
    progress: Any,
    engine: Any,
    listeners: Any,
) -> None:
    if timed:
        write(folder.part(name).config, to_config(experiment))
        write(folder.timing(name), json.dumps(time_steps(experiment, progress)).encode())
        return
    _run_part(experiment, folder.part(name), progress, engine, listeners)


def _run_part(
    experiment: AnyExperiment, folder: Folder, progress: Any, engine: Any, listeners: Any = ()
) -> None:
    """Begin with an experiment, or go on with it; what a kill left before it started is thrown away."""
    from baddr.lab import runner
    from baddr.lab.plots import plot_curves

    how = {"engine": engine or runner.LOCAL, "listeners": listeners}
    if folder.config.exists() and folder.manifest.exists():
        runner.resume(of_folder(folder), folder, progress, **how)
    else:
        shutil.rmtree(folder.path, ignore_errors=True)
        runner.start(experiment, folder, progress, **how)
    results = load_results(folder.path)
    if len(results["run"]):
        paths = [folder.path / "curve.png", folder.path / "curve.svg"]
        plot_curves({experiment.title: results}, "", paths)


def time_steps(experiment: AnyExperiment, progress: Any) -> dict[str, Any]:
    """The seconds of each of some real steps of one run, compiled before."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from baddr import prng
    from baddr.core.agent import Agent
    from baddr.fast.runs import advance, start
    from baddr.lab.runner import resolve

    experiment, domain, agent, _ = resolve(experiment, progress)
    assert isinstance(agent, Agent)
    world = domain.pomdp
    runs = start(jr.split(prng.key(experiment.seed), 1), agent, world)
    step = lambda runs: jax.block_until_ready(advance(runs, agent, world, jnp.int32(2**30), 1)[0])
    runs = step(step(runs))
    started, seconds = time.monotonic(), []
    while len(seconds) < FEWEST_STEPS or (
        time.monotonic() - started < TIMED_SECONDS and len(seconds) < TIMED_STEPS
    ):
        before = time.perf_counter()
        runs = step(runs)
        seconds.append(time.perf_counter() - before)
        progress("steps", len(seconds), TIMED_STEPS, seconds[-1])
    return {
        "seconds": seconds,
        "device": jax.devices()[0].device_kind,
        "in_flight": experiment.settings.planner.in_flight,
    }


def _manifests(folder: Reproduction, plan: dict[str, tuple[AnyExperiment, bool]]) -> dict[str, Any]:
    """What each part's manifest says; those that are only timed have none."""
    return {name: folder.part(name).read_manifest() for name, (_, timed) in plan.items() if not timed}


# Measured: seconds to train and compile, then milliseconds of one core: a step of BADDr at so many particles
# and nodes, a step of the other Bayesian agents, an update of a DPFRL learner (80 steps); and the steps of an
# episode of a planner and of a learner.
COSTS = {
    "tiger": (8.0, (14.0, 1024, 32), 2.8, 136.0, 4.5, 15.0),
    "road-racing": (40.0, (77.0, 1024, 32), 1.5, 84.0, 20.0, 20.0),
    "collision-avoidance": (25.0, (23.0, 128, 64), 1.0, 142.0, 4.0, 4.0),
    "gridverse": (60.0, (90.0, 8, 256), 1.0, 683.0, 9.0, 25.0),
}


def seconds(experiment: AnyExperiment, timed: bool = False) -> float:
    """About what a part takes on two cores of a CPU: for the progress display and --dry-run."""
    if timed:
        return 40.0
    first, (step, particles, hidden), other, update, length, learners_length = COSTS[experiment.name]
    episodes = experiment.runs * experiment.episodes
    variant = agent_class(experiment.agent).variant
    if variant == "learner":
        return 30 + 0.5e-3 * update * episodes * learners_length / 80
    if variant != "network":
        return 10 + 0.5e-3 * other * episodes * length
    settings = experiment.settings
    larger = settings.filter.num_particles / particles * (settings.network.hidden / hidden) ** 1.5
    larger *= getattr(experiment.domain, "lanes", 3) / 3
    return first + 0.5e-3 * step * larger * episodes * length


# What came out.


def load(figure: Figure, sizes: Sizes, folder: Reproduction) -> Data:
    """The results of a figure's curves."""
    results, timings = {}, {}
    for curve in figure.curves(sizes):
        for seed, experiment in curve.parts().items():
            name = part_name(experiment, curve.timed)
            if curve.timed:
                timings[curve.name] = json.loads(folder.timing(name).read_text())
            else:
                results.setdefault(curve.name, {})[seed] = _columns(folder.part(name))
    curves = figure.curves(sizes)
    networks = frozenset(c.name for c in curves if agent_class(c.experiment.agent).variant == "network")
    forgetful = frozenset(c.name for c in curves if c.is_bound)
    return Data(results, timings, memory(), networks=networks, forgetful=forgetful)


def _columns(folder: Folder) -> Arrays:
    """The columns that figures draw: the paper's sizes make millions of rows."""
    columns = load_results(folder.path)
    if not len(columns["run"]):
        raise UserError(f"No run in {folder.path} finished an episode: there is nothing to draw.")
    drawn = ("run", "episode", "discounted_return", "accuracy_")
    return {name: column for name, column in columns.items() if name.startswith(drawn)}


def _write_figures(request: Request, folder: Reproduction, manifest: dict[str, Any]) -> None:
    """A picture and the scores of each figure."""
    from baddr.paper.pictures import draw, panels
    from baddr.paper.report import scores

    for figure in request.chosen:
        data = load(figure, request.sizes, folder)
        stem = folder.path / f"figure-{figure.name}"
        paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        draw(panels(figure, request.sizes, data), paths, figure.title)
        found = scores(figure, request.sizes, data)
        write(stem.with_suffix(".json"), (json.dumps(found, indent=2) + "\n").encode())


def _write_report(request: Request, folder: Reproduction, manifest: dict[str, Any]) -> None:
    from baddr.paper.report import report, to_html, to_markdown

    read = lambda figure: json.loads((folder.path / f"figure-{figure.name}.json").read_text())
    found = {figure.name: read(figure) for figure in request.chosen}
    manifests = _manifests(folder, parts(request.chosen, request.sizes))
    document = report(request, found, manifest, manifests)
    write(folder.path / "report.md", to_markdown(document).encode())
    picture = lambda name: (folder.path / name).read_bytes()
    write(folder.path / "report.html", to_html(document, picture).encode())


def estimates(request: Request, engine: Any = None) -> list[dict[str, Any]]:
    """What each part would take. Neither the seed nor the number of networks changes the memory of a run."""
    from baddr.lab import runner

    rows, needs = [], {}
    for name, (experiment, timed) in parts(request.chosen, request.sizes).items():
        alike = replace(experiment, seed=0)
        if pretrain := experiment.settings.groups().get("pretrain"):
            alike = alike.changed(pretrain=replace(pretrain, num_networks=1, max_gap=1e9))
        if alike not in needs:
            needs[alike] = runner.estimate(alike, engine or runner.LOCAL)["memory_bytes"]
        row = {"part": name, "runs": experiment.runs, "episodes": experiment.episodes}
        rows.append({**row, "memory_bytes": needs[alike], "seconds": seconds(experiment, timed)})
    return rows
