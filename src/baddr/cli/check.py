"""`baddr check DOMAIN`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from baddr.cli.options import Debug, Device
from baddr.cli.parse import check_same_file, domain_first, parse
from baddr.domains.catalog import entry as entry_of
from baddr.domains.catalog import short_name
from baddr.errors import UserError

E = TypeVar("E")


@dataclass(frozen=True)
class Check(Generic[E]):
    """Check that a domain keeps its promises: shapes, types, ranges, probabilities and frequencies.

    Prints a sentence for each problem. The exit code is 0 if there is none.

    examples:
      baddr check tiger
      baddr check examples/machine.pomdp
      baddr check examples/maintenance.py:make_domain --domain.horizon 10
    """

    domain: E
    device: Device = "auto"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    name, flags = domain_first("check", arguments)
    entry = entry_of(name)
    kind = Check[type(entry.settings)]  # type: ignore[misc]
    options = parse(kind, f"check {name}", flags, Check(entry.settings))
    check_same_file(name, entry.settings, options.domain)
    problems = options.domain.problems()
    if problems:
        raise UserError("; ".join(problems) + ".")
    from baddr.lab.device import prepare

    prepare(options.device)
    from baddr.domains import check

    domain = entry.make_domain(options.domain)
    problems = check.problems(domain)
    for problem in problems:
        print(f"{short_name(name)}: {problem}.")
    if not problems:
        print(f"{short_name(name)} is fine. Checked:")
        for line in check.checked(domain):
            print(f"  {line}")
    return 1 if problems else 0
