"""Sparse tables of POMDPs against dense ones, and the domains' optima against independent computations."""

import json
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics
from baddr.domains import (
    collision_avoidance,
    from_tables,
    gridverse,
    road_racing,
    sysadmin,
    tiger,
)
from baddr.domains.solving import finite_model, true_model
from baddr.domains.tables import observation_table, transition_table
from baddr.errors import UserError
from baddr.solve import listing
from baddr.solve.point_based import Budget, solve

VALUES = json.loads((Path(__file__).parents[1] / "data" / "values.json").read_text())


def dense(tables) -> np.ndarray:
    return np.stack([table.toarray() for table in tables])


DOMAINS = {
    "tiger": tiger.make_domain,
    "road racing": lambda: road_racing.make_domain(lanes=2),
    "collision avoidance": lambda: collision_avoidance.make_domain(size=3),
    "sysadmin": lambda: sysadmin.make_domain(computers=2),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_tables_are_those_of_the_dynamics(name: str) -> None:
    pomdp = DOMAINS[name]().pomdp
    model = listing.sparse_model(pomdp)
    T, O = transition_table(pomdp.dynamics, pomdp), observation_table(pomdp.dynamics, pomdp)
    T, O = np.asarray(T).swapaxes(0, 1), np.asarray(O)
    S, A = pomdp.num_states, pomdp.num_actions
    every = listing.all_vectors(pomdp.state_sizes)
    cells = [(a, s, t) for a, s, t in zip(*np.nonzero(T), strict=True)]
    given = [jnp.asarray(x, jnp.int32) for x in zip(*cells, strict=True)]
    states = jnp.asarray(every)
    both = eqx.filter_vmap(
        lambda a, s, t: (pomdp.reward(states[s], a, states[t]), pomdp.is_terminal(states[s], a, states[t]))
    )(*given)
    r, ends = np.zeros((A, S, S)), np.zeros((A, S, S), bool)
    r[np.nonzero(T)], ends[np.nonzero(T)] = both
    assert np.allclose(dense(model.T), np.where(ends, 0, T), atol=1e-5)
    assert np.allclose(model.R, (T * r).sum(axis=2), atol=1e-4)
    reached = dense(model.T).sum(axis=1) > 0  # [a, s']: elsewhere no observation matters
    assert np.allclose(dense(model.O)[reached], O[reached], atol=1e-5)
    assert np.allclose(dense(model.O).sum(axis=2), 1) and model.start_is_exact


@pytest.mark.parametrize("name", ["road racing", "collision avoidance"])
def test_what_is_drawn_and_what_is_listed_are_the_same(name: str, monkeypatch) -> None:
    """Observations are numbered anew where they are drawn: columns are compared as sets."""
    pomdp = DOMAINS[name]().pomdp
    listed = listing.sparse_model(pomdp)
    monkeypatch.setattr(listing, "ALL_STATES", 0)
    monkeypatch.setattr(listing, "ALL_OBSERVATIONS", 0)
    monkeypatch.setattr(listing, "DRAWS", 512)
    drawn = listing.sparse_model(pomdp)
    assert np.allclose(dense(drawn.T), dense(listed.T), atol=1e-6) and np.allclose(
        drawn.R, listed.R, atol=1e-4
    )
    one, other = (solve(model, Budget(1e-4, trials=50), 2) for model in (listed, drawn))
    assert one.lower == pytest.approx(other.lower, abs=1e-3)


def test_rows_that_draws_do_not_find_whole_are_listed(monkeypatch) -> None:
    pomdp = DOMAINS["road racing"]().pomdp
    whole = listing.sparse_model(pomdp)
    monkeypatch.setattr(listing, "ALL_STATES", 0)
    monkeypatch.setattr(listing, "DRAWS", 2)
    assert np.allclose(dense(listing.sparse_model(pomdp).T), dense(whole.T), atol=1e-6)


class Echo(SplitDynamics):
    """Two states, redrawn; what is heard is the state before."""

    def sample_state(self, key, s, a):
        return jr.bernoulli(key, shape=(1,)).astype(jnp.int32)

    def sample_observation(self, key, s, a, s_next):
        return s

    def transition_log_prob(self, s, a, s_next):
        return jnp.log(0.5)

    def observation_log_prob(self, s, a, s_next, o):
        return jnp.where(o[0] == s[0], 0.0, -jnp.inf)


class Room(POMDP):
    """Anything with two states: the reward is the next one."""

    dynamics: Dynamics
    state_sizes: tuple = eqx.field(static=True, default=(2,))
    observation_sizes: tuple = eqx.field(static=True, default=(2,))
    num_actions: int = eqx.field(static=True, default=1)
    discount: float = eqx.field(static=True, default=0.9)
    horizon: int = eqx.field(static=True, default=3)

    def initial_state(self, key):
        return jr.bernoulli(key, 0.25, shape=(1,)).astype(jnp.int32)

    def initial_observation(self, key, s):
        return s

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return s_next[0].astype(float)

    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def test_an_observation_of_the_state_before_is_refused() -> None:
    with pytest.raises(UserError, match=r"depends on the state before"):
        listing.sparse_model(Room(Echo()))


class Whole(Dynamics):
    """The next state is 1 with .75, and seen; its factors are not given apart."""

    def step(self, key, s, a):
        s_next = jr.bernoulli(key, 0.75, shape=(1,)).astype(jnp.int32)
        return s_next, s_next

    def observation_log_prob(self, s, a, s_next, o):
        return jnp.where(o[0] == s_next[0], 0.0, -jnp.inf)

    def log_prob(self, s, a, s_next, o):
        return jnp.log(jnp.where(s_next[0] == 1, 0.75, 0.25)) + self.observation_log_prob(s, a, s_next, o)


def test_dynamics_whose_factors_are_not_apart_are_summed_over_observations() -> None:
    model = listing.sparse_model(Room(Whole()))
    assert np.allclose(dense(model.T), [[[0.25, 0.75]] * 2], atol=1e-6)
    assert solve(model, Budget(1e-9), 3).lower == pytest.approx(0.75 * (1 + 0.9 + 0.81), abs=1e-5)


def test_a_start_that_is_drawn_is_said_to_be_estimated() -> None:
    """Of 65,536 draws the standard error is .0017."""
    p, exact = listing.start_of(Room(Whole()))
    assert not exact and abs(p[1] - 0.25) < 4 * 0.0017
    p, exact = listing.start_of(road_racing.make_domain(lanes=2).pomdp)
    assert exact and p.max() == 1.0 and np.count_nonzero(p) == 1


def test_too_many_states_are_refused_with_the_sizes() -> None:
    with pytest.raises(UserError, match=r"90,699,264 states, 3 actions and 6"):
        listing.sparse_model(road_racing.make_domain(lanes=9).pomdp)


def test_tables_of_arrays_keep_their_terminal_transitions() -> None:
    """From state 0 action 1 ends the episode with 5; action 0 stays for 1."""
    T = np.zeros((2, 2, 2))
    T[:, 0], T[:, 1] = np.eye(2), np.eye(2)[::-1]
    R = np.zeros((2, 2))
    R[0] = 1.0, 5.0
    domain = from_tables(T, np.ones((2, 2, 1)), R, [1.0, 0.0], 0.5, horizon=3, terminal=[1])
    model, horizon = true_model(domain)
    assert horizon == 3 and model.T[1].toarray()[0].sum() == 0
    # Twice 1, then 5: 1 + .5 + .25 * 5 = 2.75; 5 at once is more.
    assert solve(model, Budget(1e-9), horizon).lower == pytest.approx(5.0)
    assert np.array_equal(finite_model(domain.pomdp, domain.pomdp.dynamics).R, model.R)


def optimum(domain, precision: float = 1e-3, trials: int = 300):
    model, horizon = true_model(domain)
    return solve(model, Budget(precision, trials=trials), horizon)


def test_the_optimum_of_tiger() -> None:
    known, found = VALUES["tiger/optimal_gamma.95/disc"], optimum(tiger.make_domain())
    assert found.gap <= 1e-3 and found.lower - 1e-4 <= known["value"] <= found.upper + 1e-4


@pytest.mark.parametrize("size", [3, 5])
def test_the_optimum_of_collision_avoidance(size: int) -> None:
    """Its tables are float32 logarithms: a collision costs 1000, so that they hold to some 1e-3."""
    known = VALUES[f"ca/N={size} gamma=0.95/pomdp"]
    found = optimum(collision_avoidance.make_domain(size=size))
    assert found.gap <= 1e-3 and found.lower - 5e-3 <= known["value"] <= found.upper + 5e-3


@pytest.mark.parametrize(("size", "forward"), [(8, 4), pytest.param(32, 8, marks=pytest.mark.slow)])
def test_the_optimum_of_gridverse(size: int, forward: int) -> None:
    known = VALUES[f"gridverse/walls strafe=False k={forward}/{size}/corner_return"]
    found = optimum(gridverse.make_domain(size=size, forward_length=forward))
    assert found.gap <= 1e-3 and found.lower - 1e-4 <= known["value"] <= found.upper + 1e-4


def test_the_bounds_of_road_racing_agree_with_others() -> None:
    """Known bounds: 46.868 and 47.618."""
    found = optimum(road_racing.make_domain(lanes=3), trials=5)
    assert found.lower <= 47.618 and found.upper >= 46.868


def test_what_is_rare_is_not_lost(monkeypatch):
    """A step that costs a million once in 20,000 times: 64 draws do not meet it, so all states are tried. The
    risky action is worth -50, the safe one -1."""
    monkeypatch.setattr(listing, "ALL_STATES", 2)
    T = np.zeros((3, 2, 3))
    T[0, 0], T[0, 1], T[1:, :, 2] = (0, 5e-5, 1 - 5e-5), (0, 0, 1), 1
    R = np.zeros((3, 2, 3))
    R[0, 0, 1], R[0, 1] = -1e6, -1
    domain = from_tables(T, np.ones((2, 3, 1)), R, [1, 0, 0], 0.9, horizon=1)
    solution = solve(listing.sparse_model(domain.pomdp), Budget(), 1)
    assert solution.lower == pytest.approx(-1) and solution.upper == pytest.approx(-1)
