"""What several tests share."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.pomdp import POMDP
from baddr.fast.pretrain_latent import architecture_of
from baddr.fast.pretrain_latent import untrained as random_nets
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.posteriors.dropout import Architecture, Dropout, initial_weights
from baddr.posteriors.latent import Gaussian, Latent
from baddr.posteriors.settings import LatentSettings, Network

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parent.parent / "examples"


def vectors(sizes: tuple[int, ...]) -> np.ndarray:
    """Every vector of features, by rank."""
    return np.array(list(itertools.product(*map(range, sizes))), np.int32)


def world_and_agent(
    agent: str = "ba-pomcp", num_simulations: int = 32, **filter_settings: Any
) -> tuple[POMDP, Agent]:
    """Tiger and an agent on it."""
    kinds = {"filter": filter_settings.pop("kind")} if "kind" in filter_settings else {}
    plans = {"planner": "po-uct"} if agent != "random" else {}
    experiment = preset("tiger", agent, kinds=kinds | plans)
    filter_settings = {"rejuvenate": False} | filter_settings  # moves take as long to compile as all else
    groups = {"filter": replace(experiment.settings.filter, **filter_settings)}
    if "planner" in experiment.settings.groups():
        groups["planner"] = replace(experiment.settings.planner, num_simulations=num_simulations)
    experiment = experiment.changed(**groups)
    domain = build_domain(experiment)
    return domain.pomdp, build_agent(experiment, domain)


def untrained(network: Network, sizes: Any, members: int = 1, scale: float = 1.0, **options: Any) -> Dropout:
    """Networks with random weights: `sizes` are those of s, the actions and those of o."""
    architecture = Architecture(network, *sizes, **options)
    w = jax.jit(jax.vmap(lambda key: initial_weights(key, architecture)))(jr.split(prng.key(1), members))
    return Dropout(scale * w, architecture)


def untrained_latent(settings: LatentSettings, sizes: Any, networks: str = "TO") -> Latent:
    """A `Latent` of random networks: `sizes` are those of s, the actions and those of o."""
    architecture = architecture_of(settings, sizes, networks)
    nets = jax.tree.map(lambda x: 2.0 * x, random_nets(*jr.split(prng.key(1)), architecture, settings))
    d = settings.dimensions
    start = Gaussian(0.1 * jnp.arange(d, dtype=float), jnp.eye(d) + 0.2 * jnp.tri(d, k=-1))
    return Latent(*nets, start, architecture, settings.model == "expected")


def same_trees(one: Any, other: Any, **tolerance: float) -> None:
    """The same leaves: exactly, or to a tolerance; keys by their bits."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jr.key_data(x), jr.key_data(y)
        if tolerance and np.issubdtype(x.dtype, np.floating):
            np.testing.assert_allclose(x, y, **tolerance)
        else:
            np.testing.assert_array_equal(x, y)


def numpy_logits(architecture, theta, net: str, x, masks):
    """An independent forward pass, w~ = w . diag(z) formed outright."""
    p, at = architecture.network.dropout, 0 if net == "T" else architecture.num_weights("T")
    h, widths = np.asarray(x, np.float64), architecture.widths(net)
    for i, (n, m) in enumerate(itertools.pairwise(widths)):
        block = np.asarray(theta[at : at + (n + 1) * m], np.float64)
        at += (n + 1) * m
        W, b = block[: n * m].reshape(n, m).T, block[n * m :]
        if 0 < i <= len(masks):
            W = W @ np.diag(masks[i - 1]) / (1 - p)
        h = W @ h + b
        h = np.tanh(h) if i < len(widths) - 2 else h
    return h
