"""What `belief` and `plan` share: the belief after a history."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from baddr.agents.kinds import kind_with, with_kind
from baddr.errors import UserError
from baddr.lab.experiment import AnyExperiment


def with_setting(experiment: AnyExperiment, group: str, setting: str, value: int | None) -> AnyExperiment:
    """The experiment with one setting changed, where a value is given."""
    if value is None:
        return experiment
    values = experiment.settings.groups().get(group)
    if values is not None and (kind := kind_with(group, frozenset({setting}), values)):
        experiment = replace(experiment, settings=with_kind(experiment.settings, group, kind))
        values = experiment.settings.groups()[group]
    if values is None or not hasattr(values, setting):
        flag = f"--{group}.{setting.replace('_', '-')}"
        raise UserError(f"Agent {experiment.agent} has no {flag}; choose another agent with --agent.")
    return experiment.changed(**{group: replace(values, **{setting: value})})


def refuse_prior(experiment: AnyExperiment, command: str) -> None:
    """Of commands that start from the agent's own prior."""
    if experiment.prior:
        raise UserError(
            f"`baddr {command}` starts from the agent's own prior: leave out --prior, which `baddr run` has."
        )


def after_history(experiment: AnyExperiment, history: Path | None, device: str) -> Any:
    """The key for what follows, the agent, the domain, and the belief after the history."""
    if history is None:
        raise UserError("Give the history with --history FILE.")
    experiment.check()
    from baddr.lab.device import prepare

    prepare(device)
    import jax.random as jr

    from baddr import prng
    from baddr.lab import build
    from baddr.lab.history import read, replay

    domain = build.build_domain(experiment)
    episodes = read(history, domain.pomdp)
    agent = build.build_agent(experiment, domain)
    key_replay, key = jr.split(prng.key(experiment.seed))
    return key, agent, domain, replay(key_replay, agent, domain.pomdp, episodes)
