"""Bellman's backup: the sums of a grown tree recomputed plainly, and values against the optimum."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from searches import chain, search

from baddr import prng
from baddr.core.particles import Particles, uniform_weights
from baddr.planners.choice import Hooks
from baddr.planners.round_trip import Path, back_up_level, value
from baddr.planners.tree_search import TreeSearch, grow, problem_of

BELIEF = Particles(jnp.zeros((1, 1, 1), jnp.int32), uniform_weights(1)[None])


def leaf(s):
    return 10.0 + s[0].astype(jnp.float32)


FORMS = [
    pytest.param(in_flight, hooks, id=f"{in_flight} in flight, {name}")
    for in_flight in (1, 5)
    for name, hooks in (("rollouts", Hooks()), ("leaf value", Hooks(leaf_value=leaf)))
]


def grown(how: TreeSearch, seed: int = 0):
    pomdp = chain(discount=0.9)
    roots = jnp.zeros((1, how.num_simulations, 1), jnp.int32), ()
    run = eqx.filter_jit(lambda key: grow(key, how, pomdp, BELIEF, roots, jnp.array([4])))
    tree = run(prng.key(seed)[None]).tree
    sums, nodes = np.asarray(tree.sums[0], float), np.asarray(tree.nodes[0], float)
    return problem_of(how, pomdp, 1), sums, nodes, np.asarray(tree.children.node[0]), int(tree.size[0])


@pytest.mark.parametrize(("in_flight", "hooks"), FORMS)
def test_an_entry_is_its_rewards_and_what_its_children_have_reported(in_flight, hooks):
    """T = N r + gamma sum over o of n_o V_o in every entry of a tree, and n_o visits in sum; a node's V is
    what a loop over its entries gives."""
    how = TreeSearch(150, 1.0, 4, in_flight, backup="max", hooks=hooks)
    problem, sums, nodes, children, size = grown(how)
    state, level = {0: 0}, {0: 0}
    sums32, nodes32 = sums.astype(np.float32), nodes.astype(np.float32)
    nodes32[0, 4] = 2  # nobody asks for the root's
    for node in range(size):  # parents have smaller numbers
        for a in (0, 1):
            entry = 2 * node + a
            N, T, chosen = sums[entry]
            assert N == chosen  # nothing is in flight any more
            s = min(state[node] + a, 7)
            below = [int(children[2 * entry + o]) for o in (0, 1) if children[2 * entry + o]]
            for child in below:
                state[child], level[child] = s, level[node] + 1
            reported = sum(nodes[child, 1] for child in below)
            assert T == pytest.approx(N * s + 0.9 * reported, rel=1e-5)
            assert sum(nodes[child, 0] for child in below) == (N if level[node] < 3 else 0)
        firsts, first = nodes[node, 2:4]
        N, T = sums[2 * node : 2 * node + 2, :2].T
        plain = max(T / np.maximum(N, 1)) if all(N) else (first + T.sum()) / max(firsts + N.sum(), 1)
        V = value(problem, *(jnp.asarray(x) for x in (sums32, np.int32(node), nodes32[node])))
        assert float(V) == pytest.approx(plain, rel=1e-5)
    assert len(state) == size and sums[:2, 0].sum() == 150


def test_the_visits_before_are_brought_up_to_date_once():
    """Two simulations come back from one child at a time: it was visited n times, and then n + 2 times V."""
    how = TreeSearch(8, 1.0, 4, in_flight=2, backup="max")
    problem = problem_of(how, chain(discount=0.9), 1)
    sums, nodes = jnp.zeros((problem.num_entries + 1, 3)), jnp.zeros((10, 5))
    sums = sums.at[2].set(jnp.array([1.0, 4.0, 1.0])).at[3].set(jnp.array([2.0, 6.0, 2.0]))  # Q: 4 and 3
    nodes = nodes.at[1].set(jnp.array([3.0, 6.0, 0.0, 0.0, 2.0]))  # visits, their V in sum, actions
    places, twice = problem.places, lambda x: jnp.tile(jnp.asarray(x), (problem.places, 1))
    path = Path(twice([0, 2, 0, 0, 0]), twice([1.0, 0, 0, 0, 0]), *(jnp.full(places, x) for x in (2, 9, 0.0)))
    back = jnp.arange(places) < 2
    level = jnp.where(back, 1, 0), jnp.where(back, 2, 0)
    sums, nodes = back_up_level(problem, sums, nodes, path, level, jnp.zeros(places))
    np.testing.assert_allclose(nodes[1, :2], [5.0, 5 * 4.0])
    np.testing.assert_allclose(sums[0], [2.0, 2 * 1.0 + 0.9 * (5 * 4.0 - 6.0), 0.0])


@pytest.mark.parametrize("in_flight", [1, 5])
def test_exploration_does_not_stay_in_the_values(in_flight):
    """u so large that all actions are tried alike: a mean is half of what it could be, and Bellman's value
    is the optimum exactly."""
    settings = dict(num_simulations=600, exploration=1e6, depth=4, in_flight=in_flight)
    found = {
        backup: search(
            jr.split(prng.key(0), 1), chain(), BELIEF, steps_left=jnp.array([4]), backup=backup, **settings
        )
        for backup in ("mean", "max")
    }
    best = [0.5 * 1 + 0.25 * 2 + 0.125 * 3, 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 4]
    np.testing.assert_allclose(found["max"].Q[0], best, rtol=1e-4)
    assert np.all(np.asarray(found["mean"].Q[0]) < np.array(best) - 0.3)


def test_an_upper_bound_takes_the_place_of_rollouts():
    """Two simulations of the chain: Q = r + gamma * upper(s', 3 steps left). Then none is left at depth 1."""
    hooks = Hooks(upper=lambda s, left: (100 * left + s[0]).astype(float))
    settings = dict(num_simulations=2, exploration=1.0, depth=4, backup="max", hooks=hooks)
    found = search(prng.key(0)[None], chain(), BELIEF, steps_left=jnp.array([4]), **settings)
    np.testing.assert_allclose(found.Q[0], [0 + 0.5 * 300, 1 + 0.5 * 301])
    found = search(prng.key(0)[None], chain(), BELIEF, steps_left=jnp.array([1]), **settings)
    np.testing.assert_allclose(found.Q[0], [0, 1])
