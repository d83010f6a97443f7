"""A result folder as plain values for a page: its learning curves so far, and its trace. Read only; needs no
JAX."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from baddr.domains.catalog import entry
from baddr.domains.entry import Names
from baddr.domains.render import scenes_of
from baddr.errors import UserError
from baddr.files.rows import read_rows
from baddr.files.store import Folder, load_results
from baddr.lab.columns import of_kind
from baddr.lab.experiment import of_folder
from baddr.lab.explore.picture import drawn
from baddr.lab.statistics import default_window, learning_curve

POINTS = 40


class Results:
    """A folder that is finished or running."""

    def __init__(self, path: Path, trust: bool = False):
        self.folder = Folder(path)
        self.folder.check_existing()
        self.experiment = of_folder(self.folder, trust)
        self.domain: Any = None  # made where a step is drawn
        self.kept: tuple[Any, list[dict[str, Any]]] = (
            None,
            [],
        )  # the trace, and the file that it was read from

    @property
    def names(self) -> Names:
        return entry(self.experiment.name).names(self.experiment.domain)

    def curves(self) -> dict[str, Any]:
        """The mean return and what was believed, episode by episode, over the runs that got there."""
        manifest = self.folder.read_manifest()
        said = {
            "title": self.experiment.title,
            "folder": str(self.folder.path),
            "status": manifest.get("status", ""),
            "runs": self.experiment.runs,
            "episodes": self.experiment.episodes,
            "rows": 0,
            "curves": {},
        }
        if not self.folder.episodes.exists() and read_rows(self.folder.rows) is None:
            return said
        rows = load_results(self.folder.path)
        if not len(rows["run"]):
            return said
        wanted = ["discounted_return", "length", *of_kind(rows, "belief")]
        window = max(default_window(int(rows["episode"].max()) + 1), 1)
        curves = {name: self._curve(rows, name, window) for name in wanted if name in rows}
        return said | {"rows": len(rows["run"]), "curves": curves, "window": window}

    def _curve(self, rows: dict[str, Any], name: str, window: int) -> dict[str, Any]:
        curve = learning_curve(rows, name, window)
        plain = lambda x: [float(v) if np.isfinite(v) else None for v in x]
        return {"x": plain(curve.episode), "y": plain(curve.mean), "low": plain(curve.low)} | {
            "high": plain(curve.high)
        }

    def trace(self) -> list[dict[str, Any]]:
        """The steps of the traced run; none where no run was traced, or none yet."""
        path = self.folder.path / "trace.jsonl"
        if not path.exists():
            return []
        about = path.stat()
        version = about.st_mtime_ns, about.st_size
        if self.kept[0] != version:
            try:
                self.kept = version, [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            except ValueError as error:
                raise UserError(f"{path} was not written by a run: {error}.") from error
        return self.kept[1]

    def view(self, place: int) -> dict[str, Any]:
        """A step of the trace, in the form of a session's view: the belief is the one after it."""
        steps = self.trace()
        if not steps:
            raise UserError("No run was traced: `baddr run ... --trace 0` keeps each step of run 0.")
        place = min(max(place, 0), len(steps) - 1)
        step = steps[place]
        belief = step["belief"]
        first = next(i for i, other in enumerate(steps) if other["episode"] == step["episode"])
        starts = [i for i, other in enumerate(steps) if i == 0 or other["episode"] != steps[i - 1]["episode"]]
        said = lambda x: {key: x[key] for key in ("episode", "action", "observation", "reward")}
        happened = lambda i: said(steps[i]) | {"place": i, "t": steps[i]["step"] + 1}
        discount = self.experiment.domain.discount if hasattr(self.experiment.domain, "discount") else 1.0
        return {
            "episode": step["episode"],
            "t": step["step"] + 1,
            "over": step["ended"],
            "total": sum(discount ** x["step"] * x["reward"] for x in steps[first : place + 1]),
            "place": place,
            "places": len(steps),
            "starts": starts,
            "led_here": said(step),
            "history": [happened(i) for i in range(max(0, place - 60), place + 1)],
            "particles": getattr(getattr(self.experiment.settings, "filter", None), "num_particles", None),
            "effective": belief["effective_sample_size"],
            "ancestors": None,
            "state": belief["state"]["features"],
            "true_state": step["next_state"],
            "model": belief["model"],
            "plan": {"Q": step["Q"], "upper": None, "visits": step["visits"], "nodes": None, "steps": None},
            "outlook": None,
            "tree": None,
        }

    def picture(self, place: int) -> str:
        """A step of the trace as the domain draws it. A domain of a user's own is not run to be drawn."""
        steps = self.trace()
        if not 0 <= place < len(steps) or entry(self.experiment.name).source is not None:
            return ""
        if self.domain is None:
            from baddr.lab.build import build_domain  # needs JAX

            self.domain = build_domain(self.experiment)
        renderer = self.domain.renderer
        scene = scenes_of([steps[place]], self.domain, self.names)[1]
        return drawn(renderer, scene._replace(title="")) if renderer else ""
