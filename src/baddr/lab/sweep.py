"""An experiment with one setting or several changed: a result folder for every combination of values."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from baddr.errors import UserError
from baddr.files.store import Folder
from baddr.files.tables import Arrays
from baddr.files.writing import file_name
from baddr.lab.asked import kept_as_asked
from baddr.lab.experiment import AnyExperiment, extend, of_folder
from baddr.lab.statistics import Estimate

SWITCHED = {"true": True, "yes": True, "false": False, "no": False}

Combination = dict[str, str]  # settings as flags name them, and a value of each as a flag gives it


class Part(NamedTuple):
    """One combination of a sweep."""

    combination: Combination
    experiment: AnyExperiment
    folder: Folder


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """The settings to sweep over and their values, from NAME=VALUE,VALUE,..."""
    over: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name, chosen = name.strip().lstrip("-"), [value.strip() for value in values.split(",")]
        if not name or not all(chosen):
            raise UserError(
                f"--over must be NAME=VALUE,VALUE,..., such as dpfrl.learning-rate=1e-4,1e-3, not {text!r}."
            )
        if name in over or len(set(chosen)) < len(chosen):
            raise UserError(f"--over names {name} or one of its values twice.")
        over[name] = chosen
    if not over:
        raise UserError(
            "Name what to sweep over with --over NAME=VALUE,VALUE,...; repeat it for more settings."
        )
    return over


def combinations(over: dict[str, list[str]]) -> Iterator[Combination]:
    """Every value of every setting with every value of the others; the last setting changes fastest."""
    return (dict(zip(over, values, strict=True)) for values in itertools.product(*over.values()))


def flags(combination: Combination, start: AnyExperiment) -> list[str]:
    """The combination on a command line; a value with spaces is several words (network.hidden=32 32)."""
    return [word for name, value in combination.items() for word in _words(name, value, start)]


def _words(name: str, value: str, start: AnyExperiment) -> list[str]:
    if value.lower() in SWITCHED and is_switch(start, name):
        return [f"--{name}" if SWITCHED[value.lower()] else _negated(name)]
    return [f"--{name}", *value.split()]


def is_switch(start: AnyExperiment, name: str) -> bool:
    """Whether a setting is on or off (factored.structure=true is a choice like others), or of another kind of
    its group, so that nobody knows yet."""
    group, _, last = name.replace("-", "_").rpartition(".")
    groups = {"": start, "domain": start.domain, **start.settings.groups()}
    return isinstance(getattr(groups.get(group), last, True), bool)


def _negated(name: str) -> str:
    """The flag that turns a setting off: --network.no-redraw-masks."""
    group, dot, last = name.rpartition(".")
    return f"--{group}{dot}no-{last}"


def is_given(arguments: Sequence[str], name: str) -> bool:
    """Whether a command line sets this setting."""
    pairs = zip(["", *arguments], arguments, strict=False)
    words = {argument.partition("=")[0] for before, argument in pairs if before != "--over"}
    return not words.isdisjoint((f"--{name}", _negated(name)))


def label(combination: Combination) -> str:
    """learning-rate=1e-4,num-particles=15: a folder's name. Names in full where their ends are the same."""
    ends = [name.rpartition(".")[2] for name in combination]
    names = ends if len(set(ends)) == len(ends) else list(combination)
    words = (f"{name}={value}" for name, value in zip(names, combination.values(), strict=True))
    return file_name(",".join(words).replace(" ", "-"))


def make_part(root: Path, combination: Combination, experiment: AnyExperiment) -> Part:
    """A part whose settings are in order, and whose folder, where there is one, is of the same experiment."""
    experiment.check()
    part = Part(combination, experiment, Folder(root / label(combination)))
    if part.folder.config.exists():
        _grown(part)
    else:
        part.folder.check_new()
    return part


def is_complete(part: Part) -> bool:
    """Whether nothing is left to compute."""
    if not part.folder.config.exists():
        return False
    return _grown(part) == of_folder(part.folder) and part.folder.is_whole


def compute(part: Part, progress: Any) -> list[Any]:
    """Start the part, or resume it; what failed."""
    from baddr.lab import runner

    if part.folder.config.exists():
        return runner.resume(_grown(part), part.folder, progress)
    return runner.start(part.experiment, part.folder, progress)


def _grown(part: Part) -> AnyExperiment:
    """The experiment that the folder holds, with as many runs and episodes as are asked for now."""
    kept = kept_as_asked(part.folder, part.experiment, "choose another folder with --out")
    return extend(kept, part.experiment.runs, part.experiment.episodes)


def table(parts: Sequence[Part], rows: Sequence[dict[str, Any]], level: float | None) -> Iterator[str]:
    """A line for every part, the best final mean first; `rows` are `statistics.compare`'s."""
    names = list(parts[0].combination)
    titles = [*names, "final mean", "95 % interval", "over all"]
    titles += [] if level is None else [f"episodes to {level:g}"]
    lines = []
    for part, row in sorted(zip(parts, rows, strict=True), key=lambda pair: -pair[1]["final"].value):
        final: Estimate = row["final"]
        line = [*part.combination.values(), f"{final.value:.3f}", final.interval]
        line.append(f"{row['area'].value:.3f}")
        if level is not None:
            reached = row["episodes_to_level"].value
            line.append(f"{reached:.0f}" if reached < float("inf") else "never")
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in [titles, *lines]:
        yield "  ".join(f"{word:>{width}s}" for word, width in zip(line, widths, strict=True))


def results_of(parts: Sequence[Part]) -> dict[str, Arrays]:
    """Each part's rows, by its label. A part without a finished episode is an error."""
    from baddr.files.store import load_results

    results = {label(part.combination): load_results(part.folder.path) for part in parts}
    for name, columns in results.items():
        if not len(columns["run"]):
            raise UserError(f"{name} has no finished episode.")
    return results
