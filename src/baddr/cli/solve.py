"""`baddr solve DOMAIN`."""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from tyro.conf import arg

from baddr.cli.options import Debug, Device
from baddr.cli.parse import check_same_file, domain_first, parse
from baddr.domains.cassandra.settings import CassandraSettings
from baddr.domains.catalog import Entry, short_name
from baddr.domains.catalog import entry as entry_of
from baddr.files.settings import refuse
from baddr.lab.limits import domain_problems
from baddr.lab.output import in_line, unescaped

E = TypeVar("E")


@dataclass(frozen=True)
class Solve(Generic[E]):
    """Bound the optimal value of the true model from its start, and find a policy.

    A .pomdp file is solved for an infinite, discounted horizon, or for its horizon if its discount is 1.
    Any other domain is solved for its own horizon. The bounds are valid whenever the solver stops. The last
    line of stdout is JSON: {"lower": l, "upper": u, "seconds": t}.

    examples:
      baddr solve tiger
      baddr solve examples/tiger.pomdp --precision 0.01
      baddr solve collision-avoidance --domain.size 5 --out policy.npz
      baddr solve road-racing --seconds 20
    """

    domain: E
    precision: float = 1e-3
    """Stop when the bounds are this close."""
    seconds: float = 60.0
    """Stop after this time, even if the bounds are further apart."""
    out: Annotated[Path | None, arg(metavar="FILE.npz")] = None
    """Write the policy to this file: NumPy arrays of vectors, each with its action and its steps left."""
    device: Device = "cpu"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    name, flags = domain_first("solve", arguments)
    entry = entry_of(name)
    kind = Solve[type(entry.settings)]  # type: ignore[misc]
    options: Solve[Any] = parse(kind, f"solve {name}", flags, Solve(entry.settings))
    check_same_file(name, entry.settings, options.domain)
    _check(options)
    from baddr.solve.point_based import Budget, solve

    model, horizon = _model(entry, options)
    _tell_sizes(short_name(name), model, horizon)
    if isinstance(options.domain, CassandraSettings):
        print(_meaning(options.domain.horizon, model.discount))
    solution = solve(model, Budget(options.precision, options.seconds), horizon, _shown())
    _tell_found(solution, options)
    if options.out is not None:
        from baddr.solve.policy import save

        save(solution, options.out, {"domain": name, "settings": asdict(options.domain)})
        print(f"policy: {len(solution.alphas)} vectors, {in_line(options.out)}")
    print(json.dumps({"lower": solution.lower, "upper": solution.upper, "seconds": solution.seconds}))
    return 0


def _check(options: Solve[Any]) -> None:
    found = domain_problems(options.domain)
    if not options.precision >= 0:
        found.append("--precision must not be negative")
    if not options.seconds > 0:
        found.append("--seconds must be positive")
    if options.out is not None and options.out.suffix != ".npz":
        found.append(f"--out must end in .npz; {options.out.name!r} does not")
    refuse(found)


def _model(entry: Entry, options: Solve[Any]) -> Any:
    """The tables and the horizon; a file needs no JAX."""
    if isinstance(options.domain, CassandraSettings):
        from baddr.domains.cassandra.sparse import file_model, horizon_to_solve

        model = file_model(options.domain)
        return model, horizon_to_solve(options.domain, model)
    from baddr.lab.device import prepare

    prepare(options.device)
    from baddr.domains.check import refuse_malformed
    from baddr.domains.solving import true_model

    domain = entry.make_domain(options.domain)
    if entry.source is not None:
        refuse_malformed(domain)
    return true_model(domain)


def _tell_sizes(name: str, model: Any, horizon: int | None) -> None:
    sizes = f"{model.num_states:,} states, {model.num_actions} actions, {model.num_observations:,}"
    print(f"{name}: {sizes} observations, {'no horizon' if horizon is None else f'{horizon} steps'}")
    if not model.start_is_exact:
        print("the distribution of the first state is estimated from draws: give the POMDP a `start`")


def _meaning(horizon: int, discount: float) -> str:
    """Which value was found: a file has no horizon, but its episodes do."""
    if discount < 1:
        return (
            f"this is the value without a horizon, discounted by {discount:g}; episodes of {horizon} steps "
            "(--domain.horizon) have another value, which --reference optimum shows"
        )
    return (
        f"this is the value of episodes of {horizon} steps (--domain.horizon): with discount 1, the value "
        "without a horizon may be infinite"
    )


def _tell_found(solution: Any, options: Solve[Any]) -> None:
    took = f"{solution.seconds:.2f} s, {solution.trials} trial{'s' * (solution.trials != 1)}"
    digits = max(2, 1 - math.floor(math.log10(max(1e-5, solution.gap))))
    bounds = f"between {solution.lower:.{digits}f} and {solution.upper:.{digits}f}"
    print(f"the optimal value is {bounds} ({took})")
    if solution.gap > options.precision:
        full = solution.seconds < options.seconds
        why = "the solver has no room for more vectors" if full else "more --seconds would narrow it"
        print(f"the gap is above --precision {options.precision:g}; {why}")


def _shown(seconds: float = 10.0) -> Callable[[int, float, float, float], None]:
    """The bounds so far: a line that changes on a terminal, a plain line now and then otherwise."""
    live, last = sys.stderr.isatty(), [time.monotonic()]

    def show(trials: int, lower: float, upper: float, spent: float) -> None:
        now = time.monotonic()
        if now - last[0] < (0.2 if live else seconds):
            return
        last[0] = now
        said = f"{trials} trials, {spent:.0f} s: between {lower:.6g} and {upper:.6g}"
        print(
            f"\r{said:79s}" if live else said,
            end="\r" if live else "\n",
            file=unescaped(sys.stderr),
            flush=True,
        )

    return show
