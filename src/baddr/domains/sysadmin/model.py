"""Sysadmin (Guestrin et al. 2003, as a POMDP): keep the computers of a network running.

State: n computers, 0 failed or 1 running, all running at first. Actions 0 ... n - 1 look at computer c, and
n ... 2n - 1 reboot it; both show whether it runs, correctly with .95. In a step a running computer fails with
probability 1 - (1 - .025)(1 - .075)^k, where k of its neighbours have failed, and a failed one stays failed;
then a reboot sets its computer running with .95. (.025 and .075 are settings.) The reward is the number of
computers that run after the step, less 1 for a reboot. Never terminal; the horizon of 20 steps is our choice.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State
from baddr.core.posterior import sample
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.sysadmin.settings import SysadminSettings, names
from baddr.domains.sysadmin.view import RENDERER
from baddr.domains.tables import observation_table, transition_table
from baddr.posteriors import Counts, Factored, Graph
from baddr.posteriors.factored import Node, Tie, expected_dynamics, parents

REPAIR = 0.95
ACCURACY = 0.95
REBOOT_COST = 1.0
MOST_COMPUTERS_OF_A_TABLE = 5  # a flat T has 2n 4^n counts: 10,240 for five


class Sysadmin(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, computers: int, dynamics: Dynamics, discount: float = 0.95, horizon: int = 20):
        self.dynamics, self.discount, self.horizon = dynamics, discount, horizon
        self.state_sizes, self.observation_sizes = (2,) * computers, (2,)
        self.num_actions = 2 * computers

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jnp.ones((len(self.state_sizes),), jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.ones((1,), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.sum(s_next).astype(float) - jnp.where(a >= len(self.state_sizes), REBOOT_COST, 0.0)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return jnp.array(False)


def neighbours(i: int, computers: int, topology: str) -> list[int]:
    """In a line, the one before and the one after; none where computers are independent."""
    return [j for j in (i - 1, i + 1) if 0 <= j < computers] if topology == "linear" else []


class Totals(NamedTuple):
    """Of the counts of a row."""

    running: float
    seen: float


class Rates(NamedTuple):
    """How computers fail, in a step."""

    failure: float = 0.025  # of a computer on its own
    infection: float = 0.075  # more, for each neighbour that has failed


def keeps_running(rates: Rates, running: int, failed_neighbours: int, rebooted: bool) -> float:
    """The probability that a computer runs after a step."""
    p = running * (1 - rates.failure) * (1 - rates.infection) ** failed_neighbours
    return p + REPAIR * (1 - p) if rebooted else p


def graph(computers: int, topology: str, rates: Rates, total: Totals, learned: bool = True) -> Graph:
    """Each computer depends on itself and its neighbours, and what is seen on the computer looked at."""

    def row(rebooted: bool) -> Callable[..., Sequence[float]]:
        def counts(running: int, *others: int) -> Sequence[float]:
            p = keeps_running(rates, running, others.count(0), rebooted)
            return total.running * (1 - p), total.running * p

        return counts

    def alike(rebooted: bool) -> Callable[..., Tie]:
        """One row for all computers: by its status, the number of failed neighbours and a reboot."""

        def tie(running: int, *others: int) -> Tie:
            return Tie((running, others.count(0), rebooted), tuple(row(rebooted)(running, *others)), (0, 1))

        return tie

    def computer(i: int) -> tuple[Node, ...]:
        of = parents("s", [i, *neighbours(i, computers, topology)])
        booted = [a == computers + i for a in range(2 * computers)]
        return tuple(Node(of, row(yes), learned, tie=alike(yes)) for yes in booted)

    def seen(state: int) -> Sequence[float]:
        return tuple(total.seen * (ACCURACY if o == state else 1 - ACCURACY) for o in range(2))

    looks = [parents("s_next", [a % computers]) for a in range(2 * computers)]
    status = tuple(
        Node(of, seen, learned, tie=lambda x: Tie(("seen", x), tuple(seen(x)), (0, 1))) for of in looks
    )
    T = tuple(map(computer, range(computers)))
    return Graph((2,) * computers, (2,), 2 * computers, T, (status,))


@takes_fields_of(SysadminSettings)
def make_domain(settings: SysadminSettings) -> Domain:
    """Sysadmin with a prior of `prior_total` counts a row, which expects the truth unless told otherwise."""
    computers, topology = settings.computers, settings.topology
    total = Totals(settings.prior_total, settings.prior_observation_total)
    true_rates = Rates(settings.failure, settings.infection)
    believed = Rates(settings.prior_failure, settings.prior_infection)
    truth = expected_dynamics(graph(computers, topology, true_rates, Totals(1.0, 1.0), False))
    pomdp = Sysadmin(computers, truth, settings.discount, settings.horizon)
    prior = graph(computers, topology, believed, total)
    drawn = Factored(
        graph(computers, topology, believed, total._replace(running=settings.certainty)), expected=False
    )
    expected = expected_dynamics(prior)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """Each row of how computers fail from Dirichlet(c * its expectation)."""
        return sample(drawn, key, drawn.prior(key))

    def flat_counts() -> Counts:
        T, O = transition_table(expected, pomdp), observation_table(expected, pomdp)
        return Counts(T * total.running, O * total.seen)

    return Domain(
        name="sysadmin",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=flat_counts() if computers <= MOST_COMPUTERS_OF_A_TABLE else None,
        graphs={"default": prior},
        names=names(settings),
        renderer=RENDERER,
    )
