"""The command line. Only the command that runs is imported; `--help` and `list` answer without JAX."""

import gc
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from baddr.cli.help import COMMANDS, HELP, overview
from baddr.errors import UserError, nearest
from baddr.lab.output import sentence, visible_output

INTERRUPTED = 130  # the exit code


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit with its code."""
    gc.set_threshold(100_000)  # JAX makes many objects that stay: looking through them took half a second
    leave = sys.exit
    if arguments is None:  # a process of its own
        sys.unraisablehook, arguments, leave = _interrupt_again, sys.argv[1:], _leave
    if not arguments or arguments[0] in HELP:
        print(overview(), end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        from baddr import __version__

        print(__version__)
        sys.exit(0)
    try:
        with visible_output():
            code = _run(*arguments)
        sys.exit(code)
    except KeyboardInterrupt:
        print("baddr: interrupted.", file=sys.stderr)
        leave(INTERRUPTED)
    except SystemExit as exit:
        leave(exit.code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if "--debug" in arguments:
            raise
        sys.exit(_tell(error))


def _leave(code: Any) -> NoReturn:
    """Exit. After an interruption Python would wait for XLA, which nothing stops."""
    if code == INTERRUPTED and any(thread.name.startswith("compiling") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _interrupt_again(unraisable: Any) -> None:
    """Python drops what is raised in a destructor or in a callback of the garbage collection. A Ctrl-C that
    arrives there is sent once more, a moment later, so that it is not lost."""
    if unraisable.exc_type is KeyboardInterrupt:
        main = threading.main_thread().ident or 0
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _run(command: str, *arguments: str) -> int:
    """The command's exit code."""
    nearest("command", command, COMMANDS)
    with warnings.catch_warnings():
        warnings.filterwarnings("always", module="baddr")
        warnings.showwarning = _warnings_once()
        return importlib.import_module(f"baddr.cli.{command}").main(arguments)


def _tell(error: Exception) -> int:
    """Say what is wrong, in a line; the exit code."""
    said, code = _sentence(error)
    with visible_output():
        print(f"baddr: {sentence(said)}", file=sys.stderr)
    return code


def _sentence(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, OSError) and error.filename is not None:
        return f"Cannot use {os.fsdecode(error.filename)}: {(error.strerror or str(error)).lower()}.", 2
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"There is not enough memory: {str(error) or 'choose smaller sizes'}", 2
    return f"{type(error).__name__}: {error} (--debug shows the traceback)", 1


def _warnings_once() -> Callable[..., None]:
    """Shows each warning once, in a line, however often the command meets it."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            print(f"baddr: warning: {sentence(message)}", file=sys.stderr)

    return show
