"""PO-UCT against closed forms, exact planning, and a plain version in Python."""

import itertools
import json
import math
from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from bellman import bellman
from helpers import DATA
from searches import TIGER, TRUE, WAYS, chain, known, plain_chain, plain_tiger, plan, search

from baddr import prng
from baddr.core import plain
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, uniform_weights
from baddr.core.planner import best_action
from baddr.domains import tiger
from baddr.planners.choice import Hooks, ucb
from baddr.planners.tree_search import effective_depth
from baddr.posteriors import Dirichlet

VALUES = json.loads((DATA / "values.json").read_text())


def one_state_belief(num_runs: int = 1) -> Particles:
    states = jnp.zeros((num_runs, 1, 1), jnp.int32)
    return Particles(states, jnp.tile(uniform_weights(1), (num_runs, 1)))


def always_walk(key, s):
    return jnp.int32(1)


@pytest.mark.parametrize("in_flight", [1, 3, 8])
def test_visits_sum_to_the_number_of_simulations(in_flight):
    found = plan(TRUE, num_runs=3, num_simulations=300, in_flight=in_flight)
    assert np.all(np.asarray(found.N).sum(-1) == 300)


@pytest.mark.parametrize(("in_flight", "way"), [(4, "plain"), *((1, way) for way in WAYS)])
def test_bandit_values_are_the_mean_rewards(in_flight, way):
    """One step left: Q(open) is the mean of its rewards, and Q(listen) is -1 exactly.

    Visits in flight count, so exploration alone stays even, but for those that choose at once.
    """
    settings = dict(num_particles=1000, num_simulations=600, exploration=1e6, steps_left=1)
    found = plan(TRUE, num_runs=64, in_flight=in_flight, way=way, **settings)
    Q, N = np.asarray(found.Q), np.asarray(found.N)
    assert np.all(Q[:, 2] == -1)
    assert np.all(np.abs(N - 200) < in_flight)
    standard_error = 55 / np.sqrt(200 * 64)  # a reward is 10 or -100
    assert np.all(np.abs(Q[:, :2].mean(0) + 45) < 5 * standard_error)


def test_the_first_return_of_each_action_is_the_whole_rollout():
    """A deterministic chain: following `always_walk` below each child, Q is known exactly.

    One simulation per action makes one child each: Q(stay) = 0 + .5*1 + .25*2 + .125*3 and
    Q(walk) = 1 + .5*2 + .25*3 + .125*4.
    """
    found = search(
        jr.split(prng.key(0), 1),
        chain(),
        one_state_belief(),
        num_simulations=2,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4]),
        hooks=Hooks(rollout=always_walk),
    )
    np.testing.assert_allclose(found.Q[0], [0 + 0.5 * 1 + 0.25 * 2 + 0.125 * 3, 1 + 1 + 0.75 + 0.5])


def leaf(s):
    return 10.0 + s[0].astype(jnp.float32)


def test_a_leaf_value_stands_for_the_rollout():
    """Three simulations of the chain, u = 0: a child each, then the better child's own first action.

    Q(stay) = 0 + .5*10 and Q(walk) = 1 + .5*11 first. The third goes below walk, where its first action a
    adds 1 + .5*(1 + a + .5*(11 + a)): the reward of arriving in 1 + a, and the leaf there. A simulation that
    ends an episode (steps_left 2) has no value below it.
    """
    settings = dict(num_simulations=3, exploration=0.0, depth=4, hooks=Hooks(leaf_value=leaf))
    for steps_left, below in ((4, 0.5), (2, 0.0)):
        limit = jnp.full((16,), steps_left)
        found = search(jr.split(prng.key(0), 16), chain(), one_state_belief(16), steps_left=limit, **settings)
        third = [1 + 0.5 * (1 + a + below * (11 + a)) for a in (0, 1)]
        np.testing.assert_allclose(found.Q[:, 0], 5)
        walk = sorted((6.5 + x) / 2 for x in third)
        assert sorted(set(found.Q[:, 1].tolist())) == pytest.approx(walk)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_deep_tree_converges_to_the_optimum_of_the_chain(in_flight):
    """Exact value by enumeration of all action sequences; the best sequence dominates the visits."""
    pomdp = chain(horizon=5)
    values = {}
    for sequence in itertools.product((0, 1), repeat=5):
        states = np.cumsum(sequence)
        values[sequence] = float(np.sum(states * 0.5 ** np.arange(5)))
    best = [max(v for q, v in values.items() if q[0] == a) for a in (0, 1)]
    found = search(
        jr.split(prng.key(0), 1),
        pomdp,
        one_state_belief(),
        num_simulations=20_000,
        exploration=0.5,
        depth=5,
        steps_left=jnp.array([5]),
        in_flight=in_flight,
    )
    Q = np.asarray(found.Q[0])
    assert Q[1] == pytest.approx(best[1], rel=0.02) and Q[1] > Q[0]
    assert np.all(Q <= np.array(best) + 1e-4)  # averages under exploration never exceed the optimum


def test_simulations_in_flight_share_the_children_that_they_make():
    """Exploration alone walks every action sequence of the chain: each has one node, with 8 in flight too."""
    found = search(
        jr.split(prng.key(0), 1),
        chain(),
        one_state_belief(),
        num_simulations=200,
        exploration=1e6,
        depth=4,
        steps_left=jnp.array([4]),
        in_flight=8,
    )
    assert found.num_nodes[0] == 1 + 2 + 4 + 8


def test_terminal_steps_end_a_simulation():
    """The chain ends in state 1: walking gives 1 and no more, however deep the search."""
    found = search(
        jr.split(prng.key(0), 2),
        chain(end=1),
        one_state_belief(2),
        num_simulations=50,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4, 4]),
        hooks=Hooks(rollout=always_walk),
    )
    np.testing.assert_allclose(found.Q[:, 1], 1.0)


def test_depth_is_limited_by_the_steps_left_of_each_run():
    found = search(
        jr.split(prng.key(0), 2),
        chain(),
        one_state_belief(2),
        num_simulations=2,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([1, 2]),
        hooks=Hooks(rollout=always_walk),
    )
    np.testing.assert_allclose(found.Q, [[0, 1], [0.5, 2.0]])


def test_a_vanishing_discount_limits_the_depth_instead_of_dividing_by_zero():
    assert effective_depth(0.95, 30) == 30 and effective_depth(0.0, 30) == 1
    assert effective_depth(1.0, 30) == 30 and effective_depth(0.1, 30) == 3
    found = search(
        jr.split(prng.key(0), 1),
        chain(discount=0.0),
        one_state_belief(),
        num_simulations=20,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4]),
    )
    np.testing.assert_allclose(found.Q[0], [0.0, 1.0])


def test_ucb_prefers_unvisited_actions_and_breaks_ties_at_random():
    N, Q = jnp.array([5.0, 0.0, 3.0]), jnp.array([100.0, 0.0, 0.0])
    keys = jr.split(prng.key(0), 2000)
    chosen = jax.vmap(lambda k: ucb(k, N, Q, 1.0))(keys)
    assert np.all(np.asarray(chosen) == 1)
    ties = jax.vmap(lambda k: ucb(k, jnp.ones(4), jnp.array([1.0, 0.0, 1.0, 1.0]), 1.0))(keys)
    counts = np.bincount(np.asarray(ties), minlength=4)
    assert counts[1] == 0 and np.all(np.abs(counts[[0, 2, 3]] - 2000 / 3) < 5 * np.sqrt(2000 * 2 / 9))


def test_ucb_formula():
    """Q + u sqrt(ln(1 + N(h)) / N(h, a)): the scores tie at this u, and flip around it."""
    N, Q = np.array([9.0, 1.0]), np.array([1.0, 0.0])
    u = 1 / (math.sqrt(math.log(11) / 1) - math.sqrt(math.log(11) / 9))
    choose = lambda u: int(ucb(prng.key(0), jnp.array(N, jnp.float32), jnp.array(Q, jnp.float32), u))
    assert choose(0.99 * u) == 0 and choose(1.01 * u) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_run_alone_plans_as_in_a_batch(way):
    together, again = plan(TRUE, num_runs=4, way=way), plan(TRUE, num_runs=4, way=way)
    assert jnp.array_equal(together.Q, again.Q)  # same seed, same result
    keys = jr.split(prng.key(0), 4)
    belief = jax.vmap(lambda k: initial_belief(k, TRUE, 64))(keys[2:3])
    settings = dict(num_simulations=256, exploration=100.0, depth=30, way=way)
    single = search(keys[2:3], TRUE, belief, steps_left=jnp.array([30]), **settings)
    np.testing.assert_allclose(single.Q[0], together.Q[2], rtol=1e-5)
    assert jnp.array_equal(single.N[0], together.N[2])


@pytest.mark.parametrize("way", WAYS)
def test_inactive_runs_are_passed_over(way):
    keys = jr.split(prng.key(0), 3)
    beliefs = jax.vmap(lambda k: initial_belief(k, TRUE, 8))(keys)
    found = search(
        keys,
        TRUE,
        beliefs,
        num_simulations=32,
        exploration=100.0,
        depth=30,
        steps_left=jnp.full((3,), 30),
        active=jnp.array([True, False, True]),
        way=way,
    )
    assert np.asarray(found.N).sum(-1).tolist() == [32, 0, 32]
    assert np.asarray(found.num_steps)[1] == 0


def test_best_action_takes_only_tried_actions():
    found = plan(TRUE, num_simulations=2, num_runs=16)
    a = jax.vmap(best_action)(jr.split(prng.key(1), 16), found)
    tried = np.asarray(found.N)[np.arange(16), np.asarray(a)]
    assert np.all(tried > 0)


def test_planning_without_root_sampling_learns_inside_the_simulation():
    """The same GBA-POMDP, planned in as the POMDP it is: both ways agree on what to do first.

    4096 simulations, as 1000 are too few for tiger: one of eight such searches opened a door at once.
    """
    posterior = Dirichlet(TIGER.counts, *tiger.SIZES)
    gba = GBAPOMDP(TIGER.pomdp, posterior)
    sampled = plan(gba, num_runs=8, num_simulations=4096)
    learning = plan(gba, num_runs=8, num_simulations=4096, root_sampling=False)
    assert np.all(np.argmax(np.asarray(learning.Q), -1) == 2)
    gap = np.asarray(sampled.Q[:, 2]).mean() - np.asarray(learning.Q[:, 2]).mean()
    spread = np.asarray(sampled.Q[:, 2]).std() + np.asarray(learning.Q[:, 2]).std()
    assert abs(gap) < 4 * spread / np.sqrt(8)


# `core.plain`: recursion, dictionaries, and the formulas as printed.

TIGER_ROOT = lambda random: (int(random.integers(2)), 0.85)
CHAIN_ROOT = lambda random: (0, None)


def close(ours, theirs):
    """Means over searches, within 4 standard errors (and rounding)."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    standard_error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    return np.all(np.abs(ours.mean(0) - theirs.mean(0)) <= 4 * standard_error + 1e-5)


@pytest.mark.parametrize(("way", "backup"), [*((way, "mean") for way in WAYS), ("plain", "max")])
def test_same_distribution_as_a_plain_version(way, backup):
    """Root visits and values of tiger, and the sizes of the trees, which are many levels deep: over 200
    searches of 100 simulations each."""
    random, by = np.random.default_rng(0), {"mean": plain.po_uct, "max": bellman}[backup]
    search = plain.Search(plain_tiger, 3, 100.0, 30, 0.95)
    found = [by(random, search, TIGER_ROOT, 100) for _ in range(200)]
    settings = dict(num_runs=200, num_particles=1024, num_simulations=100)
    fast = plan(TRUE, way=way, backup=backup, **settings)
    assert max(len(h) // 2 for _, tree in found for h in tree) > 3
    assert close(fast.N, [root.N for root, _ in found])
    assert close(fast.Q, [root.Q for root, _ in found])
    assert close(fast.num_nodes, [len(tree) for _, tree in found])


def test_no_search_value_of_tiger_exceeds_the_optimum():
    found = plan(TRUE, num_runs=16, num_particles=1024, num_simulations=4096)
    assert np.all(np.asarray(found.Q).max(-1) < VALUES["tiger/optimal_gamma.95/disc"]["value"])
    assert np.all(np.argmax(np.asarray(found.Q), -1) == 2)


@cache
def plainly_searched(backup: str) -> list:
    random, by = np.random.default_rng(0), {"mean": plain.po_uct, "max": bellman}[backup]
    search = plain.Search(plain_chain, 2, 0.5, 5, 0.3)
    return [by(random, search, CHAIN_ROOT, 100)[0] for _ in range(300)]


@pytest.mark.parametrize(("way", "backup"), [*((way, "mean") for way in WAYS), ("plain", "max")])
def test_each_level_backs_up_the_return_from_its_own_level(way, backup):
    """gamma = .3: a return that is not divided by gamma^j looks too small below the root, and the choices
    there turn into exploration. 300 searches each."""
    found = plainly_searched(backup)
    pomdp = known(chain(discount=0.3, horizon=5))
    settings = dict(num_simulations=100, exploration=0.5, depth=5, num_particles=1)
    fast = plan(pomdp, num_runs=300, steps_left=5, way=way, backup=backup, **settings)
    assert close(fast.Q, [root.Q for root in found]) and close(fast.N, [root.N for root in found])
