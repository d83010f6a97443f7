"""`baddr cache`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baddr.cli.parse import parse


@dataclass(frozen=True)
class Cache:
    """Show or delete trained priors, solutions and compiled code on disk.

    What is deleted is made again when it is needed.

    examples:
      baddr cache
      baddr cache --clear
    """

    clear: bool = False
    """Delete them all."""


def main(arguments: Sequence[str]) -> int:
    options: Cache = parse(Cache, "cache", arguments)
    from baddr.files import cache

    if options.clear:
        print(f"{cache.clear() / 2**20:.1f} MiB deleted from {cache.root()}")
        return 0
    print(f"{cache.root()}")
    print(f"  compiled code: {cache.size(cache.compiled_code()) / 2**20:.1f} MiB")
    solutions = list(cache.solutions().glob("*.npz"))
    print(f"  solutions: {len(solutions)}, {cache.size(cache.solutions()) / 2**20:.1f} MiB")
    priors = cache.stored_priors()
    print(f"  trained priors: {len(priors)}")
    for entry in priors:
        print(f"    {_line(entry)}")
    return 0


def _line(entry: dict[str, Any]) -> str:
    """About one trained prior."""
    gaps = [gap for gap in entry["gap"] if gap is not None]
    fit = f"gap to the floor {max(gaps):.4f} nats" if gaps else "gap to the floor not measured"
    network, pretrain = entry["settings"]["network"], entry["settings"]["pretrain"]
    return (
        f"{entry['name'][:24]}  {entry['created']}  {entry['bytes'] / 2**10:.0f} KiB  "
        f"{pretrain['num_networks']} network(s) of {network['hidden']}, dropout {network['dropout']}, "
        f"{pretrain['batches']} batches; {fit}"
    )
