"""A folder of `baddr suite`: runs its parts, goes on where it was interrupted, and writes the scoreboard.

It holds `suite.toml` (what was asked for), `manifest.json`, a result folder for each part below `parts/`, the
solver's bounds below `optima/`, tables of outside agents below `outside/`, and what came out: `suite.json`
and `suite.html`. A finished part is never computed again.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baddr.bench.suite import Part, Request, parts, refusal
from baddr.domains.catalog import short_name
from baddr.errors import StorageError, UserError
from baddr.files.machine import peak_memory
from baddr.files.manifest import check_parts
from baddr.files.settings import LARGEST_FLOAT
from baddr.files.store import Folder, read_json
from baddr.files.toml import merge, read_toml, to_toml
from baddr.files.writing import file_name, write
from baddr.lab.asked import check_sizes, kept_as_asked
from baddr.lab.build import build_domain
from baddr.lab.progress import amount
from baddr.lab.sources import check_sources_of_domains, sources_of_domains

Progress = Callable[[str, float, str], None]  # which part, how much of all is done, what it does
REQUEST = "suite.toml"
AGAIN = "remove that folder, and resume computes the part again"


class Suite(Folder):
    """A folder of `baddr suite`. `trust`: its domains' files are executed whatever they are."""

    def __init__(self, path: Path, trust: bool = False):
        super().__init__(path)
        self.trust = trust

    @property
    def request(self) -> Path:
        return self.path / REQUEST

    def part(self, part: Part) -> Folder:
        return Folder(self.path / "parts" / part.name)

    def optimum(self, domain: str) -> Path:
        return self.path / "optima" / file_name(f"{short_name(domain).replace(':', '-')}.json")

    def read_optimum(self, domain: str) -> dict[str, Any]:
        """Its bounds, or why there are none; nothing where it was not solved."""
        path = self.optimum(domain)
        found = read_json(path) if path.exists() else {}
        if isinstance(found, dict):
            bounds: list[Any] = [found.get(name) for name in ("lower", "upper")]
            bounded = all(type(x) in (int, float) and abs(x) < LARGEST_FLOAT for x in bounds)
            if not found or bounded or isinstance(found.get("refused"), str):
                return found
        raise StorageError(f"{path} holds no bounds of an optimum; remove it, and resume solves it again.")

    def check_free(self) -> None:
        """Refuse to start where something else lies."""
        if self.request.exists():
            raise UserError(
                f"{self.path} already holds a suite; resume it with `baddr resume {self.path}`, or choose "
                "another folder with --out."
            )
        self.check_new()

    def read_request(self) -> Request:
        if not self.request.exists():
            raise UserError(f"{self.path} holds no suite: it has no {REQUEST}.")
        found = merge(Request(), read_toml(self.request), str(self.request))
        if not self.trust:
            manifest = self.read_manifest() if self.manifest.exists() else {}
            check_sources_of_domains(found.domains, manifest, self.request)
        found.check()
        return found

    def check_kept(self, request: Request) -> None:
        """Refuse parts that are not those of the request."""
        for part in parts(request):
            here, asked = self.part(part), part.experiment
            if here.has_experiment:
                check_sizes(here, kept_as_asked(here, asked, AGAIN, self.trust), asked, AGAIN)

    def read_parts(self) -> dict[str, Any]:
        """The manifest, whose parts are whole."""
        found = check_parts(self.read_manifest(), self.manifest, ("seconds", "memory_bytes", "failures"))
        if not all(isinstance(why, str) for why in found.get("refused", {}).values()):
            raise StorageError(f"{self.manifest} is not a manifest of baddr: refused holds no sentences.")
        return {"status": "running", "parts": {}, "refused": {}} | found

    def is_computed(self, part: Part) -> bool:
        """Whether a part has all its rows."""
        here = self.part(part)
        return here.has_experiment and here.is_whole

    def is_complete(self, request: Request) -> bool:
        """Whether nothing is left to compute."""
        found = self.read_parts() if self.manifest.exists() else {"status": "running"}
        if found["status"] != "complete":
            return False
        return all(part.name in found["refused"] or self.is_computed(part) for part in parts(request))

    @property
    def status(self) -> str:
        return self.read_parts()["status"] if self.manifest.exists() else "running"


def start(
    request: Request, folder: Suite, progress: Progress, engine: Any = None, listeners: Sequence[Any] = ()
) -> int:
    """A new suite; the number of parts in which a run failed."""
    request.check()
    request = request.resolved
    folder.check_free()
    _refuse(request, folder, engine)
    with folder.owned():
        folder.write_manifest(_new_manifest(request))  # first: where suite.toml is, its files are on record
        write(folder.request, to_toml(asdict(request)).encode())
        return _run(request, folder, progress, engine, listeners)


def _refuse(request: Request, folder: Suite, engine: Any) -> None:
    """What does not fit, before anything is computed."""
    from baddr.lab.parts import is_preset, refuse_disk_of_all, refuse_parts, with_domains

    refuse_disk_of_all((part.experiment for part in parts(request)), folder.free)
    others = [(part.name, part.experiment) for part in parts(request) if not is_preset(part.experiment)]
    if others:
        refuse_parts((x for x in with_domains(others) if not refusal(x.experiment.agent, x.domain)), engine)


def resume(folder: Suite, progress: Progress, engine: Any = None, listeners: Sequence[Any] = ()) -> int:
    """Go on with the suite of a folder."""
    with folder.owned():
        request = folder.read_request()
        folder.check_kept(request)
        return _run(request, folder, progress, engine, listeners)


def _run(request: Request, folder: Suite, progress: Progress, engine: Any, listeners: Sequence[Any]) -> int:
    from baddr.bench.scoreboard import write_scoreboard
    from baddr.lab.runner import Interrupted

    manifest = _manifest(request, folder)
    plan, domains = list(parts(request)), {}
    try:
        for number, part in enumerate(plan):
            if part.domain not in domains:
                domains[part.domain] = build_domain(part.experiment)
                _solve(request, folder, part, domains[part.domain], progress, number / len(plan))
            sentence = refusal(part.agent, domains[part.domain])
            if sentence:
                manifest["refused"][part.name] = sentence
            elif not folder.is_computed(part):
                _compute(folder, part, manifest, (progress, number, len(plan)), engine, listeners)
        progress("scoreboard", 1.0, "writing")
    except KeyboardInterrupt:
        raise Interrupted from None
    manifest["status"] = "complete"
    folder.write_manifest(manifest)
    write_scoreboard(folder)
    return sum(bool(found["failures"]) for found in manifest["parts"].values())


def _new_manifest(request: Request) -> dict[str, Any]:
    """The files of domains of the user's own are on record: a resume executes no others."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": started, "sources": sources_of_domains(request.domains), "parts": {}, "refused": {}}


def _manifest(request: Request, folder: Suite) -> dict[str, Any]:
    from baddr.lab.runner import environment

    old = folder.read_parts() if folder.manifest.exists() else {}
    manifest = {**_new_manifest(request), **old, "status": "running", **environment()}
    if folder.trust:
        manifest["sources"] = sources_of_domains(request.domains)
    folder.write_manifest(manifest)
    return manifest


def _compute(
    folder: Suite, part: Part, manifest: dict[str, Any], shown: tuple[Progress, int, int], *how: Any
) -> None:
    """Start a part, or resume it, and note what it took."""
    from baddr.lab import runner

    (progress, number, total), (engine, listeners), here = shown, how, folder.part(part)
    title = f"part {number + 1} of {total}, {part.experiment.title}"

    def tell(kind: str, done: float, of: float, last: Any = None) -> None:
        within = 0.0 if kind == "pretraining" else min(1.0, done / max(of, 1))
        progress(title, (number + within) / total, amount(kind, done, of, last))  # type: ignore[arg-type]

    progress(title, number / total, "starting")
    options = {"engine": engine or runner.LOCAL, "listeners": listeners}
    before = time.monotonic()
    if here.has_experiment:
        kept = kept_as_asked(here, part.experiment, AGAIN, folder.trust)
        failures = runner.resume(kept, here, tell, **options, trust=folder.trust)
    else:
        shutil.rmtree(here.path, ignore_errors=True)  # what a kill left before it started
        failures = runner.start(part.experiment, here, tell, **options)
    spent = manifest["parts"].get(part.name, {}).get("seconds", 0.0) + time.monotonic() - before
    # The process's peak so far: an upper bound for the part that has just ended.
    found = {"seconds": round(spent, 3), "memory_bytes": peak_memory(), "failures": len(failures)}
    manifest["parts"][part.name] = found
    folder.write_manifest(manifest)


def _solve(request: Request, folder: Suite, part: Part, domain: Any, progress: Progress, done: float) -> None:
    """The solver's bounds on the optimal value of the truth, where its tables fit."""
    path = folder.optimum(part.domain)
    if path.exists():
        return
    progress(f"{short_name(part.domain)}, the optimum", done, "solving")
    from baddr.domains.solving import true_model
    from baddr.solve.point_based import Budget, solve

    found: dict[str, Any]
    try:
        model, horizon = true_model(domain, part.experiment.domain)
        solution = solve(model, Budget(1e-3, request.size.solve_seconds), horizon)
        found = {"lower": solution.lower, "upper": solution.upper, "seconds": solution.seconds}
    except UserError as error:
        found = {"refused": str(error)}
    write(path, (json.dumps(found) + "\n").encode())
