"""From settings to a domain and an agent."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from baddr.agents.learners import A2C
from baddr.agents.learners import start as start_learners
from baddr.agents.needs import keeps_no_belief, lacks
from baddr.core import prng
from baddr.core.agent import Agent
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.fast.pretrain import (
    Fit,
    Progress,
    cached_prior,
    measure_fit,
    prior_settings,
    train,
    uniform_states,
)
from baddr.files import machine
from baddr.lab.catalog import LEARNERS, NETWORK_AGENTS, entry, is_python, nearest
from baddr.lab.experiment import Experiment
from baddr.planners.children import no_children
from baddr.posteriors import Architecture, Dirichlet, Dropout, Factored, Frozen, Known, Partial, Posterior
from baddr.posteriors.factored import num_counts, particle_bytes

# How well the prior's networks fit: found on disk or measured now, which takes seconds.
Test = Callable[[], Fit]
PRIOR_STREAM = 2**32 - 1  # of random numbers, apart from every run's


def build_domain(experiment: Experiment[Any]) -> Domain:
    """The experiment's domain; a user's own is looked at before anything long begins."""
    domain = entry(experiment.name).make_domain(experiment.domain)
    if is_python(experiment.name):
        from baddr.domains.check import (
            refuse_malformed,  # takes a while to import, and other domains need none
        )

        refuse_malformed(domain)
    return domain


def build_posterior(
    experiment: Experiment[Any], domain: Domain, progress: Progress | None = None, *, trained: bool = True
) -> tuple[Posterior, Test | None]:
    """The agent's posterior, and the test of its networks where it has some.

    Where it is not `trained` the weights of networks are shapes: enough to size an experiment and compile it.
    """
    pomdp = domain.pomdp
    if experiment.agent in LEARNERS:
        raise keeps_no_belief(experiment.agent)
    if experiment.agent in NETWORK_AGENTS:
        posterior, test = build_dropout(experiment, domain, progress, trained=trained)
        return (Frozen(posterior) if experiment.agent == "filtering" else posterior), test
    if experiment.agent in ("pomcp", "random"):
        return Known(pomdp.dynamics), None  # type: ignore[attr-defined]
    if experiment.agent == "fba-pomcp":
        return build_factored(experiment, domain), None
    if domain.counts is None:
        T, O = (pomdp.num_states * pomdp.num_actions * n for n in (pomdp.num_states, pomdp.num_observations))
        size = f"tables of T and O would have {T:,} and {O:,} counts a particle"
        raise lacks(domain, experiment.agent, "counts", size)
    return Dirichlet(domain.counts, pomdp.state_sizes, pomdp.observation_sizes), None


def build_factored(experiment: Experiment[Any], domain: Domain) -> Factored:
    """The Bayes network with the chosen structure; one that cannot fit is refused before it is made."""
    settings, n = experiment.factored, experiment.filter.num_particles
    if not domain.graphs:
        raise lacks(domain, experiment.agent, "graphs")
    graph = domain.graphs[nearest("graph", settings.graph, domain.graphs)]
    size = particle_bytes(graph, settings.structure)
    memory = device_memory(jax.devices()[0])
    if 2 * n * size > memory:  # the belief before an update and after it
        raise UserError(
            f"Graph {settings.graph!r} of {domain.name} has {num_counts(graph, settings.structure):,} counts "
            f"a particle, {size / 2**30:,.1f} GiB: two beliefs of {n:,} particles need "
            f"{2 * n * size / 2**30:,.0f} GiB, and this device has {memory / 2**30:,.0f} GiB."
        )
    expected = settings.model == "expected"
    return Factored(graph, settings.structure, settings.edge_probability, expected)


def device_memory(device: Any) -> int:
    if device.platform == "cpu":
        return machine.memory()
    return (device.memory_stats() or {}).get("bytes_limit", 8 << 30)


def build_dropout(
    experiment: Experiment[Any], domain: Domain, progress: Progress | None = None, *, trained: bool = True
) -> tuple[Posterior, Test | None]:
    """The networks of Section 4.2, from the cache or trained now, and the half of D that is given.

    One network learns the expected model; several learn a simulator each, as equal members would leave
    nothing to filter.
    """
    pomdp, network, settings = domain.pomdp, experiment.network, experiment.pretrain
    needed = "expected_simulator" if settings.num_networks == 1 else "sample_simulator"
    simulators = getattr(domain, needed)
    if simulators is None:
        alone = "--pretrain.num-networks 1 needs none" if domain.expected_simulator is not None else ""
        raise lacks(domain, experiment.agent, needed, alone)
    sizes = pomdp.state_sizes, pomdp.num_actions, pomdp.observation_sizes
    architecture = Architecture(network, *sizes, domain.learned)
    sample_state = uniform_states(pomdp.state_sizes, domain.is_legal)

    def train_now() -> Dropout:
        key = _prior_key(experiment.seed)
        return train(key, simulators, architecture, settings, sample_state, progress)

    def test_now(posterior: Dropout) -> Fit:
        key = _prior_key(experiment.seed)
        return measure_fit(key, simulators, posterior, settings, sample_state)

    if trained:
        depends_on = prior_settings(
            domain.name, asdict(experiment.domain), network, settings, experiment.seed
        )
        posterior, fit = cached_prior(depends_on, architecture, train_now, test_now)
        test = partial(_told, fit, settings.max_gap)
    else:
        ensemble = jax.ShapeDtypeStruct(
            (settings.num_networks, sum(map(architecture.num_weights, "TO"))), jnp.float32
        )
        posterior, test = eqx.filter_eval_shape(lambda w: Dropout(w, architecture), ensemble), None
    D = pomdp.dynamics  # type: ignore[attr-defined]
    given = {"TO": posterior, "T": Partial(posterior, D), "O": Partial(D, posterior)}
    return given[domain.learned], test


@partial(jax.jit, static_argnums=0)
def _prior_key(seed: int) -> Key[Array, ""]:
    return jr.fold_in(prng.key(seed), PRIOR_STREAM)


def _told(test: Test, max_gap: float) -> Fit:
    """What the test finds; networks that failed are warned of."""
    fit = test()
    for i in np.flatnonzero(fit.failed):
        warnings.warn(
            f"prior network {i} failed to fit: its cross-entropy is {fit.gap[i]:.3f} nats above the entropy "
            f"of its simulator (bound: pretrain.max-gap {max_gap}).",
            stacklevel=2,
        )
    return fit


def build_agent(experiment: Experiment[Any], domain: Domain, posterior: Posterior | None = None) -> Agent:
    if posterior is None:
        posterior, test = build_posterior(experiment, domain)
        if test is not None:
            test()
    planner = None if experiment.agent == "random" else experiment.planner
    learns = not isinstance(posterior, Known)
    summary = ModelSummary(domain, posterior) if learns and domain.describe else None
    gba, trace = GBAPOMDP(domain.pomdp, posterior), experiment.trace >= 0
    return Agent(gba, experiment.filter, planner, leaf_value=domain.leaf_value, summary=summary, trace=trace)


def with_posterior(agent: Agent, posterior: Posterior) -> Agent:
    """The agent with another posterior of the same kind and shapes."""
    gba = eqx.tree_at(lambda gba: gba.posterior, agent.gba, posterior)
    old = agent.summary
    summary = ModelSummary(old.domain, posterior) if isinstance(old, ModelSummary) else old
    return replace(agent, gba=gba, summary=summary)


def build_learner(experiment: Experiment[Any], domain: Domain) -> A2C:
    """DPFRL, or A2C with a GRU."""
    return A2C(domain.pomdp, experiment.dpfrl, particles=experiment.agent == "dpfrl")


class ModelSummary:
    """The columns about the model belief."""

    def __init__(self, domain: Domain, posterior: Posterior):
        self.domain, self.posterior = domain, posterior

    def __call__(self, key: Key[Array, ""], belief: Particles) -> dict[str, Array]:
        assert self.domain.describe is not None
        return self.domain.describe(key, self.posterior, belief)


def bytes_of_belief(agent: Agent | A2C) -> int:
    """Of one run's belief, or of a learner."""
    return _bytes(_belief_like(agent))


def _belief_like(agent: Agent | A2C) -> PyTree:
    key = _key_like()
    if isinstance(agent, A2C):
        return eqx.filter_eval_shape(lambda agent, key: start_learners(key[None], agent), agent, key)
    return eqx.filter_eval_shape(lambda agent, key: agent.initial_belief(key), agent, key)


def _key_like() -> PyTree:
    return jax.eval_shape(lambda: prng.key(0))


def _bytes(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def bytes_per_run(experiment: Experiment[Any], agent: Agent | A2C) -> int:
    """Device memory of one run: its belief (twice: before and after an update) and its search tree."""
    like = _belief_like(agent)
    belief = _bytes(like)
    if isinstance(agent, A2C):  # and what back-propagation keeps: about 12 h + 3 F numbers
        dpfrl = agent.settings
        steps = dpfrl.actors * dpfrl.sample_length * dpfrl.back_segments
        numbers = dpfrl.num_particles * (12 * dpfrl.hidden + 3 * dpfrl.features) if agent.particles else 0
        return 2 * belief + 4 * steps * (numbers + 12 * dpfrl.hidden)
    if agent.planner is None:
        return 2 * belief
    pomdp, simulations = agent.gba, agent.planner.num_simulations
    nodes, A = simulations + 1, pomdp.num_actions
    children = jax.eval_shape(lambda: no_children(nodes, A, pomdp.observation_sizes))
    tree = 8 * nodes * A + _bytes(children)

    def roots(agent: Agent, belief: Particles, key: Key[Array, ""]) -> PyTree:
        s, draws = agent.gba.sample_roots(key, belief, simulations)
        return s, agent.gba.prepare(*jax.tree.map(lambda x: x[None], (belief, draws)))

    return 2 * belief + tree + _bytes(eqx.filter_eval_shape(roots, agent, like, _key_like()))
