"""From settings to a domain and an agent."""

import importlib
from dataclasses import asdict
from typing import Any

import jax
from jaxtyping import Array, Key

from baddr.agent import Agent
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.experiments.catalog import DOMAINS
from baddr.experiments.experiment import Experiment
from baddr.gba_pomdp import GBAPOMDP
from baddr.particles import Particles
from baddr.posteriors import Dirichlet, Known, Posterior


def build_domain(experiment: Experiment[Any]) -> Domain:
    module = importlib.import_module(DOMAINS[experiment.name].module)
    return module.make_domain(**asdict(experiment.domain))


def build_posterior(experiment: Experiment[Any], domain: Domain) -> Posterior:
    pomdp = domain.pomdp
    if experiment.agent in ("pomcp", "random"):
        return Known(pomdp.dynamics)  # type: ignore[attr-defined]
    if domain.counts is None:
        raise UserError(f"{domain.name} has no tabular prior, which agent {experiment.agent} needs.")
    return Dirichlet(domain.counts, pomdp.state_sizes, pomdp.observation_sizes)


def build_agent(experiment: Experiment[Any], domain: Domain) -> Agent:
    posterior = build_posterior(experiment, domain)
    planner = None if experiment.agent == "random" else experiment.planner
    learns = not isinstance(posterior, Known)
    summary = ModelSummary(domain, posterior) if learns and domain.describe else None
    return Agent(GBAPOMDP(domain.pomdp, posterior), experiment.filter, planner, summary=summary)


class ModelSummary:
    """The columns about the model belief."""

    def __init__(self, domain: Domain, posterior: Posterior):
        self.domain, self.posterior = domain, posterior

    def __call__(self, key: Key[Array, ""], belief: Particles) -> dict[str, Array]:
        assert self.domain.describe is not None
        return self.domain.describe(key, self.posterior, belief)


def bytes_per_run(experiment: Experiment[Any], agent: Agent) -> int:
    """Device memory of one run: its belief (twice: before and after an update) and its search tree."""
    size = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
    key = jax.eval_shape(lambda: jax.random.key(0))
    belief = size(jax.eval_shape(agent.initial_belief, key))
    if agent.planner is None:
        return 2 * belief
    pomdp, simulations = agent.gba, agent.planner.num_simulations
    tree = 4 * (simulations + 1) * pomdp.num_actions * (2 + pomdp.num_observations)
    root = size(jax.eval_shape(lambda k: agent.gba.sample_root(k, agent.initial_belief(k)), key))
    return 2 * belief + tree + simulations * root
