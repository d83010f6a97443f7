"""`baddr list`."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from baddr.cli.parse import parse
from baddr.lab import catalog

MOST_LINES = 6  # for features with the same values


@dataclass(frozen=True)
class List:
    """List the domains with their features and numbering, the agents, the presets and the figures.

    A DOMAIN can also be a file: FILE.pomdp (in Cassandra's format), FILE.pomdpx, or FILE.py:FUNCTION (whose
    function returns a Domain).

    examples:
      baddr list
      baddr list --json
    """

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> int:
    options: List = parse(List, "list", arguments)
    from baddr.paper.figures import FIGURES

    figures = {name: figure.title for name, figure in FIGURES.items()}
    listing: dict[str, Any] = {**catalog.listing(), "figures": figures}
    if options.json:
        print(json.dumps(listing, indent=2))
        return 0
    for name, domain in listing["domains"].items():
        print(f"{name}: {domain['summary']}")
        for kind in ("state", "observation"):
            for line in _features(domain[kind]):
                print(f"    {kind} {line}")
        print("    actions: " + ", ".join(f"{i} {name}" for i, name in enumerate(domain["actions"])))
    for kind in ("agents", "presets", "figures"):
        print(f"\n{kind}:")
        for name, summary in listing[kind].items():
            print(f"    {name:10s} {summary}")
    return 0


def _features(features: list[dict[str, Any]]) -> Iterator[str]:
    """A line per feature, or per stretch of features with the same values."""
    number = 0
    for values, group in itertools.groupby(features, key=lambda feature: feature["values"]):
        names = [feature["name"] for feature in group]
        numbers = [str(number + i) for i in range(len(names))]
        number += len(names)
        if values == [str(i) for i in range(len(values))]:
            meaning = f"0 to {len(values) - 1}"
        else:
            meaning = ", ".join(f"{i} {value}" for i, value in enumerate(values))
        if len(names) > MOST_LINES:
            yield f"features {numbers[0]} ({names[0]}) to {numbers[-1]} ({names[-1]}): {meaning}"
        else:
            yield from (f"feature {i}, {name}: {meaning}" for i, name in zip(numbers, names, strict=True))
