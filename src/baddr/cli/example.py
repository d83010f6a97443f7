"""`baddr example [NAME]`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from baddr.cli.options import Debug
from baddr.cli.parse import parse
from baddr.errors import UserError, nearest
from baddr.lab.output import in_line

# What each is, and what to do with it.
EXAMPLES = {
    "maintenance.py": ("a domain of your own, in Python", "baddr run {path}"),
    "forgetting.py": ("a posterior of your own", "baddr run tiger --posterior {path}:make_posterior"),
    "lookahead.py": (
        "a planner of your own",
        "baddr run tiger --agent ba-pomcp --planner.kind {path}:make_planner",
    ),
    "corridor.py": ("a simulator in plain Python that becomes a domain", "baddr run {path}"),
    "ppo.py": ("a Stable-Baselines3 agent for the suite", "python {path} tiger"),
    "machine.pomdp": ("a domain in Cassandra's file format", "baddr run {path} --agent ba-pomcp"),
    "tiger.pomdp": ("tiger in Cassandra's file format", "baddr solve {path}"),
}


@dataclass(frozen=True)
class Example:
    """Copy an example from the package, so that you can run and change it. Without NAME, list the examples.

    examples:
      baddr example
      baddr example maintenance.py
      baddr example maintenance --out mine.py
    """

    names: Positional[Annotated[tuple[str, ...], arg(metavar="NAME", help="The example.")]] = ()
    out: Path | None = None
    """The file to write. By default, a file in this folder with the example's name."""
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options: Example = parse(Example, "example", arguments)
    names: list[str] = list(options.names)  # type: ignore[arg-type]
    if not names:
        print("\n".join(f"  {name:18s} {about}" for name, (about, _) in EXAMPLES.items()))
        return 0
    if len(names) > 1:
        raise UserError("Name one example: `baddr example NAME`.")
    by_stem = {name.partition(".")[0]: name for name in reversed(EXAMPLES)}
    name = by_stem.get(names[0], names[0])
    source = folder() / nearest("example", name, EXAMPLES)
    path = options.out or Path(source.name)
    if path.exists():
        raise UserError(f"{path} exists; name another file with --out.")
    from baddr.files.writing import write

    write(path, source.read_bytes())
    what, how = EXAMPLES[source.name]
    print(f"{in_line(path)} is {what}. Try: {how.format(path=in_line(path))}")
    return 0


def folder() -> Path:
    """Where the examples lie: in the installed package, or in the repository that it is run from."""
    package = Path(__file__).parent.parent
    homes = package / "examples", package.parent.parent / "examples"
    found = next((home for home in homes if (home / "maintenance.py").exists()), None)
    if found is None:
        raise UserError("The examples were not installed with this package.")
    return found
