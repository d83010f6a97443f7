"""What ties the parts of a result folder together: config.toml, manifest.json and checkpoints. Needs no JAX.

A run is a function of the settings that matter, the seed, its number and the way in which random numbers are
drawn. The manifest has a hash of these settings; each checkpoint has it too, with the span of its runs. What
does not belong together is refused: its rows would be of no experiment.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from baddr.agents.kinds import KINDS, kind_of
from baddr.errors import UserError

Tie = dict[str, Any]
# What a resume may change, and what does not say how a run goes.
OPEN = ("domain", "settings", "runs", "episodes", "preset")
WORDS = {  # what differs, as a sentence says it
    "settings": "other settings",
    "seed": "another seed",
    "streams": "other random streams",
    "method": "another search",
    "domain": "another domain",
    "own": "another file of yours",
    "runs": "other runs",
}


def settings_hash(experiment: Any) -> str:
    """Of the settings that matter. What a class has by default does not count: a later version may have more
    settings. Nor do paths: what their files hold has hashes of its own."""
    values = {f.name: getattr(experiment, f.name) for f in fields(experiment) if f.name not in OPEN}
    values["domain"] = _chosen(experiment.domain, but=experiment.name)
    for name, group in experiment.settings.groups().items():
        own = hasattr(type(group), "own_kind")
        kind = {"kind": kind_of(name, group)} if name in KINDS and not own else {}
        values[f"[{name}]"] = _chosen(group) | kind
    text = json.dumps(_canonical(values), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _chosen(settings: Any, but: str | None = None) -> dict[str, Any]:
    """The plain values that are not the class's defaults."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    defaults = {f.name: f.default for f in fields(settings)}
    plain = lambda x: isinstance(x, bool | int | float | str) or (isinstance(x, tuple) and all(map(plain, x)))
    return {name: x for name, x in values.items() if plain(x) and x != defaults[name] and x != but}


def _canonical(value: Any) -> Any:
    """1 and 1.0 are the same setting, in whatever file they stood."""
    if isinstance(value, Mapping):
        return {name: _canonical(x) for name, x in value.items()}
    if isinstance(value, tuple | list):
        return [_canonical(x) for x in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def tie_of(manifest: Mapping[str, Any]) -> Tie:
    """What every checkpoint of an experiment carries; the span of its runs comes to it. One that was resumed
    with --trust may have had other files of the user's own."""
    names = ("settings", "method") if manifest.get("trusted") else ("settings", "method", "domain", "own")
    seeds = manifest.get("seeds", {})
    tie = {name: seeds.get(name) for name in ("seed", "streams")}
    return tie | {name: manifest.get(name) for name in names}


def check_tie(mine: Tie, theirs: Any, what: str) -> None:
    """Refuse what is not of this experiment."""
    theirs = theirs if isinstance(theirs, Mapping) else {}
    differ = [WORDS[name] for name in mine if theirs.get(name) != mine[name]]
    if differ:
        said = f"{', '.join(differ[:-1])} and {differ[-1]}" if differ[1:] else differ[0]
        raise UserError(f"{what} belongs to {said}; put back the one that was there before.")
