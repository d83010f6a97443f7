"""The twins agree: what the core says plainly and what the engine room computes fast are the same.

Same keys, same numbers: choices and counts exactly, weights of networks and sums to rounding.
"""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import same_trees, untrained, untrained_latent

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.belief_update import initial_belief, next_episode
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import EachAlone
from baddr.domains import factored_tiger, tiger
from baddr.errors import UserError
from baddr.fast import dropout_models, runs
from baddr.fast.choose import fast_agent, fast_pomdp
from baddr.fast.dropout_models import DropoutModels
from baddr.fast.search import FastSearch, fast_search
from baddr.life import run as life
from baddr.planners.tree_search import TreeSearch
from baddr.planners.uniform import Uniform
from baddr.posteriors import Dirichlet, Dropout, Factored, Frozen, Known, Latent, Partial
from baddr.posteriors.mixture import Mixture
from baddr.posteriors.settings import LatentSettings, Network

CLOSE = dict(rtol=1e-4, atol=2e-6)
LISTEN = tiger.LISTEN
NETWORK = Network(hidden=6, learning_rate=0.1)
TIGER = (tiger.SIZES[0], 3, tiger.SIZES[1])


def networks(networks: str = "TO", sizes=(tiger.SIZES[0], 3, tiger.SIZES[1])) -> Dropout:
    return untrained(NETWORK, sizes, members=3, scale=2.0, networks=networks)


@cache
def problems():
    """name: (pomdp, posterior)."""
    domain, larger = tiger.make_domain(), factored_tiger.make_domain(irrelevant=1)
    truth, counts = domain.pomdp.dynamics, (domain.counts, *tiger.SIZES)
    on_tiger = {
        "known": Known(truth),
        "dirichlet": Dirichlet(*counts),
        "dirichlet, sampled": Dirichlet(*counts, expected=False),
        "factored": Factored(domain.graphs["default"]),
        "dropout": networks(),
        "dropout, masks redrawn": untrained(
            replace(NETWORK, redraw_masks=True), (tiger.SIZES[0], 3, tiger.SIZES[1]), 3, 2.0
        ),
        "frozen dropout": Frozen(networks()),
        "latent": untrained_latent(LatentSettings(dimensions=3, hidden=6), TIGER),
        "latent, expected": untrained_latent(LatentSettings(hidden=6, model="expected"), TIGER),
        "latent, O alike": untrained_latent(LatentSettings(hidden=6, learn_observation=False), TIGER),
        "mixture": Mixture((untrained_latent(LatentSettings(hidden=6), TIGER), networks()), (0.6, 0.4)),
        "partial, T learned": Partial(networks("T"), truth),
        "partial, O learned": Partial(Frozen(Dirichlet(*counts)), networks("O")),
    }
    found = {name: (domain.pomdp, posterior) for name, posterior in on_tiger.items()}
    graph = larger.graphs["default"]
    found["factored, uncertain"] = larger.pomdp, Factored(graph, "uncertain")
    found["factored, sampled"] = larger.pomdp, Factored(graph, "uncertain", expected=False)
    return found


NAMES = [
    "known",
    "dirichlet",
    "dirichlet, sampled",
    "factored",
    "factored, uncertain",
    "factored, sampled",
    "dropout",
    "dropout, masks redrawn",
    "frozen dropout",
    "latent",
    "latent, expected",
    "latent, O alike",
    "mixture",
    "partial, T learned",
    "partial, O learned",
]
FILTERS = {
    "importance": Importance(num_particles=24, resample_below=12.0, weight_after_update=True),
    "rejection": Rejection(num_particles=24, max_tries=50),
}


def twins(name: str) -> tuple[GBAPOMDP, GBAPOMDP]:
    pomdp, posterior = problems()[name]
    plain = GBAPOMDP(pomdp, posterior)
    fast = fast_pomdp(plain)
    assert type(plain.models) is EachAlone and type(fast.models) is not EachAlone
    return plain, fast


def test_every_family_is_among_them():
    families = {type(posterior) for _, posterior in problems().values()}
    assert families == {Known, Dirichlet, Factored, Dropout, Latent, Mixture, Frozen, Partial}
    assert set(NAMES) == set(problems())


@eqx.filter_jit
def filtered(gba: GBAPOMDP, how: Importance | Rejection, key):
    """The beliefs of two runs after three updates and a new episode; the second run rests at the third."""

    def one(key, rests):
        def update(belief, step):
            t, heard = step
            learns, active = t != 1, ~(rests & (t == 2))
            return how.update(jr.fold_in(key, t), gba, belief, jnp.int32(LISTEN), heard[None], learns, active)

        belief = initial_belief(key, gba, how.num_particles)
        belief, infos = jax.lax.scan(update, belief, (jnp.arange(3), jnp.array([0, 1, 0], jnp.int32)))
        return next_episode(key, gba, belief), infos

    return jax.vmap(one)(jr.split(key, 2), jnp.array([False, True]))


VARIANTS = ("dirichlet, sampled", "dropout, masks redrawn", "latent, expected", "latent, O alike")
REJECTED = ("dirichlet", "factored, uncertain", "frozen dropout", "latent", "partial, T learned")
BELIEFS = [  # by default each with one of the filters
    pytest.param(
        name, how, marks=[pytest.mark.slow] * (name in VARIANTS or (how == "rejection") != (name in REJECTED))
    )
    for name in NAMES
    for how in FILTERS
]


@pytest.mark.parametrize(("name", "how"), BELIEFS)
def test_beliefs_are_the_same(name, how):
    plain, fast = (filtered(gba, FILTERS[how], prng.key(1)) for gba in twins(name))
    same_trees(plain, fast, **CLOSE)


HOW = TreeSearch(num_simulations=64, exploration=100.0, depth=6)


@eqx.filter_jit
def planned(planner, gba, num_runs: int = 3):
    keys = jr.split(prng.key(2), num_runs)
    beliefs = jax.vmap(lambda key: initial_belief(key, gba, 16))(keys)
    return planner.plan(keys, gba, beliefs, jnp.full((num_runs,), 6), jnp.arange(num_runs) != 1)


SEARCHES = {
    "one at a time": HOW,
    "three in flight, Bellman's backup": replace(HOW, in_flight=3, backup="max"),
    "by paths": replace(HOW, by_paths=True),
    "by paths, Bellman's backup": replace(HOW, by_paths=True, backup="max"),
    "learning": replace(HOW, num_simulations=16, root_sampling=False),
}


@pytest.mark.cover
@pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("name", NAMES)
def test_plans_are_the_same(name, how):
    """Equal visits and steps: the same random numbers, and the same choices. One run is passed over."""
    plain, fast = twins(name)
    by = "paths" if how.by_paths else "tree"
    not_by_tables = replace(fast_search(how, fast), by=by)  # with the rows that it would have by tables
    expected, found = planned(how, plain), planned(not_by_tables, fast)
    np.testing.assert_array_equal(expected.N, found.N)
    np.testing.assert_array_equal(expected.num_steps, found.num_steps)
    np.testing.assert_array_equal(expected.num_nodes, found.num_nodes)
    np.testing.assert_allclose(expected.Q, found.Q, atol=1e-3)


# The life of a run.


def lives(name: str, how, planner) -> tuple[Agent, Agent]:
    """An agent, and its fast form with the same stream of random numbers."""
    plain, fast = twins(name)
    if planner is not None:
        return Agent(plain, how, planner), Agent(fast, how, FastSearch(planner, None, "tree"))
    return Agent(plain, how, Uniform()), fast_agent(Agent(plain, how, Uniform()))


@pytest.mark.parametrize(
    ("name", "how", "planner"),
    [
        ("dirichlet", FILTERS["importance"], HOW),
        ("dropout", FILTERS["rejection"], HOW),
        pytest.param("factored, uncertain", FILTERS["rejection"], None, marks=pytest.mark.slow),
    ],
)
def test_the_life_of_one_run_is_that_of_a_run_among_several(name, how, planner):
    """Three runs of two episodes, each alone by `life.run` and together by `fast.runs`."""
    world = problems()[name][0]
    alone, fast = lives(name, how, planner)
    keys, two = jr.split(prng.key(3), 3), jnp.int32(2)
    together, steps = runs.advance(runs.start(keys, fast, world), fast, world, two, 12)
    start = eqx.filter_jit(lambda key: life.start(key, alone, world))
    step = eqx.filter_jit(lambda run: life.step(run, alone, world, two))
    for i, key in enumerate(keys):
        run, records = start(key), []
        for _ in range(12):
            run, record = step(run)
            records.append(record)
        mine = lambda tree, axis: jax.tree.map(lambda x: x.take(i, axis=axis), tree)  # noqa: B023
        same_trees(run, mine(together, 0), **CLOSE)
        active = np.array([bool(record.active) for record in records])
        assert active.any()
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *records)
        active_only = lambda tree: jax.tree.map(lambda x: x[active], tree)  # noqa: B023
        same_trees(active_only(stacked), active_only(mine(steps, 1)), rtol=1e-4, atol=1e-3)


# Kernels, interpreted.


@pytest.mark.cover
@pytest.mark.parametrize("how", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("name", ["dropout", "frozen dropout", "partial, O learned"])
def test_kernels_give_the_same_beliefs(name, how, monkeypatch):
    monkeypatch.setattr(dropout_models, "has_kernels", lambda: True)
    plain, fast = twins(name)
    models = [x for x in (fast.models, getattr(fast.models, "inner", None)) if isinstance(x, DropoutModels)]
    models += [x for x in [getattr(fast.models, "observation", None)] if x is not None]
    assert models and all(m.by_kernels for m in models)
    expected, found = (eqx.filter_jit(filtered.__wrapped__)(gba, how, prng.key(1)) for gba in (plain, fast))
    same_trees(expected, found, **CLOSE)


def test_kernels_give_the_same_plans(monkeypatch):
    monkeypatch.setattr(dropout_models, "has_kernels", lambda: True)
    plain, fast = twins("dropout")
    assert fast.models.by_kernels
    how = replace(HOW, num_simulations=24)
    expected, found = planned(how, plain), planned(FastSearch(how, None, "tree"), fast)
    np.testing.assert_array_equal(expected.N, found.N)
    np.testing.assert_allclose(expected.Q, found.Q, atol=1e-3)


# Inside `jit`.


@pytest.mark.parametrize("name", ["dirichlet", "dropout"])
def test_what_is_built_inside_jit_plans_as_outside(name):
    """A GBA-POMDP, its fast form and its search, all made while a function is compiled."""
    pomdp, posterior = problems()[name]
    keys, left, active = jr.split(prng.key(2), 2), jnp.full((2,), 6), jnp.ones((2,), bool)

    def plan(keys):
        gba = fast_pomdp(GBAPOMDP(pomdp, posterior))
        planner = fast_search(HOW, gba)
        assert planner.by == "loop"
        beliefs = jax.vmap(lambda key: initial_belief(key, gba, 16))(keys)
        return planner.plan(keys, gba, beliefs, left, active)

    inside, outside = jax.jit(plan)(keys), plan(keys)
    np.testing.assert_array_equal(inside.N, outside.N)
    np.testing.assert_allclose(inside.Q, outside.Q, rtol=1e-4)


def test_a_pomdp_that_is_traced_gets_a_sentence():
    """As an argument of `jit` its rewards are unknown, by which a search is chosen."""
    pomdp, posterior = problems()["dirichlet"]
    choose = lambda gba: fast_search(HOW, gba).by == "loop"
    assert choose(GBAPOMDP(pomdp, posterior))
    with pytest.raises(UserError, match="JAX is tracing this POMDP: plan with it outside `jit`"):
        eqx.filter_jit(choose)(GBAPOMDP(pomdp, posterior))
