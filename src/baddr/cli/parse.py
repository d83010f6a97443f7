"""From words to options: tyro, its complaints as sentences, and DOMAIN before the flags."""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin

import tyro

from baddr.agents.kinds import KINDS, kinds_in
from baddr.cli.help import HELP, agent_help, command_help
from baddr.domains.catalog import DOMAINS, entry, is_python
from baddr.errors import UserError
from baddr.files.toml import merge, read_toml
from baddr.lab.experiment import AnyExperiment, asked_in, experiment_type, from_toml, preset

E = TypeVar("E")


def parse(
    options: Any, command: str, arguments: Sequence[str], default: Any = None, others: bool = False
) -> Any:
    """tyro, with its complaint as one sentence; `others` lets arguments that are not options' pass."""
    if asks_for_help(arguments):
        print(command_help(get_origin(options) or options, default), end="")
        sys.exit(0)
    given = {} if default is None else {"default": default}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                options, prog=f"baddr {command}", args=list(arguments), return_unknown_args=others, **given
            )
            return parsed[0] if others else parsed
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
        raise UserError(_sentence(complaint.getvalue(), command)) from None


def _sentence(box: str, command: str) -> str:
    """What a box of tyro's says, without its frame and its hints on --help."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip(" │╭╮╰╯─") for line in text.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("For full helptext")]
    said = " ".join(lines) or "The command line could not be read"
    said = re.sub(r" Perhaps you meant: (--\S+).*", r"; perhaps you meant \1", said)
    said = re.sub(r" Argument helptext: .*|\s*\(default: [^)]*\)|\s*\(required\)", "", said)
    said = re.sub(r"(Missing from [^:]*: --\S+).*", r"\1", said).rstrip(".")
    return f"{said}. (`baddr {command} --help` lists the options.)"


def asks_for_help(arguments: Sequence[str]) -> bool:
    return not set(HELP).isdisjoint(arguments)


def flag_value(arguments: Sequence[str], name: str, default: str) -> str:
    """A flag's value before the command line is parsed: it decides what the defaults are. The last one
    counts, as for all flags."""
    value = default
    for argument, after in zip(arguments, [*arguments[1:], None], strict=False):
        if argument == f"--{name}" and after is not None:
            value = after
        elif argument.startswith(f"--{name}="):
            value = argument.partition("=")[2]
    return value


def parse_with_domain(
    options: Any, command: str, arguments: Sequence[str], default: Callable[[Any], Any]
) -> Any:
    """DOMAIN and flags. Later wins: preset, config file, flags."""
    name, flags = domain_first(command, arguments)
    config = flag_value(flags, "config", "")
    domain = _domain_settings(command, name, flags, config)
    start, flags = _start(name, flags, config, domain)
    if asks_for_help(flags):
        print(agent_help(options, default(start), everything="--help-all" in flags), end="")
        sys.exit(0)
    return parse(options[experiment_type(start)], f"{command} {name}", flags, default(start))


def _start(name: str, flags: Sequence[str], config: str, domain: Any) -> tuple[AnyExperiment, Sequence[str]]:
    """What flags change: the preset of the agent, with the kinds of planner, filter and posterior that are
    asked for, and the config file's values. And the flags that are left."""
    values = read_toml(Path(config)) if config else {}
    kinds, flags = kinds_of(flags)
    agent = flag_value(flags, "agent", values.get("agent", "own" if "posterior" in kinds else "baddr"))
    prepare_for([*kinds.values(), *kinds_in(values).values()], flag_value(flags, "device", "auto"))
    asked = {**asked_in(values), **{group: names for group, names in settings_in(flags).items()}}
    asked |= {**kinds_in(values), **kinds}
    start = preset(name, agent, flag_value(flags, "preset", values.get("preset", "quick")), domain, asked)
    return (from_toml(Path(config), start) if config else start), flags


def settings_in(flags: Sequence[str]) -> dict[str, frozenset[str]]:
    """The names of settings that flags give, of the groups of which there are several kinds."""
    found: dict[str, set[str]] = {}
    for flag in flags:
        group, dot, name = flag.removeprefix("--").partition("=")[0].partition(".")
        if flag.startswith("--") and dot and group in KINDS:
            found.setdefault(group, set()).add(name.removeprefix("no-").replace("-", "_"))
    return {group: frozenset(names) for group, names in found.items()}


def kinds_of(flags: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """The kinds that --planner.kind, --filter.kind and --posterior name, and the other flags."""
    names = {"--planner.kind": "planner", "--filter.kind": "filter", "--posterior": "posterior"}
    kinds, others, words = {}, [], iter(flags)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag not in names:
            others.append(word)
        elif not (value := value if equals else next(words, "")):
            raise UserError(f"{flag} needs a value.")
        else:
            kinds[names[flag]] = value
    return kinds, others


def domain_first(command: str, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """DOMAIN and the flags after it; `--help` alone is answered for tiger."""
    if not arguments or arguments[0].startswith("-"):
        if not asks_for_help(arguments):
            known = ", ".join(DOMAINS)
            raise UserError(
                f"Name a domain first: `baddr {command} DOMAIN ...`; known: {known}; or "
                "a file (.pomdp, .pomdpx, .py)."
            )
        arguments = ["tiger", *arguments]
    name, *flags = arguments
    prepare_for([name], flag_value(flags, "device", "auto"))
    return name, flags


def prepare_for(names: Sequence[str], device: str) -> None:
    """A user's own file imports JAX, and may use it at once: its device is chosen before."""
    if any(map(is_python, names)):
        from baddr.lab.device import prepare

        prepare(device)


@dataclass(frozen=True)
class _Domain(Generic[E]):
    domain: E


def _domain_settings(command: str, name: str, flags: Sequence[str], config: str) -> Any:
    """The domain's settings before the rest is parsed: a preset depends on the domain's size."""
    settings = start = entry(name).settings
    if config:
        table = {name: value for name, value in read_toml(Path(config)).items() if name == "domain"}
        settings = merge(_Domain(settings), table, config).domain
    flags = [flag for flag in flags if flag not in HELP]
    if any(flag.startswith("--domain.") for flag in flags):
        kind = _Domain[type(settings)]  # type: ignore[misc]
        settings = parse(kind, f"{command} {name}", flags, _Domain(settings), others=True).domain
    check_same_file(name, start, settings)
    return settings


def check_same_file(name: str, start: Any, settings: Any) -> None:
    """Refuse a path among the settings that is not the file that was named as the DOMAIN."""
    if name != "cassandra" and settings.name != start.name:
        raise UserError(f"The domain is {start.name}, but domain.path names another file: {settings.name}.")
