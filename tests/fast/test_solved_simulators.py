"""Policies of simulators that were solved: bounds in their own simulator, of use once a belief is certain."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baddr import exact, prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import Dynamics
from baddr.domains import from_tables, gridverse, rock_sample
from baddr.errors import UserError
from baddr.fast import solved_simulators as module
from baddr.fast.choose import fast_planner, fast_pomdp
from baddr.fast.solved_simulators import SolvedSimulators, solved_simulators
from baddr.planners.belief_tree import BeliefTree
from baddr.planners.belief_tree.bounds import NONE, Bounds
from baddr.posteriors.bank import Bank, bank_of, draw_bank
from baddr.solve.listing import sparse_model
from baddr.solve.point_based import Budget, solve

S, A, Z, HORIZON = 3, 2, 2, 4
LONG, SHORT = 0.5, 0.95  # discounts: gamma^horizon is .06 or .81


def domain(discount: float, seed: int = 0):
    """Rewards of both signs, steps that may end the episode, and simulators drawn from counts."""
    draw = np.random.default_rng(seed)
    T, O = draw.dirichlet(np.ones(S), (S, A)), draw.dirichlet(0.3 * np.ones(Z), (A, S))
    R, terminal = draw.normal(size=(S, A, S)), draw.random((S, A, S)) < 0.2
    return from_tables(T, O, R, np.ones(S) / S, discount, horizon=HORIZON, terminal=terminal)


def solved(made, number: int = 4) -> SolvedSimulators:
    found = solved_simulators(BeliefTree(num_solved=number).build(made), made.pomdp)
    assert found is not None
    return found


def bank_in(made, members: int) -> tuple[GBAPOMDP, Bank]:
    bank = draw_bank(prng.key(3), made.sample_simulator, members)
    return fast_pomdp(GBAPOMDP(made.pomdp, bank)), bank


@pytest.mark.parametrize("discount", [LONG, SHORT])
def test_a_policy_is_a_bound_in_its_own_simulator(discount, monkeypatch):
    """Beside exhaustive search in each simulator; and some policy is nearly as good as the best."""
    made, simulators = domain(discount), []
    model_of = module.model_of
    monkeypatch.setattr(module, "model_of", lambda pomdp, D: simulators.append(D) or model_of(pomdp, D))
    policies = solved(made).policies
    assert len(simulators) == policies.num_models == 4
    draw = np.random.default_rng(1)
    for j, D in enumerate(simulators):
        world = replace(made.pomdp, dynamics=D)
        for h in range(1, HORIZON + 1):
            values = np.asarray(policies.at(jnp.arange(S), jnp.int32(j), jnp.int32(h)))
            for b in (np.ones(S) / S, draw.dirichlet(np.ones(S))):
                best, _ = exact.expectimax(exact.tabulate(world, b), steps=h)
                assert np.max(b @ values) <= best + 1e-4
        if discount == SHORT:
            best, _ = exact.expectimax(exact.tabulate(world, np.ones(S) / S), steps=HORIZON)
            values = np.asarray(policies.at(jnp.arange(S), jnp.int32(j), jnp.int32(HORIZON)))
            assert np.max(np.mean(values, axis=0)) > best - 0.02


def copies_of(D: Dynamics) -> Bank:
    """A bank that is certain."""
    return bank_of(jax.tree.map(lambda x: jnp.stack([x, x]), D), 2)


def test_those_that_differ_are_solved_and_the_nearest_is_found():
    """A bank of a single simulator over and over is certain of it; a whole bank is not certain of any."""
    made = rock_sample.make_domain(size=2, rocks=1, horizon=60)
    found = solved(made, number=5)
    assert found.policies.num_models == 5
    for half in (0.3, 2.0, 40.0):
        D = rock_sample.make_domain(size=2, rocks=1, half_distance=half).pomdp.dynamics
        gba = fast_pomdp(GBAPOMDP(made.pomdp, copies_of(D)))
        belief = initial_belief(prng.key(0), gba, 64)
        j = int(found.nearest(prng.key(1), gba, belief))
        own = np.asarray(jnp.maximum(eqx.filter_vmap(D.log_prob)(*found.steps), np.log(1e-3)))
        assert j == int(np.argmin(np.sum((np.asarray(found.log_p) - own) ** 2, axis=1)))
    gba, _ = bank_in(made, 64)
    assert int(found.nearest(prng.key(1), gba, initial_belief(prng.key(0), gba, 64))) == NONE


def test_of_no_model_they_promise_nothing():
    """Then a plan is that without them, to the last bit."""
    made = domain(SHORT)
    policies = solved(made).policies
    s, h, b = jnp.arange(S)[:, None], jnp.int32(3), jnp.ones((1, S)) / S
    lower = jnp.full((HORIZON + 1, 1, S), -5.0)
    alone = Bounds(lower, -lower, (None, None), (S,))
    with_none = replace(alone, policies=(policies, jnp.int32(NONE)))
    with_one = replace(alone, policies=(policies, jnp.int32(1)))
    np.testing.assert_array_equal(alone.at(s, h).bound(b)[0], with_none.at(s, h).bound(b)[0])
    assert with_one.at(s, h).bound(b)[0] > -5.0


def test_a_plan_has_them_where_the_belief_is_certain():
    """A bank whose members are all alike, on a map where blind tours are worth little: what the tree promises
    is more with the solver's policies, and less than the solver's bound from above."""
    made = rock_sample.make_domain()
    gba = fast_pomdp(GBAPOMDP(made.pomdp, copies_of(made.pomdp.dynamics)))
    belief = initial_belief(prng.key(0), gba, 256)
    promised = {}
    for number in (0, 4):
        how = BeliefTree(num_expansions=2, num_particles=256, num_solved=number).build(made)
        planner = fast_planner(how, gba)
        alone = eqx.filter_jit(planner.plan)(
            prng.key(1)[None],
            gba,
            jax.tree.map(lambda x: x[None], belief),
            jnp.array([made.pomdp.horizon]),
            jnp.array([True]),
        )
        promised[number] = float(jnp.max(alone.Q))
    assert promised[0] < 15 and 17.5 < promised[4] < 19.5  # the optimum is 19.01


def test_what_cannot_be_solved_is_refused():
    with pytest.raises(UserError, match=r"too many\. Leave out --planner\.num-solved\.$"):
        solved(gridverse.make_domain(size=4))
    with pytest.raises(UserError, match="no `sample_simulator`"):
        solved(replace(domain(SHORT), sample_simulator=None))


def test_few_vectors_keep_what_an_episode_starts_with():
    """The solver's policy cut to a few vectors: that of the start is among them."""
    model = sparse_model(rock_sample.make_domain(size=4, rocks=4).pomdp)
    found = solve(model, Budget(trials=120, vectors=48))
    assert np.max(found.alphas @ model.start) > found.lower - 1e-9
