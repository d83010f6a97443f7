"""The factored BA-POMDP: against the tabular posterior, closed forms, and enumeration of structures."""

import itertools
import math
from fractions import Fraction
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import vectors
from scipy.special import gammaln

from baddr import prng
from baddr.core.belief_update import initial_belief, next_episode
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import POMDP, Dynamics, Transition
from baddr.core.posterior import sample
from baddr.domains import factored_tiger, tiger
from baddr.posteriors import Counts, Dirichlet, Factored, FactoredCounts, Graph
from baddr.posteriors.evidence import log_evidence, log_rising
from baddr.posteriors.factored import Computed, Node, expected_dynamics, parents
from baddr.posteriors.factored.dynamics import inversion
from baddr.posteriors.factored.graph import fully_connected, num_counts, num_edges, particle_bytes
from baddr.posteriors.factored.posterior import edge_probabilities
from baddr.posteriors.moments import observation_moments

LISTEN = jnp.int32(2)


def everything(state_sizes, num_actions, observation_sizes):
    """All (s, a, s', o), stacked."""
    s, o = vectors(state_sizes), vectors(observation_sizes)
    pick = itertools.product(range(len(s)), range(num_actions), range(len(s)), range(len(o)))
    i, a, i_next, z = np.array(list(pick), np.int32).T
    return jnp.asarray(s[i]), jnp.asarray(a), jnp.asarray(s[i_next]), jnp.asarray(o[z])


@jax.jit
def probabilities(D, s, a, s_next, o):
    """p(s' | s, a) and p(o | s, a, s') at each of them."""
    T = jax.vmap(lambda *x: D.transition_log_prob(*x))(s, a, s_next)
    return jnp.exp(T), jnp.exp(jax.vmap(lambda *x: D.observation_log_prob(*x))(s, a, s_next, o))


@cache
def flat(name):
    """(counts, sizes of s, sizes of o): tiger, and a random problem with several features."""
    if name == "tiger":
        return tiger.make_domain().counts, *tiger.SIZES
    rng = np.random.default_rng(3)
    T, O = rng.integers(0, 9, (6, 2, 6)) / 4, rng.integers(1, 9, (2, 6, 6)) / 4
    T[..., 0] += 0.25  # an empty row is no Dirichlet
    return Counts(jnp.asarray(T, jnp.float32), jnp.asarray(O, jnp.float32)), (2, 3), (3, 2)


@pytest.mark.parametrize("name", ["tiger", "random"])
def test_fully_connected_equals_the_tabular_posterior(name):
    """All edges, same-slice ones included: every probability and every moment, after each of 12 updates."""
    counts, state_sizes, observation_sizes = flat(name)
    table = Dirichlet(counts, state_sizes, observation_sizes)
    factored = Factored(fully_connected(counts, state_sizes, observation_sizes))
    every = everything(state_sizes, counts.T.shape[1], observation_sizes)
    key = prng.key(0)
    theta_t, theta_f = table.prior(key), factored.prior(key)

    @eqx.filter_jit
    def moments(posterior, theta):
        return jax.vmap(lambda *x: observation_moments(posterior, theta, Transition(*x), None))(*every)

    update = eqx.filter_jit(lambda posterior, *x: posterior.update(*x))
    rng = np.random.default_rng(1)
    for _ in range(12):
        for p, q in zip(
            probabilities(table.dynamics(theta_t, ()), *every),
            probabilities(factored.dynamics(theta_f, None), *every),
            strict=True,
        ):
            np.testing.assert_allclose(p, q, rtol=2e-5, atol=1e-12)
        for p, q in zip(moments(table, theta_t), moments(factored, theta_f), strict=True):
            np.testing.assert_allclose(p, q, rtol=2e-4, atol=1e-7)
        possible = np.asarray(jnp.prod(jnp.stack(probabilities(table.dynamics(theta_t, ()), *every)), 0) > 0)
        i = rng.choice(np.flatnonzero(possible))
        transition = tuple(x[i] for x in every)
        theta_t = update(table, key, theta_t, *transition)
        theta_f = update(factored, key, theta_f, *transition)


def mixed_graph():
    """s' = (y1, y2, y3): y1 is computed from y3, y2 is known, y3 learned, and on y2 in action 1 only."""
    y1 = Computed(
        (("s", 0), ("s_next", 2)), lambda s, a, s_next: (s[0] + s_next[2] + a).astype(jnp.int32) % 2
    )
    y2 = Node(parents("s", [0, 1]), lambda x1, x2: [1 + x1, 2, 3 * x2], learned=False)
    y3 = (
        Node(parents("s", [2]), lambda x3: [1.5, 0.5 + x3]),
        Node((*parents("s", [1]), *parents("s_next", [1])), lambda x2, y2: [1 + x2, 0.25 * y2]),
    )
    o1 = Node(parents("s_next", [1, 2]), lambda y2, y3: [1 + y2, 1 + 2 * y3, 0.5])
    o2 = Computed(parents("s_next", [0]), lambda s, a, s_next: s_next[0])
    return Graph((2, 3, 2), (3, 2), 2, (y1, y2, y3), (o1, o2))


def by_hand(s, a, s_next, o):
    """The same D, written out."""
    (x1, x2, x3), (y1, y2, y3), (o1, o2) = s, s_next, o
    row2 = np.array([1 + x1, 2, 3 * x2])
    row3 = np.array([1.5, 0.5 + x3]) if a == 0 else np.array([1 + x2, 0.25 * y2])
    row_o = np.array([1 + y2, 1 + 2 * y3, 0.5])
    T = float(y1 == (x1 + y3 + a) % 2) * row2[y2] / row2.sum() * row3[y3] / row3.sum()
    return T, row_o[o1] / row_o.sum() * float(o2 == y1)


def test_a_graph_of_all_kinds_of_nodes_against_one_by_hand():
    D = expected_dynamics(mixed_graph())
    every = everything((2, 3, 2), 2, (3, 2))
    T, O = probabilities(D, *every)
    expected = np.array([by_hand(*x) for x in zip(*map(np.asarray, every), strict=True)])
    np.testing.assert_allclose(T, expected[:, 0], rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(O, expected[:, 1], rtol=1e-5, atol=1e-12)


def test_draws_have_the_probabilities():
    """20,000 steps from 4 (s, a): each cell within 5 standard errors, impossible ones never."""
    D = expected_dynamics(mixed_graph())
    outcomes = list(itertools.product(vectors((2, 3, 2)), vectors((3, 2))))
    draw = jax.jit(jax.vmap(lambda k, s, a: D.step(k, s, a), (0, None, None)))
    for s, a in [((0, 0, 0), 0), ((1, 2, 1), 0), ((0, 1, 1), 1), ((1, 0, 0), 1)]:
        s_next, o = draw(jr.split(prng.key(4), 20_000), jnp.array(s, jnp.int32), jnp.int32(a))
        assert s_next.dtype == o.dtype == jnp.int32
        drawn = np.concatenate([s_next, o], axis=1)
        for y, z in outcomes:
            p = math.prod(by_hand(s, a, y, z))
            frequency = np.mean(np.all(drawn == np.concatenate([y, z]), axis=1))
            assert abs(frequency - p) <= 5 * math.sqrt(p * (1 - p) / 20_000) + 1e-7


def test_draws_of_features_that_depend_on_each_other():
    """Within s' and within o: 20,000 steps from one (s, a), each cell within 5 standard errors."""
    counts, state_sizes, observation_sizes = flat("random")
    D = expected_dynamics(fully_connected(counts, state_sizes, observation_sizes))
    s, a = jnp.array([1, 2], jnp.int32), jnp.int32(1)
    s_next, o = jax.jit(jax.vmap(lambda k: D.step(k, s, a)))(jr.split(prng.key(4), 20_000))
    T, O = np.asarray(counts.T, float)[5, 1], np.asarray(counts.O, float)[1]
    p = (T / T.sum())[:, None] * O / O.sum(-1, keepdims=True)
    cell = np.ravel_multi_index((*np.asarray(s_next).T, *np.asarray(o).T), (*state_sizes, *observation_sizes))
    frequency = np.bincount(cell, minlength=36).reshape(6, 6) / 20_000
    assert np.all(np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / 20_000) + 1e-7)


def test_a_model_is_drawn_from_the_dirichlets():
    """Mean and variance of an entry over 4,096 drawn models, within 5 standard errors; zeros stay zeros."""
    posterior = Factored(tiger.make_domain().graphs["default"], expected=False)
    s, right, null = (jnp.array([value], jnp.int32) for value in range(3))

    def hears(key):
        D = sample(posterior, key, posterior.prior(key))
        pairs = (s, s), (right, right), (s, null)
        return jnp.exp(jnp.stack([D.observation_log_prob(s, LISTEN, s_next, o) for s_next, o in pairs]))

    p, other, impossible = np.asarray(jax.jit(jax.vmap(hears))(jr.split(prng.key(2), 4096))).T
    mean, variance = 5 / 8, 15 / (64 * 9)
    assert abs(p.mean() - mean) < 5 * math.sqrt(variance / 4096)
    assert abs(p.var() - variance) < 5 * math.sqrt(2 * variance**2 / 4096)
    assert np.all(impossible == 0)
    assert abs(np.corrcoef(p, other)[0, 1]) < 5 / math.sqrt(4096)  # rows are independent
    D = sample(posterior, prng.key(5), posterior.prior(prng.key(5)))
    both = [jnp.exp(D.observation_log_prob(s, LISTEN, s, jnp.array([o], jnp.int32))) for o in range(2)]
    assert sum(both) == pytest.approx(1, abs=1e-6)  # a row is the same whenever it is read
    found = observation_moments(posterior, posterior.prior(prng.key(0)), Transition(s, LISTEN, s, s), None)
    np.testing.assert_allclose(found, (mean, variance), rtol=1e-5)


def test_inversion_never_draws_a_weight_of_zero():
    rows = jnp.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [1e-6, 0.0, 0.0]])
    for u, expected in [(0.0, [1, 0, 0]), (0.999999, [1, 2, 0]), (1.0, [1, 2, 0]), (0.5, [1, 2, 0])]:
        assert inversion(jnp.full((3,), u), rows).tolist() == expected


# Learning.

UPDATES = {"importance": Importance(resample_below=64.0), "rejection": Rejection()}


@pytest.mark.parametrize("name", UPDATES)
def test_counts_grow_by_one_per_learned_node(name):
    """Listening adds one to the row of s' and the observation heard, in the particle's own structure."""
    domain = factored_tiger.make_domain(irrelevant=2)
    posterior = Factored(domain.graphs["default"], "uncertain")
    gba = GBAPOMDP(domain.pomdp, posterior)
    n, key = 256, prng.key(1)
    before = initial_belief(key, gba, n)
    update = eqx.filter_jit(lambda belief, a, o: UPDATES[name].update(key, gba, belief, a, o))
    after, _ = update(before, LISTEN, jnp.array([1], jnp.int32))
    theta, s = after.states.theta, np.asarray(after.states.s)
    edges = np.asarray(theta.edges)
    grown = np.asarray(theta.counts) - np.asarray(jax.vmap(posterior.prior_counts)(theta.edges))
    rows = (s * edges) @ np.array([4, 2, 1])
    assert np.all(grown.sum(1) == 1) and np.all(grown[np.arange(n), 3 * rows + 1] == 1)
    assert len(np.unique(edges, axis=0)) == 8
    opened, _ = update(after, jnp.int32(0), jnp.array([2], jnp.int32))  # nothing is learned from opening
    kept = np.asarray(opened.states.theta.counts)
    assert np.all(np.isin(kept.sum(1), np.asarray(theta.counts).sum(1)))
    assert {tuple(row) for row in kept} <= {tuple(row) for row in np.asarray(theta.counts)}


def test_a_known_node_does_not_learn():
    """A feature that is known under action 0 and learned under action 1, in tables of the same size."""
    both = tuple(Node(parents("s", [0]), lambda x: [1.0, 2.0], learned) for learned in (False, True))
    seen = Computed(parents("s_next", [0]), lambda s, a, s_next: s_next[0])
    posterior = Factored(Graph((2,), (2,), 2, (both,), (seen,)))
    one, theta = jnp.array([1], jnp.int32), posterior.prior(prng.key(0))
    grown = [posterior.update(prng.key(0), theta, one, jnp.int32(a), one, one).counts for a in range(2)]
    assert grown[0].tolist() == [1, 2, 1, 2] and grown[1].tolist() == [1, 2, 1, 3]


def test_deterministic_nodes_stay_deterministic():
    """Rows with a single count, after 50 transitions drawn from the posterior itself."""
    keep = Node(parents("s", [0]), lambda x: np.eye(3)[x])
    noisy = Node(parents("s_next", [0]), lambda y: [1.0, 2.0])
    posterior = Factored(Graph((3,), (2,), 1, (keep,), (noisy,)))

    @jax.jit
    def step(key, theta, s):
        s_next, o = sample(posterior, key, theta).step(key, s, jnp.int32(0))
        return posterior.update(key, theta, s, jnp.int32(0), s_next, o), s_next

    theta = posterior.prior(prng.key(0))
    for t in range(50):
        s = jnp.array([t % 3], jnp.int32)
        theta, s_next = step(jr.fold_in(prng.key(0), t), theta, s)
        assert s_next[0] == t % 3
    np.testing.assert_allclose(theta.counts[:9].reshape(3, 3), np.diag([18, 18, 17]))


# Structures.


def test_prior_of_a_structure_is_the_mean_over_absent_parents():
    posterior = Factored(factored_tiger.make_domain(irrelevant=1).graphs["default"], "uncertain")
    table = lambda *edges: np.asarray(posterior.prior_counts(jnp.array(edges))).reshape(2, 2, 3)
    with_door = [[[5, 3, 0]] * 2, [[3, 5, 0]] * 2]
    np.testing.assert_allclose(table(True, True), with_door)
    np.testing.assert_allclose(table(True, False), with_door)
    np.testing.assert_allclose(table(False, True), [[[4, 4, 0]] * 2] * 2)
    np.testing.assert_allclose(table(False, False), [[[4, 4, 0]] * 2] * 2)


def test_a_matched_structure_is_an_uncertain_one_with_its_parents():
    """Only f_1 and f_2 are uncertain: counts and probabilities are those of the particle with the door."""
    graph = factored_tiger.make_domain(irrelevant=2).graphs["default"]
    uncertain, matched = Factored(graph, "uncertain"), Factored(graph, "matched")
    s, o = jnp.array([1, 0, 1]), jnp.array([0])
    for edges in itertools.product([False, True], repeat=2):
        thetas = []
        for posterior, mask in ((uncertain, (True, *edges)), (matched, edges)):
            theta = FactoredCounts(posterior.prior_counts(jnp.array(mask)), jnp.array(mask))
            for _ in range(3):
                theta = posterior.update(prng.key(0), theta, s, LISTEN, s, o)
            thetas.append((posterior, theta))
        np.testing.assert_array_equal(thetas[0][1].counts, thetas[1][1].counts)
        for posterior, theta in thetas:
            log_p = sample(posterior, prng.key(0), theta).observation_log_prob(s, LISTEN, s, o)
            np.testing.assert_allclose(np.exp(log_p), (3 + 3) / (8 + 3), rtol=1e-6)


def test_edges_are_there_with_their_probability():
    """Over 4,096 particles, within 5 standard errors."""
    graph = factored_tiger.make_domain(irrelevant=2).graphs["default"]
    for p in (0.5, 0.2):
        posterior = Factored(graph, "uncertain", edge_probability=p)
        edges = jax.vmap(posterior.prior)(jr.split(prng.key(0), 4096)).edges
        np.testing.assert_allclose(edges.mean(0), p, atol=5 * math.sqrt(p * (1 - p) / 4096))
        weights = jnp.zeros((4096,)).at[7].set(1.0)
        assert edge_probabilities(edges, weights).tolist() == edges[7].astype(float).tolist()
    assert Factored(graph, "true").num_edges == Factored(graph, "full").num_edges == 0


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 2.5, 100.0, 10_000.0])
def test_log_rising_against_the_gamma_function(alpha):
    k = np.array([0, 1, 2, 7, 50, 400], np.float32)
    expected = gammaln(np.float32(alpha).astype(float) + k) - gammaln(np.float32(alpha).astype(float))
    np.testing.assert_allclose(
        log_rising(jnp.full((6,), alpha), jnp.asarray(k)), expected, rtol=3e-6, atol=2e-5
    )


def test_bayesian_dirichlet_score_of_a_hand_made_history():
    """Heard left, left, right at the left door and right at the right one (f_1 = 0, 1, 1, 0), as fractions.

    With the door as parent the rows begin as (5, 3) and (3, 5), without as (4, 4).
    """
    posterior = Factored(factored_tiger.make_domain(irrelevant=1).graphs["default"], "uncertain")
    data = [((0, 0), 0), ((0, 1), 0), ((0, 1), 1), ((1, 0), 1)]
    f = Fraction
    by_hand = {
        (True, False): f(5, 8) * f(6, 9) * f(3, 10) * f(5, 8),
        (True, True): f(5, 8) * (f(5, 8) * f(3, 9)) * f(5, 8),
        (False, False): f(4, 8) * f(5, 9) * f(4, 10) * f(5, 11),
        (False, True): (f(4, 8) * f(4, 9)) * (f(4, 8) * f(4, 9)),
    }
    for edges, expected in by_hand.items():
        structure = jnp.array(edges)
        theta = FactoredCounts(posterior.prior_counts(structure), structure)
        for s, heard in data:
            s_next = jnp.array(s, jnp.int32)
            theta = posterior.update(
                prng.key(0), theta, s_next, LISTEN, s_next, jnp.array([heard], jnp.int32)
            )
        assert float(posterior.log_score(theta)) == pytest.approx(math.log(expected), abs=2e-6)


def test_bayesian_dirichlet_score_of_small_counts_and_impossible_data():
    """Counts below 1 need the gamma function itself: Dirichlet (.2, .3), three values 0, one value 1."""
    prior = jnp.array([[0.2, 0.3, 0.0]])
    f = Fraction
    expected = f(2, 10) / f(5, 10) * f(12, 10) / f(15, 10) * f(22, 10) / f(25, 10) * f(3, 10) / f(35, 10)
    assert float(log_evidence(prior, prior + jnp.array([[3.0, 1.0, 0.0]]))) == pytest.approx(
        math.log(expected), abs=1e-6
    )
    assert float(log_evidence(prior, prior + jnp.array([[0.0, 0.0, 1.0]]))) == -math.inf


class Toy(POMDP):
    """Two bits that are seen."""

    dynamics: Dynamics
    discount: float = eqx.field(static=True, default=0.95)
    horizon: int = eqx.field(static=True, default=10)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=(2, 2))
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=(2, 2))
    num_actions: int = eqx.field(static=True, default=1)

    def initial_state(self, key):
        return jnp.zeros((2,), jnp.int32)

    def initial_observation(self, key, s):
        return s

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return jnp.zeros(())

    def is_terminal(self, s, a, s_next):
        return jnp.array(False)


def toy_graph():
    """Each bit may depend on both bits before; the prior of the first one leans to its own last value."""
    first = Node(
        parents("s", [0]), lambda x: [0.75, 0.25] if x == 0 else [0.25, 0.75], candidates=(("s", 1),)
    )
    second = Node(parents("s", [1]), lambda y: [0.5, 0.5], candidates=(("s", 0),))
    seen = tuple(Computed(parents("s_next", [i]), lambda s, a, s_next, i=i: s_next[i]) for i in range(2))
    return Graph((2, 2), (2, 2), 1, (first, second), seen)


HISTORY = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]


def exact_structures():
    """p(structure | history) over all 16, by the chain rule. Edges: x -> x', y -> x', y -> y', x -> y'."""
    posterior = {}
    for edges in itertools.product((False, True), repeat=4):
        score = 0.0
        for bit in range(2):
            own, other = edges[2 * bit : 2 * bit + 2]  # own last value, the other bit's
            rows = {}
            for s, s_next in itertools.pairwise(HISTORY):
                lean = [[0.75, 0.25], [0.25, 0.75]][s[0]] if bit == 0 and own else [0.5, 0.5]
                row = rows.setdefault((own and s[bit], other and s[1 - bit]), list(lean))
                score += math.log(row[s_next[bit]] / sum(row))
                row[s_next[bit]] += 1
        posterior[edges] = math.exp(score)
    total = sum(posterior.values())
    return {edges: p / total for edges, p in posterior.items()}


def test_filtered_structures_against_enumeration():
    """32,768 particles over 8 steps: total variation below .03.

    With a variance of 8 p (1 - p) / n for a share p, one resampling for each step, it is .011 with a standard
    deviation of .0034: the bound leaves 5 of them.
    """
    n, graph = 2**15, toy_graph()
    posterior = Factored(graph, "uncertain")
    gba = GBAPOMDP(Toy(expected_dynamics(graph)), posterior)
    update = eqx.filter_jit(lambda k, belief, o: Rejection().update(k, gba, belief, jnp.int32(0), o))
    belief = initial_belief(prng.key(3), gba, n)
    for t, o in enumerate(HISTORY[1:]):
        belief, info = update(jr.fold_in(prng.key(4), t), belief, jnp.array(o, jnp.int32))
        assert info.num_filled == 0
    numbers = np.asarray(belief.states.theta.edges) @ np.array([8, 4, 2, 1])
    found = np.bincount(numbers, minlength=16) / n
    exact = np.array(list(exact_structures().values()))
    assert np.abs(exact - 1 / 16).sum() / 2 > 0.3  # the history tells something
    assert np.abs(found - exact).sum() / 2 < 0.03


def test_scores_of_all_structures_give_the_same_posterior():
    posterior = Factored(toy_graph(), "uncertain")

    @jax.jit
    def score(edges):
        theta = FactoredCounts(posterior.prior_counts(edges), edges)
        for s, s_next in itertools.pairwise(jnp.array(HISTORY, jnp.int32)):
            theta = posterior.update(prng.key(0), theta, s, jnp.int32(0), s_next, s_next)
        return posterior.log_score(theta)

    exact = exact_structures()
    scores = jax.vmap(score)(jnp.array(list(exact)))
    np.testing.assert_allclose(jax.nn.softmax(scores), list(exact.values()), rtol=2e-5)


def test_sizes_are_known_before_anything_is_made():
    graph = factored_tiger.make_domain(irrelevant=3).graphs["default"]
    sizes = ("true", 6, 0), ("full", 48, 0), ("uncertain", 48, 4), ("matched", 48, 3)
    for structure, counts, edges in sizes:
        theta = Factored(graph, structure).prior(prng.key(0))
        assert theta.counts.shape == (counts,) == (num_counts(graph, structure),)
        assert theta.edges.shape == (edges,) == (num_edges(graph, structure),)
        assert particle_bytes(graph, structure) == theta.counts.nbytes + theta.edges.nbytes


def test_wrong_graphs_are_refused():
    circle = Graph((2, 2), (1,), 1, (Node((("s_next", 1),), lambda y: [1, 1]),) * 2, (Node((), lambda: [1]),))
    with pytest.raises(ValueError, match="circle"):
        Factored(circle)
    short = Graph((2,), (1,), 1, (Node((), lambda: [1, 1, 1]),), (Node((), lambda: [1]),))
    with pytest.raises(ValueError, match="row of 2 counts"):
        Factored(short)
    later = Graph((1,), (2, 2), 1, (Node((), lambda: [1]),), (Node((("o", 1),), lambda o: [1, 1]),) * 2)
    with pytest.raises(ValueError, match="a later one"):
        Factored(later)


@pytest.mark.slow
def test_the_true_parents_become_probable():
    """Factored tiger with two irrelevant features, 32 runs of 50 episodes of ten listenings, 1,024 particles.

    The probability of the true parents rises from 1/8 to .62 +- .05. It cannot reach 1: no observation tells
    the door from an irrelevant feature, only the prior does, by 1.233^2 to 2 x .29^2 (the densities of
    Beta(5, 3) and Beta(4, 4) at the truth), so that each irrelevant feature alone keeps .11 of its weight.
    """
    domain = factored_tiger.make_domain(irrelevant=2)
    gba = GBAPOMDP(domain.pomdp, Factored(domain.graphs["default"], "uncertain"))

    def listen(carry, key):
        s, belief = carry
        key_o, key_update = jr.split(key)
        _, o = domain.pomdp.step(key_o, s, LISTEN)
        return (s, Importance(resample_below=128.0).update(key_update, gba, belief, LISTEN, o)[0]), None

    def episode(belief, key):
        key_s, key_belief, key_listen = jr.split(key, 3)
        belief = next_episode(key_belief, gba, belief)
        start = domain.pomdp.initial_state(key_s), belief
        return jax.lax.scan(listen, start, jr.split(key_listen, 10))[0][1], None

    def run(key):
        belief = initial_belief(key, gba, 1024)
        belief, _ = jax.lax.scan(episode, belief, jr.split(jr.fold_in(key, 1), 50))
        return factored_tiger.describe(key, gba.posterior, belief)["true_structure"]

    p = np.asarray(jax.jit(lambda keys: jax.lax.map(run, keys))(jr.split(prng.key(1), 32)))
    assert p.mean() - 4 * p.std(ddof=1) / math.sqrt(32) > 1 / 8
    assert p.mean() > 0.4
