"""What `belief` and `plan` share: the belief after a history."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from baddr.errors import UserError
from baddr.lab import catalog
from baddr.lab.experiment import Experiment


def with_setting(experiment: Experiment[Any], group: str, setting: str, value: int | None) -> Experiment[Any]:
    """The experiment with one setting changed, where a value is given."""
    if value is None:
        return experiment
    return replace(experiment, **{group: replace(getattr(experiment, group), **{setting: value})})


def after_history(experiment: Experiment[Any], history: Path | None, device: str) -> Any:
    """The key for what follows, the agent, the domain, and the belief after the history."""
    if history is None:
        raise UserError("Give the history with --history FILE.")
    catalog.nearest("agent", experiment.agent, catalog.AGENTS)
    experiment.check()
    from baddr.lab.device import prepare

    prepare(device)
    import jax.random as jr

    from baddr.core import prng
    from baddr.lab import build
    from baddr.lab.history import read, replay

    domain = build.build_domain(experiment)
    episodes = read(history, domain.pomdp)
    agent = build.build_agent(experiment, domain)
    key_replay, key = jr.split(prng.key(experiment.seed))
    return key, agent, domain, replay(key_replay, agent, domain.pomdp, episodes)
