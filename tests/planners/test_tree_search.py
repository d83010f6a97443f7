"""PO-UCT against closed forms, exact planning, and a plain version in Python."""

import itertools
import json
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.core.filters import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, uniform_weights
from baddr.core.pomdp import POMDP, Dynamics, Table
from baddr.domains import tiger
from baddr.fast.table_search import _uniforms, search_tables
from baddr.planners.po_uct import best_action, effective_depth, ucb
from baddr.planners.po_uct import search as plain_search
from baddr.posteriors import Dirichlet, Known

DOMAIN = tiger.make_domain()
TRUE = GBAPOMDP(DOMAIN.pomdp, Known(DOMAIN.pomdp.dynamics))
search = eqx.filter_jit(plain_search)
VALUES = json.loads((Path(__file__).parent / "data" / "values.json").read_text())


def plan(gba, num_runs=1, seed=0, num_particles=64, **settings):
    settings = {"num_simulations": 256, "exploration": 100.0, "depth": 30, "steps_left": 30} | settings
    keys = jr.split(prng.key(seed), num_runs)
    beliefs = jax.vmap(lambda k: initial_belief(k, gba, num_particles))(keys)
    steps_left = jnp.full((num_runs,), settings.pop("steps_left"))
    return search(keys, gba, beliefs, steps_left=steps_left, **settings)


class Chain(POMDP):
    """States 0, 1, 2, ... walked by action 1; action 0 stays. The reward is the state arrived in."""

    dynamics: Dynamics
    discount: float = eqx.field(static=True, default=0.5)
    horizon: int = eqx.field(static=True, default=4)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(8,))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(2,))
    num_actions: int = eqx.field(static=True, default=2)
    end: int = eqx.field(static=True, default=99)

    def initial_state(self, key):
        return jnp.zeros((1,), jnp.int32)

    def initial_observation(self, key, s):
        return jnp.zeros((1,), jnp.int32)

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return s_next[0].astype(jnp.float32)

    def is_terminal(self, s, a, s_next):
        return s_next[0] >= self.end


def chain(**fields) -> Chain:
    T = np.zeros((8, 2, 8), np.float32)
    for s in range(8):
        T[s, 0, s] = T[s, 1, min(s + 1, 7)] = 1
    O = np.zeros((2, 8, 2), np.float32)
    O[:, :, 1] = 1  # always the same
    return Chain(dynamics=Table(jnp.asarray(T), jnp.asarray(O), (8,), (2,)), **fields)


def known(pomdp: POMDP) -> GBAPOMDP:
    """Small enough, and with enough observations, for a search in a kernel."""
    return GBAPOMDP(pomdp, Known(pomdp.dynamics), most_rows=1000)


def one_state_belief(num_runs: int = 1) -> Particles:
    states = jnp.zeros((num_runs, 1, 1), jnp.int32)
    return Particles(states, jnp.tile(uniform_weights(1), (num_runs, 1)))


def always_walk(key, s):
    return jnp.int32(1)


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_visits_sum_to_the_number_of_simulations(lanes):
    root = plan(TRUE, num_runs=3, num_simulations=300, lanes=lanes)
    assert np.all(np.asarray(root.N).sum(-1) == 300)


@pytest.mark.parametrize(("lanes", "method"), [(1, "lanes"), (4, "lanes"), (1, "loop"), (1, "kernel")])
def test_bandit_values_are_the_mean_rewards(lanes, method):
    """One step left: Q(open) is the mean of its rewards, and Q(listen) is -1 exactly.

    Visits in flight count, so exploration alone stays even, but for the lanes that choose at once.
    """
    settings = dict(num_particles=1000, num_simulations=600, exploration=1e6, steps_left=1)
    root = plan(TRUE, num_runs=64, lanes=lanes, method=method, **settings)
    Q, N = np.asarray(root.Q), np.asarray(root.N)
    assert np.all(Q[:, 2] == -1)
    assert np.all(np.abs(N - 200) < lanes)
    standard_error = 55 / np.sqrt(200 * 64)  # a reward is 10 or -100
    assert np.all(np.abs(Q[:, :2].mean(0) + 45) < 5 * standard_error)


def test_the_first_return_of_each_action_is_the_whole_rollout():
    """A deterministic chain: following `always_walk` below each child, Q is known exactly.

    One simulation per action makes one child each: Q(stay) = 0 + .5*1 + .25*2 + .125*3 and
    Q(walk) = 1 + .5*2 + .25*3 + .125*4.
    """
    root = search(
        jr.split(prng.key(0), 1),
        chain(),
        one_state_belief(),
        num_simulations=2,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4]),
        rollout=always_walk,
    )
    np.testing.assert_allclose(root.Q[0], [0 + 0.5 * 1 + 0.25 * 2 + 0.125 * 3, 1 + 1 + 0.75 + 0.5])


def leaf(s):
    return 10.0 + s[0].astype(jnp.float32)


def test_a_leaf_value_stands_for_the_rollout():
    """Three simulations of the chain, u = 0: a child each, then the better child's own first action.

    Q(stay) = 0 + .5*10 and Q(walk) = 1 + .5*11 first. The third goes below walk, where its first action a
    adds 1 + .5*(1 + a + .5*(11 + a)): the reward of arriving in 1 + a, and the leaf there. A simulation that
    ends an episode (steps_left 2) has no value below it.
    """
    settings = dict(num_simulations=3, exploration=0.0, depth=4, leaf_value=leaf)
    for steps_left, below in ((4, 0.5), (2, 0.0)):
        limit = jnp.full((16,), steps_left)
        root = search(jr.split(prng.key(0), 16), chain(), one_state_belief(16), steps_left=limit, **settings)
        third = [1 + 0.5 * (1 + a + below * (11 + a)) for a in (0, 1)]
        np.testing.assert_allclose(root.Q[:, 0], 5)
        walk = sorted((6.5 + x) / 2 for x in third)
        assert sorted(set(root.Q[:, 1].tolist())) == pytest.approx(walk)


@pytest.mark.parametrize("lanes", [1, 4])
def test_deep_tree_converges_to_the_optimum_of_the_chain(lanes):
    """Exact value by enumeration of all action sequences; the best sequence dominates the visits."""
    pomdp = chain(horizon=5)
    values = {}
    for sequence in itertools.product((0, 1), repeat=5):
        states = np.cumsum(sequence)
        values[sequence] = float(np.sum(states * 0.5 ** np.arange(5)))
    best = [max(v for q, v in values.items() if q[0] == a) for a in (0, 1)]
    root = search(
        jr.split(prng.key(0), 1),
        pomdp,
        one_state_belief(),
        num_simulations=20_000,
        exploration=0.5,
        depth=5,
        steps_left=jnp.array([5]),
        lanes=lanes,
    )
    Q = np.asarray(root.Q[0])
    assert Q[1] == pytest.approx(best[1], rel=0.02) and Q[1] > Q[0]
    assert np.all(Q <= np.array(best) + 1e-4)  # averages under exploration never exceed the optimum


def test_lanes_share_the_children_that_they_make():
    """Exploration alone walks every action sequence of the chain, and each has one node, with 8 lanes too."""
    root = search(
        jr.split(prng.key(0), 1),
        chain(),
        one_state_belief(),
        num_simulations=200,
        exploration=1e6,
        depth=4,
        steps_left=jnp.array([4]),
        lanes=8,
    )
    assert root.num_nodes[0] == 1 + 2 + 4 + 8


def test_terminal_steps_end_a_simulation():
    """The chain ends in state 1: walking gives 1 and no more, however deep the search."""
    root = search(
        jr.split(prng.key(0), 2),
        chain(end=1),
        one_state_belief(2),
        num_simulations=50,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4, 4]),
        rollout=always_walk,
    )
    np.testing.assert_allclose(root.Q[:, 1], 1.0)


def test_depth_is_limited_by_the_steps_left_of_each_run():
    root = search(
        jr.split(prng.key(0), 2),
        chain(),
        one_state_belief(2),
        num_simulations=2,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([1, 2]),
        rollout=always_walk,
    )
    np.testing.assert_allclose(root.Q, [[0, 1], [0.5, 2.0]])


def test_a_vanishing_discount_limits_the_depth_instead_of_dividing_by_zero():
    assert effective_depth(0.95, 30) == 30 and effective_depth(0.0, 30) == 1
    assert effective_depth(1.0, 30) == 30 and effective_depth(0.1, 30) == 3
    root = search(
        jr.split(prng.key(0), 1),
        chain(discount=0.0),
        one_state_belief(),
        num_simulations=20,
        exploration=1.0,
        depth=4,
        steps_left=jnp.array([4]),
    )
    np.testing.assert_allclose(root.Q[0], [0.0, 1.0])


def test_ucb_prefers_unvisited_actions_and_breaks_ties_at_random():
    N, Q = jnp.array([5.0, 0.0, 3.0]), jnp.array([100.0, 0.0, 0.0])
    keys = jr.split(prng.key(0), 2000)
    chosen = jax.vmap(lambda k: ucb(k, N, Q, 1.0))(keys)
    assert np.all(np.asarray(chosen) == 1)
    ties = jax.vmap(lambda k: ucb(k, jnp.ones(4), jnp.array([1.0, 0.0, 1.0, 1.0]), 1.0))(keys)
    counts = np.bincount(np.asarray(ties), minlength=4)
    assert counts[1] == 0 and np.all(np.abs(counts[[0, 2, 3]] - 2000 / 3) < 5 * np.sqrt(2000 * 2 / 9))


def test_ucb_formula():
    """Q + u sqrt(ln(1 + N(h)) / N(h, a)): the scores tie at this u, and flip around it."""
    N, Q = np.array([9.0, 1.0]), np.array([1.0, 0.0])
    u = 1 / (math.sqrt(math.log(11) / 1) - math.sqrt(math.log(11) / 9))
    choose = lambda u: int(ucb(prng.key(0), jnp.array(N, jnp.float32), jnp.array(Q, jnp.float32), u))
    assert choose(0.99 * u) == 0 and choose(1.01 * u) == 1


def test_a_run_alone_plans_as_in_a_batch():
    together, again = plan(TRUE, num_runs=4), plan(TRUE, num_runs=4)
    assert jnp.array_equal(together.Q, again.Q)  # same seed, same result
    keys = jr.split(prng.key(0), 4)
    belief = jax.vmap(lambda k: initial_belief(k, TRUE, 64))(keys[2:3])
    single = search(
        keys[2:3],
        TRUE,
        belief,
        num_simulations=256,
        exploration=100.0,
        depth=30,
        steps_left=jnp.array([30]),
    )
    np.testing.assert_allclose(single.Q[0], together.Q[2], rtol=1e-5)
    assert jnp.array_equal(single.N[0], together.N[2])


@pytest.mark.parametrize("method", ["lanes", "loop", "kernel"])
def test_inactive_runs_are_passed_over(method):
    keys = jr.split(prng.key(0), 3)
    beliefs = jax.vmap(lambda k: initial_belief(k, TRUE, 8))(keys)
    root = search(
        keys,
        TRUE,
        beliefs,
        num_simulations=32,
        exploration=100.0,
        depth=30,
        steps_left=jnp.full((3,), 30),
        active=jnp.array([True, False, True]),
        method=method,
    )
    assert np.asarray(root.N).sum(-1).tolist() == [32, 0, 32]
    assert np.asarray(root.num_steps)[1] == 0


def test_best_action_takes_only_tried_actions():
    root = plan(TRUE, num_simulations=2, num_runs=16)
    a = jax.vmap(best_action)(jr.split(prng.key(1), 16), root)
    tried = np.asarray(root.N)[np.arange(16), np.asarray(a)]
    assert np.all(tried > 0)


def test_planning_without_root_sampling_learns_inside_the_simulation():
    """The same GBA-POMDP, planned in as the POMDP it is: both ways agree on what to do first.

    4096 simulations, as 1000 are too few for tiger: one of eight such searches opened a door at once.
    """
    posterior = Dirichlet(DOMAIN.counts, *tiger.SIZES)
    sampled = plan(GBAPOMDP(DOMAIN.pomdp, posterior), num_runs=8, num_simulations=4096)
    learning = plan(GBAPOMDP(DOMAIN.pomdp, posterior, root_sampling=False), num_runs=8, num_simulations=4096)
    assert np.all(np.argmax(np.asarray(learning.Q), -1) == 2)
    gap = np.asarray(sampled.Q[:, 2]).mean() - np.asarray(learning.Q[:, 2]).mean()
    spread = np.asarray(sampled.Q[:, 2]).std() + np.asarray(learning.Q[:, 2]).std()
    assert abs(gap) < 4 * spread / np.sqrt(8)


POSTERIORS = {
    "known": Known(DOMAIN.pomdp.dynamics),
    "counts": Dirichlet(DOMAIN.counts, *tiger.SIZES),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_tables_are_searched_as_the_pomdp_is(name):
    """Visits, values and nodes of 200 searches of 150 simulations, means within 4 standard errors; the
    tiger goes on after a door is opened, so all of D is used, and every simulation takes all its steps."""
    gba = GBAPOMDP(Continuing(DOMAIN.pomdp.dynamics), POSTERIORS[name])
    settings = dict(num_runs=200, num_simulations=150, exploration=30.0, depth=6)
    lanes = plan(gba, method="lanes", seed=1, **settings)
    loop, kernel = (plan(gba, method=m, **settings) for m in ("loop", "kernel"))
    assert np.all(np.asarray(kernel.num_steps) == 150 * 6)
    # The same random numbers: only where rounding turns a choice do the two part.
    assert np.mean(np.all(np.asarray(loop.N) == np.asarray(kernel.N), axis=1)) > 0.9
    for ours, theirs in zip(loop[:3], lanes[:3], strict=True):
        ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
        standard_error = np.sqrt((ours.var(0) + theirs.var(0)) / 200)
        assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4 * standard_error)


class Continuing(tiger.Tiger):
    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def test_the_kernel_is_exact_where_nothing_is_random():
    """With one step left walking is worth 1 and staying 0; with two, 1 + .5 (1 or 2) and .5 (0 or 1): the
    first visit of a child is a rollout, and exploration alone then visits its actions in turn."""
    pomdp = known(chain(horizon=2))
    for steps_left, Q in ((1, [0.0, 1.0]), (2, [0.25, 1.75])):
        root = plan(pomdp, 5, num_simulations=402, exploration=1e6, steps_left=steps_left, method="kernel")
        np.testing.assert_allclose(root.Q, [Q] * 5, atol=0.01)
        assert np.all(np.asarray(root.N) == 201)
        assert np.all(np.asarray(root.num_nodes) == (1 if steps_left == 1 else 3))


@pytest.mark.skipif(
    jax.__version_info__ > (0, 10, 2), reason="this JAX lowers for a GPU only where it has one"
)
def test_the_kernel_compiles_for_a_gpu_at_the_size_of_the_paper():
    def searched(keys, beliefs):
        s, limit = jnp.zeros((2048, 4096), jnp.int32), jnp.full((2048,), 30)
        tables, active = TRUE.tables(beliefs, (s, ())), limit > 0
        settings = dict(discount=0.95, exploration=100.0, depth=30, kernel=True)
        return search_tables(keys, tables, s, limit, active, **settings)

    keys = jax.ShapeDtypeStruct((2048,), prng.key(0).dtype)
    beliefs = jax.eval_shape(jax.vmap(lambda k: initial_belief(k, TRUE, 1024)), keys)
    lowered = jax.jit(searched).trace(keys, beliefs).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()


# A second version: recursion, dictionaries, and the formulas as printed.


def plain_pouct(generator, num_simulations, u=100.0, depth=30, gamma=0.95, accuracy=0.85):
    tree = {}

    def step(s, a):
        if a == 2:
            o = s if generator.random() < accuracy else 1 - s
            return s, o, -1.0, False
        return int(generator.integers(2)), 2, 10.0 if a == s else -100.0, True

    def rollout(s, d):
        total, weight = 0.0, 1.0
        while d < depth:
            s, _, r, end = step(s, int(generator.integers(3)))
            total, weight, d = total + weight * r, weight * gamma, d + 1
            if end:
                break
        return total

    def simulate(s, d, h):
        if d == depth:
            return 0.0
        N, Q = tree[h]
        bonus = [Q[a] + u * math.sqrt(math.log(1 + sum(N)) / N[a]) if N[a] else math.inf for a in range(3)]
        best = [a for a in range(3) if bonus[a] == max(bonus)]
        a = int(generator.choice(best))
        s_next, o, r, end = step(s, a)
        if not end and d + 1 < depth:
            child = (*h, a, o)
            if child in tree:
                r += gamma * simulate(s_next, d + 1, child)
            else:
                tree[child] = ([0] * 3, [0.0] * 3)
                r += gamma * rollout(s_next, d + 1)
        N[a] += 1
        Q[a] += (r - Q[a]) / N[a]
        return r

    tree[()] = ([0] * 3, [0.0] * 3)
    for _ in range(num_simulations):
        simulate(int(generator.integers(2)), 0, ())
    return tree[()]


@pytest.mark.parametrize("method", ["lanes", "loop", "kernel"])
def test_same_distribution_as_a_plain_version(method):
    """Root visits and values over 200 searches of 100 simulations each; means within 4 standard errors."""
    generator = np.random.default_rng(0)
    plain = [plain_pouct(generator, 100) for _ in range(200)]
    fast = plan(TRUE, num_runs=200, num_particles=1024, num_simulations=100, method=method)
    for ours, theirs in (
        (np.asarray(fast.N), np.array([N for N, _ in plain])),
        (np.asarray(fast.Q), np.array([Q for _, Q in plain])),
    ):
        standard_error = np.sqrt(ours.var(0) / 200 + theirs.var(0) / 200)
        assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4 * standard_error)


def test_no_search_value_of_tiger_exceeds_the_optimum():
    root = plan(TRUE, num_runs=16, num_particles=1024, num_simulations=4096)
    assert np.all(np.asarray(root.Q).max(-1) < VALUES["tiger/optimal_gamma.95/disc"]["value"])
    assert np.all(np.argmax(np.asarray(root.Q), -1) == 2)


def plain_chain(generator, num_simulations, u, depth, gamma):
    """The same recursion on the chain, whose histories are its action sequences."""
    tree = {(): ([0, 0], [0.0, 0.0])}

    def simulate(s, d, h):
        if d == depth:
            return 0.0
        new = h not in tree
        if new:  # expand, then roll out uniformly: nothing below is counted
            tree[h] = ([0, 0], [0.0, 0.0])
            total = 0.0
            for i in range(depth - d):
                s += int(generator.integers(2))
                total += gamma**i * s
            return total
        N, Q = tree[h]
        score = [Q[a] + u * math.sqrt(math.log(1 + sum(N)) / N[a]) if N[a] else math.inf for a in (0, 1)]
        a = int(generator.choice([a for a in (0, 1) if score[a] == max(score)]))
        r = s + a + gamma * simulate(s + a, d + 1, (*h, a))
        N[a] += 1
        Q[a] += (r - Q[a]) / N[a]
        return r

    for _ in range(num_simulations):
        simulate(0, 0, ())
    return tree[()]


@pytest.mark.parametrize("method", ["lanes", "loop", "kernel"])
def test_each_level_backs_up_the_return_from_its_own_level(method):
    """gamma = .3: a return that is not divided by gamma^j looks too small below the root, and the choices
    there turn into exploration. 300 searches each; means within 4 standard errors."""
    generator = np.random.default_rng(0)
    plain = np.array([plain_chain(generator, 100, 0.5, 5, 0.3)[1] for _ in range(300)])
    pomdp = known(chain(discount=0.3, horizon=5))
    settings = dict(num_simulations=100, exploration=0.5, depth=5, num_particles=1)
    fast = plan(pomdp, num_runs=300, steps_left=5, method=method, **settings)
    ours = np.asarray(fast.Q)
    standard_error = np.sqrt((ours.var(0) + plain.var(0)) / 300)
    assert np.all(np.abs(ours.mean(0) - plain.mean(0)) < 4 * standard_error)


def test_the_three_numbers_of_a_step_are_uniform_and_independent():
    """Chi-square over 8^3 boxes (mean 511, standard deviation 32.0) and, for the number that is put together
    from two bytes, over 4096 intervals (mean 4095, standard deviation 90.5): within 4 of them."""
    n = 409_600
    u = _uniforms((jnp.uint32(7), jnp.uint32(11)), jnp.arange(n, dtype=jnp.int32))
    boxes = np.histogramdd(np.stack(u, axis=1), bins=8, range=[(0, 1)] * 3)[0]
    assert abs(((boxes - n / 512) ** 2).sum() / (n / 512) - 511) < 4 * 32.0
    intervals = np.histogram(u[0], bins=4096, range=(0, 1))[0]
    assert abs(((intervals - n / 4096) ** 2).sum() / (n / 4096) - 4095) < 4 * 90.5
