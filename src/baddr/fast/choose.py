"""The fast forms of what the core has: whoever runs many things asks here."""

from typing import TypeVar

import equinox as eqx

from baddr.core.agent import Agent
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import EachAlone, Models
from baddr.core.planner import Planner
from baddr.core.pomdp import POMDP
from baddr.core.posterior import Posterior
from baddr.fast import (  # noqa: F401  (they register their models)
    bank_models,
    dropout_models,
    latent_models,
    mixture_models,
)
from baddr.fast.belief_tree import fast_tree
from baddr.fast.models import models_of
from baddr.fast.search import fast_search
from baddr.planners.belief_tree.search import TreeOfBeliefs
from baddr.planners.tree_search import TreeSearch

P = TypeVar("P", bound=POMDP)

__all__ = ["fast_agent", "fast_planner", "fast_pomdp", "models_of"]


def fast_pomdp(pomdp: P) -> P:
    """A GBA-POMDP with the models that are best for its posterior; any other POMDP as it is."""
    if isinstance(pomdp, GBAPOMDP) and isinstance(pomdp.models, EachAlone):
        return eqx.tree_at(lambda gba: gba.models, pomdp, models_of(pomdp.posterior))
    return pomdp


def fast_planner(planner: Planner, pomdp: POMDP) -> Planner:
    """The fast form of a planner in this POMDP; one that has none as it is."""
    if isinstance(planner, TreeOfBeliefs):
        return fast_tree(planner, pomdp)
    return fast_search(planner, pomdp) if isinstance(planner, TreeSearch) else planner


def fast_agent(agent: Agent) -> Agent:
    """The same agent, to be run a thousand times."""
    gba = fast_pomdp(agent.gba)
    planner = fast_planner(agent.planner, gba)
    return Agent(gba, agent.filter, planner, agent.describe, agent.trace, agent.rejuvenation, agent.shows)


def with_posterior(agent: Agent, posterior: Posterior) -> Agent:
    """The agent with another posterior of the same kind and shapes."""
    models: Models = models_of(posterior)
    gba = GBAPOMDP(agent.gba.pomdp, models)
    rest = agent.describe, agent.trace, agent.rejuvenation, agent.shows
    return Agent(gba, agent.filter, agent.planner, *rest)
