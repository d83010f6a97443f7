"""Rejuvenation of structures leaves the exact posterior as it is: all histories and structures enumerated."""

import itertools
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baddr import prng
from baddr.core.gba_pomdp import AugmentedState
from baddr.domains import factored_tiger
from baddr.posteriors import Factored, FactoredCounts
from baddr.posteriors.gibbs_factored import GibbsFactored, gibbs_factored
from baddr.posteriors.memory import remember

LISTEN = 2
HEARD = ((0, 0, 1), (1, 1, 1, 1), (0, 1, 0))  # while listening; the state stays as it is in an episode
DRAWS = 20_000
P0 = np.full(4, 0.25)


@cache
def problem(structure):
    """The posterior, its moves, every (s, theta) that the history can lead to, and their probabilities."""
    domain = factored_tiger.make_domain(irrelevant=1)
    posterior = Factored(domain.graphs["default"], structure, edge_probability=0.4)
    moves = gibbs_factored(posterior, P0, horizon=4, capacity=64)
    n = posterior.num_edges
    edges = jnp.array(list(itertools.product([False, True], repeat=n)), bool).reshape(2**n, n)
    doors = jnp.array(list(itertools.product(range(4), repeat=len(HEARD))), jnp.int32)

    def one(edges, doors):
        theta = FactoredCounts(posterior.prior_counts(edges), edges)
        for door, heard in zip(doors, HEARD, strict=True):
            s = jnp.stack([door // 2, door % 2])
            for o in heard:
                theta = posterior.update(
                    prng.key(0), theta, s, jnp.int32(LISTEN), s, jnp.array([o], jnp.int32)
                )
        log_prior = jnp.sum(jnp.where(edges, jnp.log(0.4), jnp.log(0.6)))
        return AugmentedState(s, theta), posterior.log_score(theta) + log_prior

    every, score = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(edges, doors)
    flat = lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    p = np.exp(np.asarray(flat(score), np.float64) - float(score.max()))
    return posterior, moves, jax.tree.map(flat, every), p / p.sum()


def worst(states, structure):
    """The largest distance of a first or second moment from the exact one, in standard errors."""
    *_, every, p = problem(structure)
    parts = lambda t: np.concatenate([np.asarray(x, np.float64) for x in (t.s, *t.theta)], axis=1)
    square = lambda x: np.concatenate([x, (x[:, :, None] * x[:, None]).reshape(len(x), -1)], axis=1)
    wanted, found = square(parts(every)), square(parts(states))
    mean = p @ wanted
    error = np.sqrt(np.maximum(p @ wanted**2 - mean**2, 0) / len(found))
    varies = error > 1e-6
    assert np.allclose(found[:, ~varies], mean[~varies], atol=1e-3)
    return np.max(np.abs(found.mean(0) - mean)[varies] / error[varies])


def moved(structure, kind=GibbsFactored):
    _, moves, every, p = problem(structure)
    moves = kind(**vars(moves))
    memory, yes = moves.codes.empty(moves.capacity), jnp.array(True)
    for heard in HEARD:
        memory = memory._replace(first=yes)
        for o in heard:
            given = jnp.int32(LISTEN), jnp.array([o], jnp.int32), ~yes
            memory = remember(moves.codes, memory, given, yes, yes)
    drawn = np.random.default_rng(4).choice(len(p), size=DRAWS, p=p)
    states = jax.tree.map(lambda x: x[drawn], every)
    return states, *eqx.filter_jit(lambda m, s: m.move(prng.key(1), s, memory))(moves, states)


@pytest.mark.parametrize("structure", ["true", "matched", "uncertain"])
def test_a_sweep_leaves_the_exact_posterior_as_it_is(structure):
    before, states, info = moved(structure)
    assert worst(before, structure) < 4 and worst(states, structure) < 4
    assert int(info.moved) > 0.3 * DRAWS and int(info.relabelled) > 0.1 * DRAWS
    if structure != "true":
        assert np.mean(np.asarray(states.theta.edges != before.theta.edges)) > 0.1


class Careless(GibbsFactored):
    """Broken on purpose: edges toggle without the score."""

    def log_score(self, seen, edges):
        return jnp.zeros(())


def test_a_broken_move_is_noticed():
    assert worst(moved("uncertain", Careless)[1], "uncertain") > 6
