"""What `--help` prints: the overview of commands, and a command's options with the defaults that hold.

The options and their flags are tyro's; their texts are the fields' docstrings.
"""

import ast
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from baddr.agents import AGENTS
from baddr.agents.kinds import KINDS, agent_class, kind_of

# Each command: what it takes and what it does. Its file is named after it, and has `main(arguments)`.
COMMANDS = {
    "run": ("DOMAIN", "learn and act for some runs and episodes; save results and a learning curve"),
    "resume": ("DIR", "continue an interrupted run or reproduce, or extend a finished run"),
    "sweep": ("DOMAIN", "run every combination of some settings' values, and compare the results"),
    "plot": ("DIR...", "draw the learning curves of several results in one picture"),
    "compare": ("DIR...", "compare several results in numbers, with confidence intervals"),
    "reproduce": ("FIGURE...", "reproduce figures or tables of the paper, and judge its claims"),
    "suite": ("", "benchmark agents on domains, with reference lines and a scoreboard"),
    "belief": ("DOMAIN", "print the belief after a given history, as JSON"),
    "plan": ("DOMAIN", "print the values and visits of a search after a given history, as JSON"),
    "explore": ("DOMAIN|DIR", "step through an episode in the browser: belief, models, values, tree"),
    "solve": ("DOMAIN", "bound the optimal value of the true model, and write its policy"),
    "check": ("DOMAIN", "check that a domain is sound: shapes, ranges, probabilities"),
    "list": ("", "list domains, agents, presets and figures"),
    "example": ("[NAME]", "copy an example from the package: a domain, a posterior, a planner"),
    "cache": ("", "show or delete trained priors, solutions and compiled code on disk"),
}
HELP = ("-h", "--help", "--help-all")
WIDTH, LEFT = 98, 34  # of a line, and of the flags in it
FORMS = {"agent": "NAME", "prior": "DIR"}  # what stands for an option's value
WORDS = {int: "N", float: "X", str: "TEXT", Path: "FILE"}  # and otherwise for one of its type
TITLES = {"where": "where runs are computed"}  # of sections, where the name alone says too little
_POSITIONAL = Positional[int].__metadata__[0]  # type: ignore[attr-defined]

# Where nothing is run: by `belief`, `plan` and `explore`.
NO_RUNS = ("--runs", "--episodes", "--chunk-size", "--keep-beliefs", "--trace", "--prior")

OVERVIEW = """\
usage: baddr COMMAND [options]

Bayesian reinforcement learning in POMDPs.

{commands}

DOMAIN is a name from `baddr list` or a file: FILE.pomdp, FILE.pomdpx or FILE.py:FUNCTION. The
function returns a Domain; if none is named, it is make_domain.

examples:
  baddr run tiger
  baddr run tiger --agent pomcp --runs 100 --out results/upper-bound
  baddr plot results/* --out curves.png
  baddr compare results/* --level 2.2
  baddr reproduce a
  baddr COMMAND --help
"""


def overview() -> str:
    """What `baddr --help` prints."""
    lines = [f"  {name} {takes}".ljust(22) + does for name, (takes, does) in COMMANDS.items()]
    return OVERVIEW.format(commands="\n".join(lines))


def agent_help(kind: type, default: Any, everything: bool = False) -> str:
    """A command's options with the settings that the experiment's agent has, or with those of all agents."""
    experiment = default.experiment
    note = (
        f"The defaults in brackets are for agent {experiment.agent} on {experiment.domain.name} with preset "
        f"{experiment.preset}. --agent NAME --help shows the settings of another agent, and --help-all "
        "those of all agents."
    )
    unused = NO_RUNS if kind.__name__ in ("Belief", "Plan", "Explore") else ()
    if everything:
        return command_help(kind, default, unused, note, [*other_groups(experiment)])
    return command_help(kind, default, (*unused, *useless_flags(experiment.settings)), note)


def useless_flags(settings: Any) -> Iterator[str]:
    """What this agent cannot use."""
    if not settings.moves:
        yield from ("--filter.rejuvenate", "--filter.history")
    if not settings.learns:
        yield from ("--prior", "--filter.weight-after-update", "--filter.[no-]learn-terminal")


def other_groups(experiment: Any) -> Iterator[tuple[str, Any]]:
    """The groups of settings that other agents have, each once."""
    told = {*experiment.settings.groups()}
    for name in AGENTS:
        for group, values in agent_class(name)().groups().items():
            if group not in told and is_dataclass(values) and fields(values):
                told.add(group)
                yield group, values


class Option(NamedTuple):
    """A field as the command line has it."""

    section: str
    flag: str  # with its value's form; empty for what stands without a flag
    says: str


def command_help(
    kind: type,
    default: Any,
    hidden: Collection[str] = (),
    note: str = "",
    others: Sequence[tuple[str, Any]] = (),
) -> str:
    """Usage, what the command does, and its options by section; `hidden` sections and flags are left out.

    `kind` is the command's dataclass, and `default` one of its values (or None). `others` are further groups.
    """
    name = kind.__module__.rpartition(".")[2]
    about, _, examples = (inspect.getdoc(kind) or "").partition("\nexamples:\n")
    usage = f"usage: baddr {name} {COMMANDS[name][0]}".rstrip() + " [options]"
    lines = [usage, "", *_paragraphs(about), "", "examples:", *examples.splitlines()]
    shown = [o for o in list_options(kind, default) if not {o.section, o.flag.split()[0]} & {*hidden}]
    shown += [option for name, group in others for option in _walk(type(group), group, f"{name}.", name)]
    for section, options in itertools.groupby(shown, lambda option: option.section):
        lines += ["", f"{TITLES.get(section, section)}:", *itertools.chain(*map(_option_lines, options))]
    lines += ["", *_paragraphs(note)] if note else []
    return "\n".join(lines) + "\n"


def list_options(kind: type, default: Any) -> list[Option]:
    """In the order of their sections: a flat group's, the command's own, those of settings."""
    helps = [Option("options", "-h, --help", "Show this help.")]
    if hasattr(default, "experiment"):
        helps.append(Option("options", "--help-all", "Show the options of all agents."))
    order = ("arguments", "experiment", "options", "where")
    rank = lambda option: order.index(option.section) if option.section in order else len(order)
    return sorted([*_walk(kind, default, "", "options"), *helps], key=rank)


def _walk(kind: type, value: Any, prefix: str, section: str) -> Iterator[Option]:
    """The fields of a dataclass, and of those that it has for fields."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        here = _default(field) if value is None else getattr(value, field.name)
        hint = hints[field.name]
        extras = hint.__metadata__ if get_origin(hint) is Annotated else ()
        if is_dataclass(here):
            flat = _said(extras, "name") == ""
            if field.name in KINDS and not flat:
                yield _kind_option(field.name, here)
            yield from _walk(type(here), here, prefix if flat else f"{prefix}{field.name}.", field.name)
        else:
            says = _said(extras, "help") or _docs(kind).get(field.name, "")
            says = says.replace("{agents}", ", ".join(AGENTS))
            form = _said(extras, "metavar") or FORMS.get(field.name) or _form(hint)
            if _POSITIONAL in extras:
                yield Option("arguments", form, says)
            else:
                flag = _flag(prefix, field.name.replace("_", "-"), form, here)
                yield Option(section, flag, f"{says}{_shown(here)}".strip())


def _kind_option(group: str, value: Any) -> Option:
    """The flag that chooses between kinds of a group."""
    names = ", ".join(KINDS[group])
    which = f"{names} or FILE.py:NAME" if names else "A posterior of your own"
    flag = "--posterior FILE.py:NAME" if group == "posterior" else f"--{group}.kind KIND"
    return Option(group, flag, f"{which}.{_shown(kind_of(group, value))}")


def _said(extras: Sequence[Any], what: str) -> str | None:
    """What tyro is told about a field, beside its type."""
    return next((x for extra in extras if (x := getattr(extra, what, None)) is not None), None)


def _flag(prefix: str, name: str, form: str, default: Any) -> str:
    if form:
        return f"--{prefix}{name} {form}"
    return f"--{prefix}[no-]{name}" if default else f"--{prefix}{name}"


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _shown(default: Any) -> str:
    """A default after its option's text; nothing where there is none."""
    if default is None or default is False or default in ("", ()):
        return ""
    values = default if isinstance(default, tuple) else (default,)
    words = ("yes" if x is True else f"{x:g}" if isinstance(x, float) else str(x) for x in values)
    return f" [{' '.join(words)}]"


def _form(hint: Any) -> str:
    """What stands for a value of this type; nothing for a switch."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _form(inner[0])
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin in (Union, types.UnionType):
        forms = [_form(kind) for kind in inner if kind is not type(None)]
        return max(forms, key=len)
    if origin is tuple:
        return f"{_form(inner[0])}..." if inner else "VALUE..."
    if hint is bool:
        return ""
    return WORDS.get(hint, "VALUE")


@functools.cache
def _docs(kind: type) -> dict[str, str]:
    """The docstring below each field of a class, and of the classes that it extends."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError):  # made while the program runs, or built in
            continue
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(ast.literal_eval(text.value).split())  # type: ignore[union-attr]
    return found


def _paragraphs(text: str) -> list[str]:
    blocks = [" ".join(block.split()) for block in text.strip().split("\n\n")]
    return "\n\n".join(textwrap.fill(block, WIDTH, break_on_hyphens=False) for block in blocks).splitlines()


def _option_lines(option: Option) -> list[str]:
    """The flag, and the text beside it or below it."""
    text = textwrap.wrap(option.says, WIDTH - LEFT, break_on_hyphens=False) or [""]
    flag = f"  {option.flag}"
    if len(flag) + 2 <= LEFT:
        return [f"{flag:{LEFT}s}{text[0]}".rstrip(), *(f"{'':{LEFT}s}{line}" for line in text[1:])]
    return [flag, *(f"{'':{LEFT}s}{line}" for line in text)]
