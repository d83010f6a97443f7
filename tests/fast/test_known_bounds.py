"""Bounds of a known model, by the solver: they enclose the value of every belief, for any steps left."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from baddr import exact, prng
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import collision_avoidance, from_tables, t_maze
from baddr.fast.known_bounds import known_bounds, known_tables, sources
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.belief_tree.bounds import Bounds
from baddr.planners.belief_tree.nodes import TableNodes, bounds_of
from baddr.posteriors import Known

S, A, Z, HORIZON = 3, 2, 2, 5
LONG, SHORT = 0.5, 0.95  # discounts: gamma^horizon is .03 or .77


def model(seed: int, rewards: float, discount: float, ends: float):
    draw = np.random.default_rng(seed)
    T, O = draw.dirichlet(np.ones(S), (S, A)), draw.dirichlet(0.3 * np.ones(Z), (A, S))
    R, p0 = draw.normal(size=(S, A, S)) + rewards, draw.dirichlet(np.ones(S))
    terminal = draw.random((S, A, S)) < ends
    domain = from_tables(T, O, R, p0, discount, horizon=HORIZON, terminal=terminal)
    return domain.pomdp, p0


@pytest.mark.cover
@pytest.mark.parametrize("discount", [LONG, SHORT])
@pytest.mark.parametrize(
    ("seed", "rewards", "ends"), [(0, 0.0, 0.0), (1, 3.0, 0.0), (2, -3.0, 0.0), (3, -3.0, 0.4)]
)
def test_the_value_lies_between_them(seed, rewards, ends, discount):
    """Rewards of both signs: a policy that goes on for ever earns or loses something after the last step, and
    nothing where its episode has ended."""
    pomdp, p0 = model(seed, rewards, discount, ends)
    gba = GBAPOMDP(pomdp, Known(pomdp.dynamics))
    bounds = known_bounds(BeliefTree().build(), gba, known_tables(gba))
    assert bounds.lower.shape[1] > A  # the solver's vectors are among them
    draw = np.random.default_rng(9)
    for h in range(1, HORIZON + 1):
        for b in (p0, draw.dirichlet(np.ones(S)), np.eye(S)[0]):
            value, _ = exact.expectimax(exact.tabulate(pomdp, b), steps=h)
            below, above = bounds.everywhere(jnp.int32(h)).bound(jnp.asarray(b, jnp.float32))
            assert below <= value + 1e-4 and value <= above + 1e-4
    value, _ = exact.expectimax(exact.tabulate(pomdp, p0), steps=HORIZON)
    tight = bounds.everywhere(jnp.int32(HORIZON)).bound(jnp.asarray(p0, jnp.float32))
    loose = known_bounds_of_blind_policies(gba)
    assert float(tight[1] - tight[0]) <= loose + 1e-5
    if discount == SHORT:  # there is a vector for each number of steps left: the solver's value
        np.testing.assert_allclose(tight[0], value, atol=2e-3)


def test_a_domains_own_bounds_stand_beside_the_solvers():
    """The T-maze's own policies never look at the cue; the solver's do."""
    domain = t_maze.make_domain(length=2, horizon=4)
    pomdp = domain.pomdp
    gba = GBAPOMDP(pomdp, Known(pomdp.dynamics))
    how = replace(BeliefTree().build(), own=(domain.lower, domain.upper))
    b = jnp.asarray(pomdp.start, jnp.float32)
    found = known_bounds(how, gba, known_tables(gba)).everywhere(jnp.int32(4)).bound(b)
    alone = Bounds(None, None, how.own, pomdp.state_sizes).everywhere(jnp.int32(4)).bound(b)
    value, _ = exact.expectimax(exact.tabulate(pomdp, pomdp.start), steps=4)
    assert alone[0] < value - 0.5 and found[1] <= alone[1]
    np.testing.assert_allclose(found[0], value, atol=2e-3)


def test_looking_up_what_leads_to_a_state_is_the_product_with_all():
    """Collision avoidance: 125 states, at most 9 of which lead to one; nothing before where all may."""
    domain = collision_avoidance.make_domain(size=5)
    tables = known_tables(GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics)))
    assert tables is not None and tables.before is not None
    w = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(125)), jnp.float32)
    nodes = [TableNodes(tables=x, weights=w, num_children=16) for x in (tables, tables._replace(before=None))]
    one, other = (x.expand(prng.key(0), w, (), jnp.array(False)) for x in nodes)
    np.testing.assert_allclose(one.W, other.W, atol=1e-6)
    assert sources(np.full((1, 3, 3), 1 / 3)) is None


def known_bounds_of_blind_policies(gba: GBAPOMDP) -> float:
    """The gap at the start without the solver."""
    tables = known_tables(gba)
    assert tables is not None
    found = bounds_of(tables, gba.discount, HORIZON, (None, None), gba.state_sizes)
    below, above = found.everywhere(jnp.int32(HORIZON)).bound(gba.pomdp.start)
    return float(above - below)
