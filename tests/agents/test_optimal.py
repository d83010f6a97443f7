"""Agent `optimal`: a solver's policy with the belief of a filter."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import baddr
from baddr.agents.base import Request
from baddr.agents.optimal import Optimal, Solver
from baddr.core.filters import Importance
from baddr.core.particles import Particles
from baddr.domains import road_racing, tiger
from baddr.domains.solving import true_model
from baddr.errors import UserError
from baddr.solve.acting import ByVectors
from baddr.solve.point_based import Budget, solve
from baddr.solve.policy import act

LEFT, RIGHT, LISTEN = range(3)


@pytest.fixture(scope="module")
def solved():
    domain = tiger.make_domain()
    model, horizon = true_model(domain)
    return domain, solve(model, Budget(1e-3), horizon)


def test_tiger_is_opened_at_a_net_evidence_of_three(solved) -> None:
    """As the optimum does, while there is time."""
    _, solution = solved
    for net in range(-5, 6):
        p = 0.85**net / (0.85**net + 0.15**net)
        wanted = LISTEN if abs(net) < 3 else LEFT if net > 0 else RIGHT
        assert act(solution, np.array([p, 1 - p]), steps_left=20) == wanted


def test_values_are_those_of_the_vectors_for_the_steps_left(solved) -> None:
    domain, solution = solved
    s = jr.randint(baddr.key(0), (5, 64, 1), 0, 2)
    log_weights = jnp.log(jr.dirichlet(baddr.key(1), jnp.ones(64), (5,)))
    left = jnp.array([30, 1, 2, 7, 30])
    plan = ByVectors(solution).plan(
        jr.split(baddr.key(2), 5), domain.pomdp, Particles(s, log_weights), left, jnp.ones(5, bool)
    )
    w = np.exp(np.asarray(log_weights, np.float64))
    for run in range(5):
        b = np.array([w[run][np.asarray(s[run, :, 0]) == door].sum() for door in range(2)])
        values = np.full(3, -np.inf)
        for alpha, a, steps in zip(solution.alphas, solution.actions, solution.steps_left, strict=True):
            if steps == left[run]:
                values[a] = max(values[a], alpha @ b)
        assert np.allclose(plan.Q[run], values, atol=1e-3)
        assert np.argmax(plan.Q[run]) == act(solution, b, int(left[run]))


@pytest.mark.slow
def test_it_returns_the_optimum_on_tiger() -> None:
    """3.770. An episode deviates by 8.5, so that the mean over 4096 has a standard error of .13; the filter's
    1024 particles cost less."""
    table = baddr.run("tiger", "optimal", runs=512, episodes=8, **{"filter.num_particles": 1024})
    mean, error = np.mean(table["discounted_return"]), np.std(table["discounted_return"]) / 64
    assert error < 0.15 and abs(mean - 3.770) < 4 * error


def test_what_is_too_large_is_refused_before_anything_is_made() -> None:
    request = Request(road_racing.make_domain(lanes=9))
    with pytest.raises(UserError, match="too large to solve: 90,699,264 states"):
        Optimal(Solver(), Importance()).build(request)


def test_settings_that_are_wrong_are_named() -> None:
    agent = replace(Optimal(), solver=Solver(precision=-1.0, trials=-1))
    assert len(agent.problems()) == 2 and all("solver." in sentence for sentence in agent.problems())
