"""`baddr explore DOMAIN|DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from baddr.cli.history import refuse_prior
from baddr.cli.options import Debug, Device, Flat, Folders, Trust
from baddr.cli.parse import parse, parse_with_domain
from baddr.errors import UserError

E = TypeVar("E")
DEFAULT = "ba-pomcp"  # its belief is a table that can be read, and it starts in seconds


@dataclass(frozen=True)
class Explore(Generic[E]):
    """Look inside an agent in the browser: step through an episode in both directions, or act yourself.

    The page shows the belief over states and over models, the planner's values with their bounds, its tree
    node by node, and the belief after each possible action and observation. For a result folder, it shows the
    learning curves as they grow and the steps of the trace (`baddr run --trace 0`). The default agent is
    ba-pomcp. The page can be opened only on this machine, and only with the token in its address. Ctrl-C ends
    it.

    examples:
      baddr explore tiger
      baddr explore tiger --agent baddr --port 8000 --no-browser
      baddr explore results/tiger-baddr-1
    """

    experiment: Flat[E]
    port: int = 0
    """The port of the page. 0: any that is free."""
    no_browser: bool = False
    """Print the address and open no browser."""
    device: Device = "cpu"
    debug: Debug = False


@dataclass(frozen=True)
class Look:
    """The same options, for a result folder."""

    dirs: Folders
    port: int = 0
    """The port of the page. 0: any that is free."""
    no_browser: bool = False
    """Print the address and open no browser."""
    trust: Trust = False
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    if arguments and Path(arguments[0]).is_dir():
        return of_results(arguments)
    named = any(x == "--agent" or x.startswith(("--agent=", "--posterior", "--config")) for x in arguments)
    default = [] if named or not arguments or arguments[0].startswith("-") else ["--agent", DEFAULT]
    options = parse_with_domain(Explore, "explore", [*arguments, *default], Explore)
    _check(options.port)
    refuse_prior(options.experiment, "explore")
    from baddr.lab.device import prepare

    prepare(options.device)
    from baddr.lab.build import build_domain

    domain = build_domain(options.experiment)
    if default and domain.counts is None:  # no table fits
        options = parse_with_domain(Explore, "explore", arguments, Explore)
    options.experiment.check()
    start, names = _sessions(options.experiment, domain)
    return show(options.experiment.title, names, start, None, options)


def of_results(arguments: Sequence[str]) -> int:
    from baddr.lab.explore.folder import Results

    options: Look = parse(Look, "explore", arguments)
    _check(options.port)
    if len(options.dirs) != 1:
        raise UserError("Name one result folder: `baddr explore DIR`.")
    results = Results(options.dirs[0], options.trust)
    return show(results.experiment.title, results.names, None, results, options)


def _check(port: int) -> None:
    if not 0 <= port < 65536:
        raise UserError("--port must lie between 0 and 65535.")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UserError("`baddr explore` needs the extra packages of pip install 'baddr[explore]'.") from None


def _sessions(experiment: Any, domain: Any) -> Any:
    """What starts a session, and the names of what it shows. A first session compiles what readers do."""
    from baddr.lab.build import build_agent
    from baddr.lab.explore.session import Inside, Session

    inside = Inside(build_agent(experiment, domain), domain)
    first = Session(inside)
    first.act(0)
    first.next_episode()
    first.view()
    return lambda seed: Session(inside, (experiment.seed + seed) % 2**32), inside.names


def show(title: str, names: Any, start: Any, results: Any, options: Any) -> int:
    from baddr.lab.explore.server import Explorer, serve

    def ready(address: str) -> None:
        print(f"{title}: {address}", flush=True)
        print("Ctrl-C ends it.", flush=True)
        if not options.no_browser:
            import webbrowser

            webbrowser.open(address)

    serve(Explorer(title, names, start, results), options.port, ready)
    return 0
