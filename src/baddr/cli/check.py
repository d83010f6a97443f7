"""`baddr check DOMAIN`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Generic, TypeVar

from baddr.agents.kinds import kind_of, settings_of
from baddr.cli.options import Debug, Device, Flat
from baddr.cli.parse import check_same_file, domain_first, flag_value, kinds_of, parse, prepare_for
from baddr.domains.catalog import entry as entry_of
from baddr.domains.catalog import short_name
from baddr.files.settings import problems, refuse
from baddr.lab.limits import domain_problems

E = TypeVar("E")
G = TypeVar("G")


@dataclass(frozen=True)
class Check(Generic[E, G]):
    """Check that a domain is sound: its shapes, types, ranges, probabilities and frequencies.

    With --posterior FILE.py:NAME, check a posterior of your own on this domain instead; with --planner.kind
    or --filter.kind (FILE.py:NAME or a built-in name), a planner or a filter: shapes and types, determinism,
    probabilities, finite values. For a filter, also check how close it is to the exact belief. For a
    posterior, also measure how far it is from Bayes' rule (Def. 3 of the paper).

    Each problem is printed as one sentence. The exit code is 0 if there is none.

    examples:
      baddr check tiger
      baddr check examples/machine.pomdp
      baddr check examples/maintenance.py:make_domain --domain.horizon 10
      baddr check tiger --posterior examples/forgetting.py:make_posterior
    """

    domain: E
    parts: Flat[G]
    device: Device = "auto"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    name, flags = domain_first("check", arguments)
    kinds, flags = kinds_of(flags)
    prepare_for([*kinds.values()], flag_value(flags, "device", "auto"))
    entry = entry_of(name)
    start = {group: settings_of(group, kind) for group, kind in kinds.items()}
    parts = _parts(start)
    kind = Check[type(entry.settings), type(parts)]  # type: ignore[misc]
    options = parse(kind, f"check {name}", flags, Check(entry.settings, parts))
    check_same_file(name, entry.settings, options.domain)
    chosen = {group: getattr(options.parts, group) for group in start}
    found = [sentence for group, value in chosen.items() for sentence in problems(value, f"{group}.")]
    refuse([*domain_problems(options.domain), *found])
    from baddr.lab.device import prepare

    prepare(options.device)
    domain = entry.make_domain(options.domain)
    return _check_parts(chosen, domain) if chosen else _check_domain(name, domain)


def _parts(groups: Mapping[str, Any]) -> Any:
    """The groups as fields of one value, so that their settings are flags."""
    kinds = [(name, type(value), field(default=value)) for name, value in groups.items()]
    return make_dataclass("Parts", kinds, frozen=True)()


def _check_domain(name: str, domain: Any) -> int:
    from baddr.domains import check

    problems = check.problems(domain)
    return _tell(short_name(name), problems, [] if problems else check.checked(domain))


def _check_parts(groups: Mapping[str, Any], domain: Any) -> int:
    from baddr.agents import trials
    from baddr.domains.check import refuse_malformed

    refuse_malformed(domain)
    found = 0
    for group, settings in groups.items():
        problems, measured = trials.problems(group, settings, domain)
        found |= _tell(short_name(kind_of(group, settings)), problems, [*trials.checked(group), *measured])
    return found


def _tell(name: str, problems: list[str], checked: list[str]) -> int:
    for problem in problems:
        print(f"{name}: {problem}.")
    if not problems:
        print(f"{name} is fine. Checked:")
        for line in checked:
            print(f"  {line}")
    return 1 if problems else 0
