"""Networks of a belief tree's draws, side by side and each alone."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import collision_avoidance
from baddr.fast.choose import fast_pomdp
from baddr.fast.network_draws import NetworkDraws, draws_of, in_order
from baddr.planners.belief_tree.draws import EachDraw
from baddr.planners.belief_tree.nodes import draw_root
from baddr.posteriors.dropout import Architecture, Dropout, initial_weights
from baddr.posteriors.settings import Network

POMDP = collision_avoidance.make_domain(size=3).pomdp
NETWORK = Network(hidden=8, dropout=0.5, inputs="onehot")


def networks(network: Network) -> GBAPOMDP:
    architecture = Architecture(network, POMDP.state_sizes, POMDP.num_actions, POMDP.observation_sizes)
    weights = jax.vmap(lambda key: initial_weights(key, architecture))(jr.split(prng.key(0), 4))
    return fast_pomdp(GBAPOMDP(POMDP, Dropout(3 * weights, architecture)))


@pytest.mark.parametrize(("particles", "drawn"), [(6, 12), (6, 4)])  # two draws of each; a draw of some
def test_a_step_of_all_draws_is_that_of_each(particles, drawn):
    gba = networks(NETWORK)
    belief = initial_belief(prng.key(1), gba, particles)
    root = in_order(draw_root(prng.key(2), gba, belief, drawn), particles)
    theta = belief.states.theta
    fast = draws_of(gba.models, theta, root, particles)
    plain = EachDraw(gba.models, theta, root.i, root.epsilon)
    assert isinstance(fast, NetworkDraws)
    o = jr.randint(prng.key(4), (3, 5, 3), 0, 3)

    @eqx.filter_jit
    def ask(draws):
        step = draws.step(jr.split(prng.key(3), (drawn, 3)), root.s)
        seen = draws.see(step)
        return step.s_next, seen.o, draws.weigh(step, seen, o)

    for one, other in zip(ask(fast), ask(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    assert len(np.unique(np.asarray(ask(fast)[2]))) > drawn  # the draws differ


def test_masks_that_are_drawn_anew_go_the_plain_way():
    gba = networks(replace(NETWORK, redraw_masks=True))
    belief = initial_belief(prng.key(1), gba, 4)
    root = draw_root(prng.key(2), gba, belief, 4)
    assert isinstance(draws_of(gba.models, belief.states.theta, root, 4), EachDraw)


def test_draws_in_order_are_the_same_draws():
    gba = networks(NETWORK)
    belief = initial_belief(prng.key(1), gba, 3)
    root = draw_root(prng.key(2), gba, belief, 6)
    ordered = in_order(root, 3)
    assert ordered.i.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(ordered.epsilon[1], root.epsilon[3])
    np.testing.assert_allclose(jnp.sum(ordered.weights), 1, rtol=1e-6)
