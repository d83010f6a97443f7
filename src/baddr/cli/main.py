"""The command line. Only the command that runs is imported; `--help` and `list` answer without JAX."""

import gc
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from baddr.errors import UserError
from baddr.lab.catalog import nearest

# Each command: what it takes and what it does. Its file is named after it, and has `main(arguments)`.
COMMANDS = {
    "run": ("DOMAIN", "learn and act for some runs and episodes; leaves results and a learning curve"),
    "resume": ("DIR", "continue an interrupted run or reproduce, or extend a finished run"),
    "sweep": ("DOMAIN", "a run for every combination of some settings' values; a table and a picture"),
    "plot": ("DIR...", "learning curves of several results in one picture"),
    "compare": ("DIR...", "several results in numbers, with their uncertainty"),
    "reproduce": ("FIGURE", "a figure or table of the paper, or all, with data, verdicts and a report"),
    "belief": ("DOMAIN", "the belief after a given history, as JSON"),
    "plan": ("DOMAIN", "the search after a given history, as JSON"),
    "check": ("DOMAIN", "whether a domain keeps its promises: shapes, ranges, probabilities"),
    "list": ("", "domains, agents, presets and figures"),
    "cache": ("", "trained priors and compiled code on disk"),
}

OVERVIEW = """\
usage: baddr COMMAND [options]

Bayesian reinforcement learning in POMDPs.

{commands}

DOMAIN is a name that `baddr list` shows, or a file: FILE.pomdp, or FILE.py:FUNCTION with a function that
returns a Domain (make_domain where none is named).

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
    lines = [f"  {name} {takes}".ljust(20) + does for name, (takes, does) in COMMANDS.items()]
    return OVERVIEW.format(commands="\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit with its code."""
    gc.set_threshold(100_000)  # JAX makes many objects that stay: looking through them took half a second
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "--help-all"):
        print(overview(), end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        from baddr import __version__

        print(__version__)
        sys.exit(0)
    try:
        sys.exit(_run(*arguments))
    except KeyboardInterrupt:
        print("baddr: interrupted.", file=sys.stderr, flush=True)
        if any(thread.name.startswith("compiling") for thread in threading.enumerate()):
            os._exit(130)  # Python would wait for XLA, which nothing stops
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if "--debug" in arguments:
            raise
        sys.exit(_tell(error))


def _run(command: str, *arguments: str) -> int:
    """The command's exit code."""
    nearest("command", command, COMMANDS)
    with warnings.catch_warnings():
        warnings.filterwarnings("always", module="baddr")
        warnings.showwarning = _warnings_once()
        return importlib.import_module(f"baddr.cli.{command}").main(arguments)


def _tell(error: Exception) -> int:
    """Say what is wrong, in a line; the exit code."""
    if isinstance(error, UserError):
        print(f"baddr: {error}", file=sys.stderr)
        return 2
    print(f"baddr: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
    return 1


def _warnings_once() -> Callable[..., None]:
    """Shows each warning once, in a line, however often the command meets it."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            print(f"baddr: warning: {message}", file=sys.stderr)

    return show
