"""A folder of `baddr reproduce`, and what was asked for in it.

It holds `reproduce.toml` (what was asked for), `manifest.json`, a result folder for each experiment below
`parts/`, a picture and the scores of each figure, and a report.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from baddr.errors import StorageError, UserError
from baddr.files.manifest import check_parts
from baddr.files.settings import misfits, refuse
from baddr.files.store import Folder, read_json
from baddr.files.toml import merge, read_toml
from baddr.lab.asked import kept_as_asked
from baddr.paper.figures import chosen, parts
from baddr.paper.figures.figure import Figure, Sizes

AGAIN = "remove that folder, and resume computes the part again"
MOST_ENSEMBLES = 1000  # each is a part with a folder of its own


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
        return self.part(name).has_experiment and self.part(name).is_whole

    def has_all(self, request: Request) -> bool:
        """Whether nothing is left to compute."""
        plan = parts(request.chosen, request.sizes)
        return all(self.is_complete(name, timed) for name, (_, timed) in plan.items())

    def check_kept(self, request: Request) -> None:
        """Refuse parts that are not those of the request. They may have been extended."""
        for name, (experiment, timed) in parts(request.chosen, request.sizes).items():
            if self.part(name).has_experiment and not timed:
                kept_as_asked(self.part(name), experiment, AGAIN)

    def read_timing(self, name: str) -> dict[str, Any]:
        """The seconds of some steps."""
        path = self.timing(name)
        found = read_json(path)
        seconds = found.get("seconds") if isinstance(found, dict) else None
        if not isinstance(seconds, list) or not all(type(x) in (int, float) and x > 0 for x in seconds):
            raise StorageError(f"{path} holds no seconds; remove it, and resume makes it.")
        return found


def status(folder: Reproduction) -> str:
    """`running` or `complete`."""
    return folder.read_parts().get("status", "running") if folder.manifest.exists() else "running"
