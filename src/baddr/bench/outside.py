"""Results of agents that are not ours, beside ours on the scoreboard. Needs no JAX."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from baddr.bench.folder import Suite
from baddr.domains.catalog import short_name
from baddr.errors import UserError
from baddr.files.tables import Arrays, read_table, write_table

COLUMNS = ("run", "episode", "discounted_return")


def add(folder: Suite, path: Path, name: str, domains: tuple[str, ...]) -> list[str]:
    """Keep a table of an outside agent, and say for which domains it has rows.

    Its columns are those of episodes.parquet (run, episode from 0, discounted_return), and `domain`, the name
    of one; without it, exactly one domain must be named. A column `seed` tells trainings apart.
    """
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UserError(f"--name {name!r}: a name is letters, digits, dots, plus, minus and underscores.")
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    known = [short_name(domain) for domain in folder.read_request().chosen_domains]
    rows = _checked(read_table(path, words=("domain",)), path, known, domains)
    write_table(folder.path / "outside" / f"{name}.parquet", rows)
    return sorted({str(domain) for domain in rows["domain"]})


def _checked(rows: Arrays, path: Path, known: list[str], domains: tuple[str, ...]) -> Arrays:
    missing = [column for column in COLUMNS if column not in rows]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}; it needs {', '.join(COLUMNS)} and domain.")
    if "domain" not in rows:
        if len(domains) != 1:
            raise UserError(f"{path} has no column domain: say which one it is about with --domains NAME.")
        rows["domain"] = np.array([domains[0]] * len(rows["run"]), object)
    if not len(rows["run"]):
        raise UserError(f"{path} has no rows.")
    strange = sorted({str(domain) for domain in rows["domain"]} - {*known})
    if strange:
        raise UserError(f"{path} is about {strange[0]}, and this suite has {', '.join(known)}.")
    for column in COLUMNS:
        values = np.asarray(rows[column], float)
        if not np.all(np.isfinite(values)) or (column != "discounted_return" and np.any(values < 0)):
            raise UserError(
                f"{path}: the column {column} must hold finite numbers, runs and episodes from 0."
            )
    kept = {"seed": np.zeros(len(rows["run"]), int)} | rows
    texts = {"domain": np.array([str(x) for x in rows["domain"]], object)}
    numbers = {name: np.asarray(kept[name], np.int64) for name in ("seed", "run", "episode")}
    return texts | numbers | {"discounted_return": np.asarray(rows["discounted_return"], float)}


def outside(folder: Suite) -> dict[str, dict[str, dict[int, Arrays]]]:
    """By name, domain and seed."""
    found: dict[str, dict[str, dict[int, Arrays]]] = {}
    for path in sorted((folder.path / "outside").glob("*.parquet")):
        rows = read_table(path, words=("domain",))
        for domain in sorted({str(x) for x in rows["domain"]}):
            for seed in np.unique(rows["seed"]).tolist():
                here: Any = (rows["domain"] == domain) & (rows["seed"] == seed)
                table = {column: rows[column][here] for column in COLUMNS}
                found.setdefault(path.stem, {}).setdefault(domain, {})[int(seed)] = table
    return found
