"""The results that a command line names, with their rows so far. Needs no JAX.

`baddr plot results/*` meets more than experiments there: those of a sweep are all taken, and what is no
experiment, or has no row yet, is left out with a warning.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baddr.domains.catalog import short_name
from baddr.errors import UserError
from baddr.files.rows import read_rows
from baddr.files.store import Folder, load_results
from baddr.files.tables import Arrays
from baddr.files.toml import read_toml

NEEDED = ("run", "episode", "discounted_return")


def results_of(paths: Sequence[Path]) -> dict[Path, Arrays]:
    """The rows of each experiment that has some."""
    tables = {path: _rows(path) for path in result_folders(paths)}
    found = {path: rows for path, rows in tables.items() if rows is not None}
    for path in tables.keys() - found.keys():
        sentence = f"{path} has no finished episode yet"
        if not found:
            raise UserError(f"{sentence}.")
        _warn(f"{sentence} and is left out.")
    return found


def _rows(path: Path) -> Arrays | None:
    """None where no episode has ended."""
    folder = Folder(path)
    if not folder.episodes.exists() and read_rows(folder.rows) is None:
        return None
    rows = rows_of(path)
    return rows if len(rows["run"]) else None


def rows_of(path: Path) -> Arrays:
    """The rows of an experiment, with the columns that are compared."""
    rows = load_results(path)
    if missing := [name for name in NEEDED if name not in rows]:
        raise UserError(f"{path} holds no episodes of baddr: it has no column {missing[0]!r}.")
    return rows


def result_folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of experiments, each once."""
    found = [folder for path in paths for folder in _folders_in(path)]
    if not found:
        Folder(paths[0]).check_existing()
    return list(dict.fromkeys(found))


def _folders_in(path: Path) -> list[Path]:
    if Folder(path).config.exists() or not path.exists():
        Folder(path).check_existing()
        return [path]
    if (path / "reproduce.toml").exists():
        _warn(f"{path} holds figures of the paper and is left out; {path}/parts has its experiments.")
        return []
    if (path / "suite.toml").exists():
        _warn(f"{path} holds a suite and is left out; {path}/parts has its experiments.")
        return []
    parts = sorted(config.parent for config in path.glob("*/config.toml"))
    if parts:
        _warn(f"{path} holds {len(parts)} experiments, and all of them are used.")
    else:
        _warn(f"{path} holds no experiment and is left out.")
    return parts


def labels(paths: Sequence[Path]) -> list[str]:
    """Names in pictures and tables, each another one: folders of one name are told apart by their paths."""
    names = [path.name for path in paths]
    return [f"{_about(path)}, {path if names.count(path.name) > 1 else path.name}" for path in paths]


def _about(path: Path) -> str:
    config = read_toml(Folder(path).config)
    return f"{config.get('agent')} on {short_name(str(config.get('name', '')))}"


def title_of(paths: Sequence[Path]) -> str:
    """What a picture of some folders is about: the domains, each once."""
    names = dict.fromkeys(short_name(_domain(path)[0]) for path in paths)
    return f"Learning curves on {', '.join(names)}"


def check_same_domain(paths: Sequence[Path]) -> None:
    """Refuse to compare returns on several domains; warn where a domain's settings differ."""
    domains = {path: _domain(path) for path in paths}
    first = paths[0]
    for path, (name, settings) in domains.items():
        if name != domains[first][0]:
            raise UserError(
                f"{first} is on {short_name(domains[first][0])} and {path} on {short_name(name)}: returns on "
                "different domains cannot be compared; name folders of one domain."
            )
        if settings != domains[first][1]:
            _warn(
                f"{first} and {path} differ in the domain's settings, so their returns may not be comparable."
            )


def _domain(path: Path) -> tuple[str, Any]:
    config = read_toml(Folder(path).config)
    return str(config.get("name", "")), config.get("domain")


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=2)
