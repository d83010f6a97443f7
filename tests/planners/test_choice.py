"""How simulations choose: in turn as one after another would, and by what a domain knows of good play."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from searches import chain, search

from baddr import prng
from baddr.core.particles import Particles, uniform_weights
from baddr.core.planner import random_argmax
from baddr.planners.choice import Hooks, Seen, in_turn, scores, seen_from


@pytest.mark.parametrize("u", [0.0, 1.0, 100.0])
def test_choosing_in_turn_is_choosing_one_at_a_time(u):
    """Sixteen simulations at five nodes, some of whose actions are untried, against a loop that counts each
    choice before the next: the same actions, tie by tie."""
    rng = np.random.default_rng(0)
    for trial in range(5):
        site = rng.integers(0, 5, 16)
        N_of, Q_of = rng.integers(0, 4, (5, 4)).astype(np.float32), rng.normal(size=(5, 4)).astype(np.float32)
        average = Q_of.mean(1)
        keys = jr.split(prng.key(trial), 16)
        seen = Seen(*(jnp.asarray(x[site]) for x in (N_of, Q_of, average)))
        found = in_turn(keys, jnp.asarray(site, jnp.int32), seen, u)
        for i, node in enumerate(site):
            mine = Seen(jnp.asarray(N_of[node]), jnp.asarray(Q_of[node]), jnp.float32(0))
            a = int(random_argmax(keys[i], scores(mine, u)))
            assert a == found[i]
            N_of[node, a] += 1


def test_all_in_flight_try_the_actions_evenly():
    """Without values 64 who choose in turn spread as evenly as one at a time would: 16 for each of four."""
    nothing = jnp.zeros((64, 4))
    found = in_turn(
        jr.split(prng.key(0), 64), jnp.zeros(64, jnp.int32), Seen(nothing, nothing, nothing[:, 0]), 1.0
    )
    assert np.bincount(found, minlength=4).tolist() == [16] * 4


# What a domain knows: the chain, on which walking (1) pays and staying (0) does not.


def belief(*states: int) -> Particles:
    return Particles(jnp.array(states, jnp.int32)[None, :, None], uniform_weights(len(states))[None])


def planned(hooks: Hooks, *states: int, backup: str = "mean", in_flight: int = 1, n: int = 64):
    settings = dict(num_simulations=n, exploration=1.0, depth=4, backup=backup, in_flight=in_flight)
    left = jnp.array([4])
    return search(prng.key(0)[None], chain(), belief(*states), steps_left=left, hooks=hooks, **settings)


FORMS = pytest.mark.parametrize(("backup", "in_flight"), [("mean", 1), ("mean", 4), ("max", 1), ("max", 4)])


@FORMS
def test_illegal_actions_are_never_simulated(backup, in_flight):
    """Staying is illegal: the only return is that of walking on, in the tree and below it."""
    found = planned(Hooks(legal=lambda s: jnp.array([False, True])), 0, backup=backup, in_flight=in_flight)
    assert found.N[0].tolist() == [0, 64]
    np.testing.assert_allclose(found.Q[0, 1], 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 4)


@FORMS
def test_an_action_is_tried_only_where_it_is_legal(backup, in_flight):
    """Half of the particles are in state 3, where walking is illegal: its value is that of the others."""
    legal = lambda s: jnp.array([True, False]) | (s[0] < 3)
    found = planned(Hooks(legal=legal), 0, 3, backup=backup, in_flight=in_flight, n=400)
    assert 0 < found.N[0, 1] < 250
    assert found.Q[0, 1] < 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 3 + 1e-4


def test_without_a_legal_action_all_are():
    seen = seen_from(Hooks(legal=lambda s: s > 5), jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), jnp.float32(0))
    assert np.all(seen.legal)


def test_preferred_actions_come_first_and_others_compete():
    """Untried actions that are not preferred start as if tried once, with the average."""
    prefer = Hooks(preferred=lambda s: jnp.array([False, True, False]))
    see = lambda N, Q, average: scores(
        seen_from(prefer, jnp.zeros(1), *map(jnp.asarray, (N, Q, average))), 1.0
    )
    first = see([0.0, 0.0, 0.0], [0.0] * 3, 0.0)
    assert first.tolist() == [0.0, np.inf, 0.0]
    later = see([0.0, 4.0, 1.0], [0.0, 2.0, 3.0], 2.2)
    bonus = np.sqrt(np.log(6.0))
    np.testing.assert_allclose(later, [2.2 + bonus, 2 + bonus / 2, 3 + bonus], rtol=1e-6)


def test_rollouts_draw_among_preferred_actions():
    """Two simulations, one for each first action; below it the preferred action alone is drawn."""
    found = planned(Hooks(preferred=lambda s: jnp.array([False, True])), 0, n=2)
    assert found.N[0, 1] >= 1
    np.testing.assert_allclose(found.Q[0, 1], 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 4)


def test_a_preferred_action_must_be_legal():
    hooks = Hooks(legal=lambda s: jnp.array([True, False]), preferred=lambda s: jnp.array([False, True]))
    assert planned(hooks, 0).N[0].tolist() == [64, 0]


def test_hooks_are_about_s_where_simulations_learn():
    """Without root sampling the state is (s, theta): hooks see s."""
    from searches import TIGER

    from baddr.core.belief_update import initial_belief
    from baddr.core.gba_pomdp import GBAPOMDP
    from baddr.domains import tiger
    from baddr.posteriors import Dirichlet

    gba = GBAPOMDP(TIGER.pomdp, Dirichlet(TIGER.counts, *tiger.SIZES))
    beliefs = jax.vmap(lambda key: initial_belief(key, gba, 8))(prng.key(0)[None])
    hooks = Hooks(
        legal=lambda s: jnp.array([False, False, True]) & (s[0] < 5), leaf_value=lambda s: jnp.float32(0)
    )
    settings = dict(num_simulations=8, exploration=1.0, depth=3, root_sampling=False, hooks=hooks)
    found = search(prng.key(0)[None], gba, beliefs, steps_left=jnp.array([3]), **settings)
    assert found.N[0].tolist() == [0, 0, 8]
