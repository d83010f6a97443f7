"""Values that are learned from simulated steps, against value iteration."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, uniform_weights
from baddr.core.pomdp import all_vectors
from baddr.domains import battleship, from_tables, road_racing
from baddr.fast.belief_tree import fast_tree
from baddr.planners.belief_tree import BeliefTree, features, search
from baddr.planners.belief_tree.features import Features, features_of
from baddr.posteriors import Known

S, A, HORIZON = 5, 3, 4


def moves(seed: int) -> GBAPOMDP:
    """Every (s, a) leads to one s', and some end the episode: nothing is left to chance but the start."""
    draw = np.random.default_rng(seed)
    T = np.eye(S)[draw.integers(S, size=(S, A))]
    R, terminal = draw.normal(size=(S, A, S)), draw.random((S, A, S)) < 0.2
    O, start = np.full((A, S, 2), 0.5), np.full(S, 1 / S)
    pomdp = from_tables(T, O, R, start, 0.9, horizon=HORIZON, terminal=terminal).pomdp
    return GBAPOMDP(pomdp, Known(pomdp.dynamics))


def bounds(gba: GBAPOMDP, num_particles: int = 64) -> Any:
    tree = BeliefTree().build()
    belief = initial_belief(prng.key(1), gba, num_particles)
    prepare = lambda *given: tree.prepare(*given)  # another function each time: constants are changed between
    return eqx.filter_jit(prepare)(prng.key(0), gba, belief)


def test_where_features_suffice_learned_values_are_those_of_value_iteration(monkeypatch):
    """One feature, whose values are told apart. The ridge costs a hundredth."""
    monkeypatch.setattr(search, "LARGEST_TABLES", 0)
    gba = moves(0)
    expected = bounds(gba)
    monkeypatch.setattr(search, "MOST_STATES", 1)
    found, s = bounds(gba), jnp.asarray(all_vectors(gba.state_sizes))
    assert found.features is not None and expected.features is None
    for h in range(HORIZON + 1):
        learned, true = found.at(s, jnp.int32(h)), expected.at(s, jnp.int32(h))
        np.testing.assert_allclose(learned.lower, true.lower, atol=0.03)
        np.testing.assert_allclose(learned.upper, true.upper, atol=0.03)


@pytest.mark.slow
def test_on_the_road_learned_values_rank_states_as_value_iteration_does(monkeypatch):
    """Three lanes, where both can be had. Rewards are products of features, what follows is not."""
    pomdp = road_racing.make_domain(3).pomdp
    gba = GBAPOMDP(pomdp, Known(pomdp.dynamics))
    expected = bounds(gba)
    monkeypatch.setattr(search, "MOST_STATES", 1)
    found = bounds(gba)
    assert found.features is not None and expected.features is None
    s = initial_belief(prng.key(2), gba, 256).states.s
    for one, other in zip(found.at(s, jnp.int32(6))[:2], expected.at(s, jnp.int32(6))[:2], strict=True):
        assert np.corrcoef(np.ravel(one), np.ravel(other))[0, 1] > 0.9


@pytest.mark.parametrize("most", [100, 14])
def test_features_are_as_many_as_they_say(most):
    """Products of what they are, or random functions where those would be too many."""
    some = Features((2, 3, 4), most)
    s = jr.randint(prng.key(0), (7, 3), 0, jnp.array([[2, 3, 4]]))
    assert some.are_products == (most == 100)
    assert some(s).shape == (7, some.number) and some.number <= most


def test_actions_limit_the_features():
    """A regression for each takes memory."""
    pomdp = battleship.make_domain().pomdp
    assert features_of(pomdp).number ** 2 * pomdp.num_actions <= features.NUMBERS


@pytest.mark.slow
def test_nine_lanes_are_planned_by_the_tree():
    """90,699,264 states: value iteration cannot serve. Behind a car that is near it changes the lane."""
    pomdp = road_racing.make_domain(9).pomdp
    gba = GBAPOMDP(pomdp, Known(pomdp.dynamics))
    tree: Any = fast_tree(BeliefTree(num_expansions=8, num_particles=64).build(), gba)
    assert tree.bounds.features is not None
    s = jnp.tile(jnp.array([4, 5, 5, 5, 5, 1, 5, 5, 5, 5], jnp.int32), (64, 1))  # lane 4, whose car is near
    belief = Particles(AugmentedState(s, ()), uniform_weights(64))
    given = jax.tree.map(lambda x: x[None], (prng.key(0), belief, jnp.int32(20), jnp.array(True)))
    plan = eqx.filter_jit(tree.plan)(given[0], gba, *given[1:])
    assert np.all(plan.Q <= plan.upper + 1e-3)
    assert max(plan.Q[0, 0], plan.Q[0, 2]) > plan.Q[0, 1]
