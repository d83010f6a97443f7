"""From settings to a domain and an agent's life."""

from typing import Any

from baddr.agents.base import Built, Request
from baddr.agents.life import BayesianLife
from baddr.agents.needs import keeps_no_belief
from baddr.core.agent import Agent
from baddr.domains.catalog import entry, is_python, short_name
from baddr.domains.domain import Domain
from baddr.domains.finite import refuse_rewards
from baddr.fast.backend import device_memory
from baddr.lab.experiment import AnyExperiment
from baddr.lab.limits import refuse_memory


def build_domain(experiment: AnyExperiment) -> Domain:
    """The experiment's domain; a user's own is looked at before anything long starts."""
    domain = entry(experiment.name).make_domain(experiment.domain)
    if is_python(experiment.name):
        from baddr.domains.check import refuse_malformed  # takes a while to import; other domains need none

        refuse_malformed(domain)
    if (R := getattr(domain.pomdp, "R", None)) is not None:
        refuse_rewards(R, short_name(experiment.name))
    return domain


def build(experiment: AnyExperiment, domain: Domain) -> Built:
    """The agent's life, whose networks are shapes until it is trained."""
    trace = experiment.trace >= 0
    return experiment.settings.build(Request(domain, experiment.seed, trace, experiment.domain))


def build_agent(experiment: AnyExperiment, domain: Domain) -> Agent:
    """An agent with a belief, its prior trained (or found) and tested."""
    built = build(experiment, domain)
    bytes_of = lambda other: build(other, domain).life.bytes_per_run()
    refuse_memory(experiment, bytes_of, device_memory(), 1)
    life, test = built.train(None)
    if not isinstance(life, BayesianLife):
        raise keeps_no_belief(experiment.agent)
    if test is not None:
        test()
    return life.agent


def seconds(experiment: AnyExperiment, horizon: int, platform: str) -> float:
    """About what all runs take, one after the other."""
    settings: Any = experiment.settings
    steps = experiment.runs * experiment.episodes * min(5, horizon)
    return steps * settings.seconds_per_step(platform)
