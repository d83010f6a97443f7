"""Small POMDPs as tables: which inputs of D matter, and what D is there."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import numpy_logits, untrained, vectors

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.domains import tiger
from baddr.fast.choose import fast_pomdp, models_of
from baddr.fast.search import FastSearch
from baddr.fast.tables import Rows, Tabulated, _joint, rows_that_matter, tables, tabulate
from baddr.planners.tree_search import TreeSearch, sample_roots
from baddr.posteriors import Frozen
from baddr.posteriors.dropout import draw_masks, log_prob_of, unpack
from baddr.posteriors.settings import Network

SIZES = (3, 2), 2, (2, 3)  # two state features, two actions, two observation features


def make(network: Network, sizes=SIZES, **options):
    return untrained(network, sizes, **options)


def test_the_rows_that_matter_are_those_that_a_simulation_can_see():
    """Tiger: opening a door ends the episode, so only listening is tabulated. A reward on s' adds a row."""
    pomdp = tiger.make_domain().pomdp
    rows = rows_that_matter(pomdp, 32)
    assert rows == Rows(((0, 2), (1, 2)), tuple((s, 2, s_next) for s in (0, 1) for s_next in (0, 1)))
    assert rows_that_matter(pomdp, 5) is None

    class Paid(tiger.Tiger):
        def reward(self, s, a, s_next):
            return super().reward(s, a, s_next) + jnp.where(a == 0, s_next[0], 0).astype(float)

    assert rows_that_matter(Paid(pomdp.dynamics), 32).T == ((0, 0), (0, 2), (1, 0), (1, 2))


def test_tabulated_draws_are_the_networks():
    """Every row of every draw against an independent forward pass; the same key gives the same s' and o."""
    posterior = make(Network(hidden=5, inputs=("onehot", "scaled")), members=3, scale=3)
    states = vectors(SIZES[0])
    rows = Rows(((2, 1), (5, 0)), ((0, 1, 3), (4, 0, 1), (5, 1, 5)))
    i = jnp.array([2, 0])
    masks = jax.vmap(lambda key: draw_masks(key, posterior.architecture))(jr.split(prng.key(3), 2))
    stacked = jax.jit(lambda: tabulate(models_of(posterior), rows, posterior.ensemble, i, masks))()

    def code(s):
        return [*np.eye(3)[s[0]], 2 * s[1] - 1]

    for n in range(2):
        theta = posterior.ensemble[i[n]]
        keep = [np.asarray(unpack(masks[n, net], 5)) for net in range(2)]
        for row, (s, a) in enumerate(rows.T):
            x = [*code(states[s]), *np.eye(2)[a]]
            wanted = numpy_logits(posterior.architecture, theta, "T", x, keep[0])
            np.testing.assert_allclose(stacked.table_T[n, row], wanted, atol=1e-5)
        for row, (s, a, s_next) in enumerate(rows.O):
            x = [*code(states[s]), *np.eye(2)[a], *code(states[s_next])]
            wanted = numpy_logits(posterior.architecture, theta, "O", x, keep[1])
            np.testing.assert_allclose(stacked.table_O[n, row], wanted, atol=1e-5)
        plain = posterior.dynamics(theta, masks[n])
        table = jax.tree.map(lambda x, n=n: x[n], stacked)
        s, a, s_next = jnp.asarray(states[5]), jnp.int32(1), jnp.asarray(states[5])
        keys = jr.split(prng.key(4), 64)
        drawn = [
            jax.vmap(D.sample_observation, (0, None, None, None))(keys, s, a, s_next) for D in (plain, table)
        ]
        np.testing.assert_array_equal(*drawn)
        o = jnp.array([1, 2])
        np.testing.assert_allclose(
            table.observation_log_prob(s, a, s_next, o),
            plain.observation_log_prob(s, a, s_next, o),
            atol=1e-5,
        )
        s, a = jnp.asarray(states[2]), jnp.int32(1)
        np.testing.assert_allclose(
            table.transition_log_prob(s, a, s_next), plain.transition_log_prob(s, a, s_next), atol=1e-5
        )


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_tabulated_search_is_the_plain_one(in_flight):
    """The same random numbers, the same choices: equal visits, and values up to rounding."""
    posterior = Frozen(make(Network(hidden=8), ((2,), 3, (3,)), members=2, scale=3))
    gba = fast_pomdp(GBAPOMDP(tiger.make_domain().pomdp, posterior))
    how = TreeSearch(num_simulations=256, exploration=100.0, depth=10, in_flight=in_flight)
    belief = jax.vmap(lambda key: initial_belief(key, gba, 16))(jr.split(prng.key(0), 3))
    found = []
    for rows in (None, rows_that_matter(gba.pomdp, 32)):
        planner = FastSearch(how, rows, "tree")
        _, (_, draws) = jax.vmap(lambda key, b: how.roots(gba, key, b))(jr.split(prng.key(1), 3), belief)
        assert isinstance(planner.prepare(gba, belief, draws), Tabulated) == (rows is not None)
        keys, left = jr.split(prng.key(1), 3), jnp.full((3,), 10)
        found.append(jax.jit(lambda belief, p=planner, k=keys, n=left: p.plan(k, gba, belief, n))(belief))
    np.testing.assert_array_equal(found[0].N, found[1].N)
    np.testing.assert_allclose(found[0].Q, found[1].Q, atol=1e-3)


def test_the_joint_probabilities_of_features_are_their_product():
    """Of every vector by rank, for features of different sizes."""
    sizes, y = (2, 3, 2), jnp.asarray(np.random.default_rng(0).normal(size=(4, 7)), jnp.float32)
    expected = np.exp([[float(log_prob_of(row, sizes, jnp.asarray(v))) for v in vectors(sizes)] for row in y])
    np.testing.assert_allclose(_joint(y, sizes), expected, rtol=1e-5)


@pytest.mark.slow
def test_the_tables_of_a_search_are_the_probabilities_of_its_draws():
    """Of the same particles under the same masks; opening a door (0) ends the episode, and has no row."""
    posterior, pomdp = make(Network(hidden=8), ((2,), 3, (3,)), members=2, scale=3), tiger.make_domain().pomdp
    gba, how = fast_pomdp(GBAPOMDP(pomdp, posterior)), TreeSearch(num_simulations=5, exploration=100.0)
    plain, fast = (FastSearch(how, rows_that_matter(pomdp, n), "tree") for n in (0, 32))
    assert plain.rows is None and fast.rows is not None
    beliefs = jax.vmap(lambda key: initial_belief(key, gba, 16))(jr.split(prng.key(0), 2))
    roots = lambda key, belief: sample_roots(key, how, gba, belief)
    _, draws = jax.vmap(roots)(jr.split(prng.key(1), 2), beliefs)
    assert plain.prepare(gba, beliefs, draws) is draws
    found = tables(gba, beliefs, fast.prepare(gba, beliefs, draws), fast.rows)
    assert found.row_T.tolist() == [[-1, -1, 0], [-1, -1, 1]] and np.all(found.row_O[:, :2] == -1)
    listen, numbers = jnp.int32(2), np.arange(3, dtype=np.int32)
    for run, draw, s, s_next in itertools.product(range(2), range(5), range(2), range(2)):
        i, masks = (x[run, draw] for x in draws)
        D = posterior.dynamics(beliefs.states.theta[run, i], masks)
        before, after = jnp.array([s]), jnp.array([s_next])
        T = [np.exp(D.transition_log_prob(before, listen, jnp.array([x]))) for x in numbers[:2]]
        O = [np.exp(D.observation_log_prob(before, listen, after, jnp.array([x]))) for x in numbers]
        row_T, row_O = found.row_T[s, 2], found.row_O[s, 2, s_next]
        np.testing.assert_allclose(found.T[run, draw, row_T], np.cumsum(T)[:-1], atol=1e-5)
        np.testing.assert_allclose(found.O[run, draw, row_O], np.cumsum(O)[:-1], atol=1e-5)
