"""The command line. Only the command that runs is imported; `--help` and `list` answer without JAX."""

import gc
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from baddr.cli.help import COMMANDS, HELP, overview
from baddr.errors import UserError, nearest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit with its code."""
    gc.set_threshold(100_000)  # JAX makes many objects that stay: looking through them took half a second
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in HELP:
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
