"""Runs the experiments of figures, and draws and judges what came out; resumes where it was interrupted.

Parts are computed one after the other, and a finished one is never computed again; pictures and the report
are made at the end.
"""

import contextlib
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from baddr.agents.kinds import agent_class
from baddr.errors import UserError
from baddr.files.machine import memory, num_cores
from baddr.files.store import Folder, load_results
from baddr.files.tables import Arrays
from baddr.files.toml import to_toml
from baddr.files.writing import write
from baddr.lab.experiment import AnyExperiment
from baddr.lab.progress import amount
from baddr.paper.claims import Data
from baddr.paper.figures import parts
from baddr.paper.figures.figure import Figure, Sizes, part_name
from baddr.paper.folder import Reproduction, Request
from baddr.paper.page import to_html, to_markdown
from baddr.paper.part import compute, seconds
from baddr.paper.report import report
from baddr.paper.scores import scores

Progress = Callable[[str, float, str], None]  # which part, how much of all is done, what it does


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
        request = folder.read_request()
        folder.check_kept(request)
        return _run(request, folder, progress, engine, listeners)


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
                    compute(folder, name, experiment, timed, told, engine, listeners)
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


# What came out.


def load(figure: Figure, sizes: Sizes, folder: Reproduction) -> Data:
    """The results of a figure's curves."""
    results, timings = {}, {}
    for curve in figure.curves(sizes):
        for seed, experiment in curve.parts().items():
            name = part_name(experiment, curve.timed)
            if curve.timed:
                timings[curve.name] = folder.read_timing(name)
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

    for figure in request.chosen:
        data = load(figure, request.sizes, folder)
        stem = folder.path / f"figure-{figure.name}"
        paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        draw(panels(figure, request.sizes, data), paths, figure.title)
        found = scores(figure, request.sizes, data)
        write(stem.with_suffix(".json"), (json.dumps(found, indent=2) + "\n").encode())


def _write_report(request: Request, folder: Reproduction, manifest: dict[str, Any]) -> None:
    read = lambda figure: json.loads((folder.path / f"figure-{figure.name}.json").read_text())
    found = {figure.name: read(figure) for figure in request.chosen}
    manifests = _manifests(folder, parts(request.chosen, request.sizes))
    document = report(request, found, manifest, manifests)
    write(folder.path / "report.md", to_markdown(document).encode())
    picture = lambda name: (folder.path / name).read_bytes()
    write(folder.path / "report.html", to_html(document, picture).encode())


def _manifests(folder: Reproduction, plan: dict[str, tuple[AnyExperiment, bool]]) -> dict[str, Any]:
    """What each part's manifest says; those that are only timed have none."""
    return {name: folder.part(name).read_manifest() for name, (_, timed) in plan.items() if not timed}
