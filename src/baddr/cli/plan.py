"""`baddr plan DOMAIN`."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from baddr.agents.needs import does_not_plan
from baddr.cli.history import after_history, refuse_prior, with_setting
from baddr.cli.options import Debug, Device, Flat, History
from baddr.cli.parse import parse_with_domain

E = TypeVar("E")


@dataclass(frozen=True)
class Plan(Generic[E]):
    """Print the root of the search after a given history as JSON.

    The output has the Q value and the visits of each action, and the chosen action. A belief tree's Q are
    lower bounds; it also prints the upper bounds Q_upper, and the gap between the bounds on the value.

    examples:
      baddr plan tiger --agent ba-pomcp --history history.json --simulations 4096
    """

    experiment: Flat[E]
    history: History = None
    simulations: int | None = None
    """Number of simulations; the same as --planner.num-simulations."""
    device: Device = "auto"
    debug: Debug = False


def main(arguments: Sequence[str]) -> int:
    options = parse_with_domain(Plan, "plan", arguments, Plan)
    if options.simulations is not None and "planner" in options.experiment.settings.groups():
        arguments = [re.sub("^--simulations(?==|$)", "--planner.num-simulations", x) for x in arguments]
        options = parse_with_domain(Plan, "plan", arguments, Plan)  # a planner that has simulations
    experiment = with_setting(options.experiment, "planner", "num_simulations", options.simulations)
    if experiment.agent == "random":
        raise does_not_plan(experiment.agent)
    refuse_prior(experiment, "plan")
    key, agent, domain, after = after_history(experiment, options.history, options.device)
    from baddr.lab.history import plan_json

    print(json.dumps(plan_json(key, agent, domain.pomdp, after)))
    return 0
