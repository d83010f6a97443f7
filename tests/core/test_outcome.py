"""What is seen besides o: after opening a door, the reward says which one was good; and a machine that stands
a test is more likely a strong one, though its test shows nothing."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baddr
from baddr import exact, prng
from baddr.agents.members import with_reach
from baddr.agents.moves import ends_of
from baddr.core.agent import Agent
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.outcome import state_tells_ends
from baddr.domains import from_tables, tiger
from baddr.domains.catalog import DOMAINS, entry
from baddr.lab.history import Episode, replay
from baddr.planners.uniform import Uniform
from baddr.posteriors import Counts, Dirichlet, Known
from baddr.posteriors.bank import bank_of
from baddr.posteriors.exact_filter import ExactFilter
from baddr.posteriors.gibbs import GibbsCounts, gibbs_counts
from baddr.posteriors.memory import remember

N = 4096
FILTERS = [Importance(N, rewards=True), Rejection(N, rewards=True)]
DOMAIN = tiger.make_domain()
GBA = GBAPOMDP(DOMAIN.pomdp, Dirichlet(DOMAIN.counts, *tiger.SIZES))


@pytest.mark.parametrize("how", FILTERS, ids=["importance", "rejection"])
@pytest.mark.parametrize(("r", "good"), [(10.0, 0), (-100.0, 1)])
def test_a_reward_tells_which_door_was_good(how, r, good):
    """Left is heard, then left is opened, and r seen: all particles have counted what they heard at the good
    door. Their share before was 5/8 to 3/8, and so is p(r)."""
    agent = Agent(GBA, how, Uniform())
    update = eqx.filter_jit(lambda b, a, o, r: agent.update(prng.key(1), b, a, o, False, True, r))
    belief = agent.initial_belief(prng.key(0))
    belief, _ = update(belief, jnp.int32(tiger.LISTEN), jnp.array([0], jnp.int32), jnp.float32(-1))
    belief, info = update(belief, jnp.int32(0), jnp.array([tiger.NULL], jnp.int32), jnp.float32(r))
    heard = np.asarray(belief.states.theta.O[:, tiger.LISTEN, :, 0]) - np.asarray(
        DOMAIN.counts.O[tiger.LISTEN, :, 0]
    )
    share = np.asarray(belief.weights) @ heard
    np.testing.assert_allclose(share, np.eye(2)[good], atol=1e-5)
    p = (5 / 8, 3 / 8)[good]
    assert abs(float(info.acceptance_rate) - p) < 5 * 0.5 / np.sqrt(N)


def test_without_rewards_the_door_stays_unknown():
    agent = Agent(GBA, Importance(N), Uniform())
    belief = agent.initial_belief(prng.key(0))
    for a, o, r in ((tiger.LISTEN, 0, -1.0), (0, tiger.NULL, 10.0)):
        seen = jnp.int32(a), jnp.array([o], jnp.int32)
        belief, _ = agent.update(prng.key(1), belief, *seen, r=jnp.float32(r))
    heard = np.asarray(belief.states.theta.O[:, tiger.LISTEN, 0, 0]) - float(
        DOMAIN.counts.O[tiger.LISTEN, 0, 0]
    )
    assert abs(np.asarray(belief.weights) @ heard - 5 / 8) < 5 * 0.5 / np.sqrt(N)


# Endings.

WEAK, STRONG, BROKEN = range(3)
TEST, BET = range(2)


def machine(start=(0.5, 0.5, 0.0)):
    """A weak machine breaks in a test with .9, and a strong one never does: that the episode goes on is all
    that one sees. A bet on a strong one pays 10, and costs 10 on a weak one."""
    T = np.zeros((3, 2, 3))
    T[WEAK, TEST], T[STRONG, TEST] = (0.1, 0, 0.9), (0, 1, 0)
    T[:, BET, BROKEN] = T[BROKEN, TEST, BROKEN] = 1
    R = np.zeros((3, 2, 3))
    R[:, TEST], R[STRONG, BET], R[WEAK, BET] = -0.1, 10, -10
    return from_tables(T, np.full((2, 3, 2), 0.5), R, start, 0.95, horizon=6, terminal=[BROKEN])


MACHINE = machine()
KNOWN = GBAPOMDP(MACHINE.pomdp, Known(MACHINE.pomdp.dynamics))
STANDS = jnp.int32(TEST), jnp.array([0], jnp.int32)


@pytest.mark.parametrize("how", [Importance(N), Importance(N, tries=3), Rejection(N)])
@pytest.mark.parametrize(("ended", "weak"), [(False, 1 / 11), (True, 1.0), (None, 0.5)])
def test_that_an_episode_goes_on_is_evidence(how, ended, weak):
    """By Bayes: .5 x .1 against .5 x 1. Where it ended, the machine was weak. Where nobody says, nothing is
    learned. Four standard errors."""
    agent = Agent(KNOWN, how, Uniform())
    belief = agent.initial_belief(prng.key(0))
    after, info = agent.update(prng.key(1), belief, *STANDS, ended)
    p = np.bincount(np.asarray(after.states.s)[:, 0], np.asarray(after.weights), 3)
    was_weak = p[WEAK] if ended is False else p[WEAK] + p[BROKEN]
    assert abs(was_weak - weak) < 4 * np.sqrt(0.25 / N)
    assert not info.impossible and (ended is None or p[BROKEN] == pytest.approx(float(ended)))


def test_the_exact_filter_knows_it_too():
    bank = bank_of(jax.tree.map(lambda x: jnp.stack([x, x]), MACHINE.pomdp.dynamics), 2)
    agent = Agent(GBAPOMDP(MACHINE.pomdp, with_reach(bank, MACHINE.pomdp)), ExactFilter(3), Uniform())
    belief = agent.initial_belief(prng.key(0))
    after, _ = agent.update(prng.key(1), belief, *STANDS, False)
    np.testing.assert_allclose(after.weights, [1 / 11, 10 / 11, 0], atol=1e-6)


def test_an_agent_acts_as_well_as_the_solver_says():
    """Testing until the machine is surely strong. `baddr solve` has 4.315125, as an enumeration has; without
    this evidence the agent had 2.05. Four standard errors."""
    r = baddr.run(MACHINE, "optimal", runs=256, episodes=8)["discounted_return"]
    assert abs(r.mean() - 4.315125) < 4 * r.std() / np.sqrt(len(r))


def test_a_history_may_go_on_where_it_had_better_ended():
    """With .81 the first test ends the episode: the second one says that it did not."""
    domain = machine((0.9, 0.1, 0.0))
    agent = Agent(GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics)), Importance(N), Uniform())
    after = replay(prng.key(0), agent, domain.pomdp, [Episode([TEST, TEST], [[0], [0]])])
    p = np.bincount(np.asarray(after.belief.states.s)[:, 0], np.asarray(after.belief.weights), 3)
    # After the first test 9 to 10; of the second nobody says how it went.
    np.testing.assert_allclose(p, [0.9 / 19, 10 / 19, 8.1 / 19], atol=4 * np.sqrt(0.25 / (0.19 * N)))


@pytest.mark.parametrize("how", [Importance(N, learn_terminal=False), Rejection(N, learn_terminal=False)])
def test_a_filter_that_does_not_learn_from_the_last_step_skips_it(how):
    agent = Agent(GBA, how, Uniform())
    belief = agent.initial_belief(prng.key(0))
    given = jnp.int32(0), jnp.array([tiger.NULL], jnp.int32)
    after, info = agent.update(prng.key(1), belief, *given, True)
    same = jax.tree.map(lambda x, y: np.array_equal(x, y), after, belief)
    assert all(jax.tree.leaves(same)) and not info.impossible and info.num_filled == 0
    learned, _ = agent.update(prng.key(1), belief, *given, False)
    assert not np.array_equal(learned.states.theta.T, belief.states.theta.T)


def test_the_state_tells_ends_in_few_domains():
    pomdp_of = lambda name: entry(name).make_domain(entry(name).settings).pomdp
    tells = {name for name in DOMAINS if state_tells_ends(pomdp_of(name))}
    assert not tells & {"tiger", "factored-tiger", "road-racing", "sysadmin", "light-dark"}
    assert state_tells_ends(MACHINE.pomdp) and "collision-avoidance" in tells


# A Gibbs sweep over histories that end as they did.

PRIOR = Counts(
    T=jnp.array([[[1.0, 0, 2], [0, 0, 1]], [[0, 3, 1], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]]),
    O=jnp.broadcast_to(jnp.array([[2.0, 1], [1, 2], [1, 1]]), (2, 3, 2)),
)
HISTORY = (((TEST, 0, False), (TEST, 0, False), (TEST, 1, True)), ((TEST, 1, False), (TEST, 0, False)))
P0 = np.array([0.5, 0.5, 0])
DRAWS = 20_000


@functools.cache
def enumerated():
    """p(s, counts | h), and the counts of each component."""
    tables = exact.DirichletTables(*(np.asarray(x, np.float64) for x in PRIOR))
    ends = np.asarray(ends_of(MACHINE.pomdp))
    b = exact.initial_mixture(tables, P0)
    for number, episode in enumerate(HISTORY):
        b = exact.next_episode(b, P0) if number else b
        for a, o, ended in episode:
            b, _ = exact.mixture_update(tables, b, a, o, ends[a] == ended)
    found = [(tables.counts(theta), s, w[s]) for theta, w in b.items() for s in range(3) if w[s] > 0]
    T, O = (np.stack([counts[i] for counts, _, _ in found]) for i in range(2))
    return T, O, np.array([s for _, s, _ in found], np.int32), np.array([w for *_, w in found])


def moments(T, O, s):
    x = np.concatenate([T.reshape(len(s), -1), O.reshape(len(s), -1), np.eye(3)[s]], axis=1)
    return np.concatenate([x, (x[:, :, None] * x[:, None]).reshape(len(s), -1)], axis=1)


@pytest.mark.parametrize("ends", [True, False])
def test_a_sweep_knows_how_episodes_ended(ends):
    """Draws from the enumerated posterior, moved, have its moments; not where the sweep ignores the ends."""
    T, O, s, w = enumerated()
    drawn = np.random.default_rng(0).choice(len(w), size=DRAWS, p=w / w.sum())
    posterior = Dirichlet(PRIOR, MACHINE.pomdp.state_sizes, MACHINE.pomdp.observation_sizes)
    table = ends_of(MACHINE.pomdp) if ends else None
    moves: GibbsCounts = gibbs_counts(posterior, P0, horizon=4, capacity=64, ends=table)
    memory, yes = moves.codes.empty(64), jnp.array(True)
    for episode in HISTORY:
        memory = memory._replace(first=yes)
        for a, o, ended in episode:
            given = jnp.int32(a), jnp.array([o], jnp.int32), jnp.array(ended)
            memory = remember(moves.codes, memory, given, yes, yes)
    counts = Counts(*(jnp.asarray(x[drawn], jnp.float32) for x in (T, O)))
    states = AugmentedState(jnp.asarray(s[drawn, None]), counts)
    (after, theta), _ = eqx.filter_jit(lambda states: moves.move(prng.key(1), states, memory))(states)
    every, p = moments(T, O, s), w / w.sum()
    found = moments(np.asarray(theta.T), np.asarray(theta.O), np.asarray(after)[:, 0]).mean(axis=0)
    error = np.sqrt(np.maximum(p @ every**2 - (p @ every) ** 2, 1e-12) / DRAWS)
    worst = np.max(np.abs(found - p @ every) / np.maximum(error, 1e-6))
    assert worst < 4.5 if ends else worst > 20
