"""Results of agents that are not ours, beside ours on the scoreboard. Needs no JAX."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from baddr.agents import AGENTS
from baddr.bench.folder import Suite
from baddr.bench.suite import MOST_TRAININGS
from baddr.domains.catalog import short_name
from baddr.errors import UserError, shown
from baddr.files.tables import Arrays, read_table, write_table

COLUMNS = ("run", "episode", "discounted_return")
MOST_ROWS = 1 << 23  # of a table


def add(folder: Suite, path: Path, name: str, domains: tuple[str, ...]) -> list[str]:
    """Keep a table of an outside agent, and say for which domains it has rows.

    Its columns are those of episodes.parquet (run, episode from 0, discounted_return), and `domain`, the name
    of one; without it, exactly one domain must be named. A column `seed` tells trainings apart.
    """
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UserError(f"--name {name!r}: use only letters, digits, dots, plus, minus and underscores.")
    if name in AGENTS:
        raise UserError(f"--name {name} is an agent of this package: choose another name.")
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    rows = _read(path, _known(folder), domains)
    write_table(folder.path / "outside" / f"{name}.parquet", rows)
    return sorted({str(domain) for domain in rows["domain"]})


def outside(folder: Suite) -> dict[str, dict[str, dict[int, Arrays]]]:
    """By name, domain and seed."""
    found: dict[str, dict[str, dict[int, Arrays]]] = {}
    for path in sorted((folder.path / "outside").glob("*.parquet")):
        if path.stem in AGENTS:
            raise UserError(f"{path} has the name of an agent of this package: give it another one.")
        rows = _read(path, _known(folder), ())
        for domain in sorted({str(x) for x in rows["domain"]}):
            for seed in np.unique(rows["seed"]).tolist():
                here: Any = (rows["domain"] == domain) & (rows["seed"] == seed)
                table = {column: rows[column][here] for column in COLUMNS}
                if len(table["run"]):
                    found.setdefault(path.stem, {}).setdefault(domain, {})[int(seed)] = table
    return found


def _known(folder: Suite) -> list[str]:
    return [short_name(domain) for domain in folder.read_request().chosen_domains]


def _read(path: Path, known: list[str], domains: tuple[str, ...]) -> Arrays:
    """The table, if it is one of returns on known domains."""
    rows = read_table(path, words=("domain",))
    missing = [column for column in COLUMNS if column not in rows]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}; it needs {', '.join(COLUMNS)} and domain.")
    if not 0 < len(rows["run"]) <= MOST_ROWS:
        raise UserError(f"{path} has {len(rows['run']):,} rows; 1 to {MOST_ROWS:,} are read.")
    if "domain" not in rows:
        if len(domains) != 1:
            raise UserError(f"{path} has no column domain: name its domain with --domains NAME.")
        rows["domain"] = np.array([domains[0]] * len(rows["run"]), object)
    texts = np.array([str(x) for x in rows["domain"]], object)
    strange = sorted({*texts} - {*known})
    if strange:
        raise UserError(f"{path} is about {shown(strange[0])}, and this suite has {', '.join(known)}.")
    kept = {"seed": np.zeros(len(texts), int)} | rows
    for column in ("seed", *COLUMNS):
        _check_numbers(column, np.asarray(kept[column], float), path)
    if len(np.unique(kept["seed"])) > MOST_TRAININGS:
        raise UserError(f"{path} has more than {MOST_TRAININGS:,} seeds: each is a training.")
    numbers = {name: np.asarray(kept[name], np.int64) for name in ("seed", "run", "episode")}
    _check_rows(texts, numbers, path)
    return {"domain": texts} | numbers | {"discounted_return": np.asarray(rows["discounted_return"], float)}


def _check_rows(domains: Any, numbers: dict[str, Any], path: Path) -> None:
    """Each run has its episodes 0, 1, 2, ... once."""
    of_run = np.stack(
        [np.unique(domains.astype(str), return_inverse=True)[1], numbers["seed"], numbers["run"]]
    )
    runs, which = np.unique(of_run, axis=1, return_inverse=True)
    order = np.lexsort((numbers["episode"], which.ravel()))
    which, episode = which.ravel()[order], numbers["episode"][order]
    first = np.searchsorted(which, np.arange(runs.shape[1]))
    wrong = np.flatnonzero(episode != np.arange(len(which)) - first[which])
    if len(wrong):
        i = wrong[0]
        raise UserError(
            f"{path}: run {runs[2, which[i]]} must have each of its episodes 0, 1, 2, ... once, and near "
            f"episode {episode[i]} it has two or none; a column `seed` tells trainings apart."
        )


def _check_numbers(column: str, values: np.ndarray, path: Path) -> None:
    least = -np.inf if column in ("seed", "discounted_return") else 0
    if not np.all(np.isfinite(values) & (values >= least)):
        raise UserError(f"{path}: the column {column} must hold finite numbers, runs and episodes from 0.")
