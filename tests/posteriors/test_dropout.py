"""The dropout posterior: masks, predictive (Eq. 2, 12), U (Eq. 14), and D held for a whole simulation."""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import numpy_logits, untrained, vectors

from baddr import prng
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import Transition
from baddr.core.posterior import sample
from baddr.domains import tiger
from baddr.planners.tree_search import TreeSearch
from baddr.posteriors import Dirichlet, Frozen
from baddr.posteriors.dropout import Architecture, draw_masks, unpack
from baddr.posteriors.moments import NUM_NETWORK_DRAWS
from baddr.posteriors.partial import Partial
from baddr.posteriors.settings import Network

SIZES = (3, 2), 2, (2, 3)  # two state features, two actions, two observation features
S, A, S_NEXT, O = jnp.array([2, 1]), jnp.int32(1), jnp.array([0, 1]), jnp.array([1, 2])
STEP = Transition(S, A, S_NEXT, O)


NARROW = Network(hidden=3)


def make(network: Network = NARROW, sizes=SIZES, **options):
    return untrained(network, sizes, **options)


def all_masks(hidden: int, layers: int = 1):
    """Every mask of one network, the same for both, as packed words."""
    words = itertools.product(range(2**hidden), repeat=layers)
    return jnp.array([[[[word] for word in mask]] * 2 for mask in words], jnp.uint32)


def softmax_prob(y, sizes, values) -> float:
    ends = np.cumsum(sizes)
    rows = [np.exp(y[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    return float(np.prod([row[v] / row.sum() for row, v in zip(rows, values, strict=True)]))


@pytest.mark.parametrize("placement", ["first", "all"])
@pytest.mark.parametrize("inputs", ["raw", "scaled", "onehot", ("scaled", "onehot")])
def test_log_prob_is_that_of_an_independent_network(placement, inputs):
    posterior = make(Network(hidden=3, dropout=0.25, dropout_placement=placement, inputs=inputs), scale=2)
    theta, architecture = posterior.ensemble[0], posterior.architecture
    masks = posterior.draw(prng.key(3), theta)
    z = np.stack([np.asarray(unpack(masks[i], 3)) for i in range(2)]).astype(float)
    coding = {"raw": [2, 1], "scaled": [1, 1], "onehot": [0, 0, 1, 0, 1]}
    coding_next = {"raw": [0, 1], "scaled": [-1, 1], "onehot": [1, 0, 0, 0, 1]}
    x = [1, 0, 1] if isinstance(inputs, tuple) else coding[inputs]
    x_next = [-1, 0, 1] if isinstance(inputs, tuple) else coding_next[inputs]
    T = softmax_prob(numpy_logits(architecture, theta, "T", [*x, 0, 1], z[0]), SIZES[0], S_NEXT)
    O_ = softmax_prob(numpy_logits(architecture, theta, "O", [*x, 0, 1, *x_next], z[1]), SIZES[2], O)
    D = posterior.dynamics(theta, masks)
    both = jax.jit(lambda: (D.observation_log_prob(S, A, S_NEXT, O), D.log_prob(S, A, S_NEXT, O)))()
    np.testing.assert_allclose(both, np.log([O_, T * O_]), atol=1e-5)


def test_predictive_is_the_mean_over_all_masks():
    """Eq. 2 and 12: all 8 x 8 masks of a net of width 3; 4000 drawn masks agree within 4 standard errors."""
    posterior = make(scale=3)
    theta = posterior.ensemble[0]

    def both(masks):
        D = posterior.dynamics(theta, masks)
        return D.transition_log_prob(S, A, S_NEXT), D.observation_log_prob(S, A, S_NEXT, O)

    p_T, p_O = map(np.exp, jax.jit(jax.vmap(both))(all_masks(3)))
    one = np.asarray(all_masks(3))
    pairs = jnp.asarray(np.stack([np.stack([x[0], y[1]]) for x in one for y in one]))
    joint = jax.jit(jax.vmap(lambda z: jnp.exp(posterior.dynamics(theta, z).log_prob(S, A, S_NEXT, O))))
    np.testing.assert_allclose(np.mean(joint(pairs)), p_T.mean() * p_O.mean(), rtol=1e-5)

    n = 4000
    log_T, log_O = jax.jit(lambda key: posterior.predictive(key, theta, STEP, n))(prng.key(5))
    assert abs(np.exp(log_T) - p_T.mean()) < 4 * p_T.std() / np.sqrt(n)
    assert abs(np.exp(log_O) - p_O.mean()) < 4 * p_O.std() / np.sqrt(n)
    assert p_T.std() > 0.01 and p_O.std() > 0.01  # the masks matter


@pytest.mark.parametrize("placement", ["first", "all"])
def test_update_is_a_descending_gradient_step(placement):
    """U against central differences in float64, under the mask that its key draws."""
    with jax.enable_x64(True):
        network = Network(hidden=4, dropout_placement=placement, learning_rate=0.01)
        posterior = make(network)
        theta, key = posterior.ensemble[0], prng.key(7)
        masks = posterior.draw(key, theta)

        @jax.jit
        def L(theta):
            return posterior.dynamics(theta, masks).loss(S, A, S_NEXT, O)

        steps = 1e-5 * jnp.eye(len(theta))
        slope = jax.vmap(lambda d: (L(theta + d) - L(theta - d)) / 2e-5)(steps)
        after = eqx.filter_jit(posterior.update)(key, theta, S, A, S_NEXT, O)
        assert theta.dtype == jnp.float64
        np.testing.assert_allclose(after, theta - 0.01 * slope, atol=1e-10)
        assert L(after) < L(theta)


@pytest.mark.parametrize("net", ["transition", "observation"])
def test_a_frozen_network_does_not_learn(net):
    posterior = make(replace(Network(hidden=3), **{f"learn_{net}": False}))
    theta, split_at = posterior.ensemble[0], posterior.architecture.num_weights("T")
    change = np.asarray(eqx.filter_jit(posterior.update)(prng.key(0), theta, S, A, S_NEXT, O) - theta)
    frozen, learning = np.split(change, [split_at])[:: 1 if net == "transition" else -1]
    assert not frozen.any() and learning.any()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.75, 0.9])
def test_mask_frequencies_and_independence(p):
    """Every bit is kept with 1 - p, and no two bits of either network go together (4.5 standard errors)."""
    architecture = Architecture(Network(hidden=40, dropout=p, dropout_placement="all"), *SIZES)
    n = 20_000
    masks = jax.vmap(lambda key: draw_masks(key, architecture))(jr.split(prng.key(11), n))
    assert masks.shape == (n, 2, 2, 2) and masks.dtype == jnp.uint32
    z = np.asarray(jax.vmap(jax.vmap(lambda words: unpack(words, 40)))(masks)).reshape(n, 160).astype(float)
    if p == 0:
        assert z.all()
        return
    error = np.sqrt(p * (1 - p) / n)
    np.testing.assert_allclose(z.mean(0), 1 - p, atol=4.5 * error)
    correlation = np.corrcoef(z.T) - np.eye(160)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(n)  # of 12,720 pairs


def test_masks_are_held_for_a_whole_simulation():
    """The same epsilon is the same D, whatever the step's key; other masks are another D."""
    posterior = make(Network(hidden=8), scale=2)
    theta = posterior.ensemble[0]
    masks = jnp.array([[[0b10110]], [[0b1101]]], jnp.uint32)
    keys = jr.split(prng.key(2), 20_000)
    D = posterior.dynamics(theta, masks)
    s_next, o = map(np.asarray, jax.jit(jax.vmap(D.step, in_axes=(0, None, None)))(keys, S, A))
    outcomes = [(x, y) for x in vectors(SIZES[0]) for y in vectors(SIZES[2])]
    log_prob = jax.jit(jax.vmap(lambda x, y: D.log_prob(S, A, x, y)))
    p = np.exp(log_prob(*map(np.stack, zip(*outcomes, strict=True))))
    both = np.asarray([np.mean(np.all(s_next == x, 1) & np.all(o == y, 1)) for x, y in outcomes])
    # 4 standard errors of a frequency (and one count more where hardly any are expected); seed 2.
    assert np.all(np.abs(both - p) <= 4 * np.sqrt(p * (1 - p) / len(keys)) + 1 / len(keys))
    np.testing.assert_allclose(p.sum(), 1, atol=1e-5)
    other = posterior.dynamics(theta, masks ^ np.uint32(0b11))
    assert abs(other.log_prob(S, A, S_NEXT, O) - D.log_prob(S, A, S_NEXT, O)) > 0.01


def test_redrawn_masks_give_the_predictive_at_every_step():
    """`redraw_masks`: draws follow the mean over all masks, not the D of epsilon (4 standard errors)."""
    posterior = make(Network(hidden=3, redraw_masks=True), scale=4)
    theta, n = posterior.ensemble[0], 20_000

    def p_T(masks):
        D = posterior.dynamics(theta, masks)
        return jax.vmap(lambda x: jnp.exp(D.transition_log_prob(S, A, x)))(jnp.asarray(vectors(SIZES[0])))

    p = np.asarray(jax.jit(jax.vmap(p_T))(all_masks(3)))
    D = posterior.dynamics(theta, all_masks(3)[5])
    draw = jax.jit(jax.vmap(D.step, in_axes=(0, None, None)))
    s_next = np.asarray(draw(jr.split(prng.key(4), n), S, A)[0])
    frequency = np.array([np.mean(np.all(s_next == x, 1)) for x in vectors(SIZES[0])])
    mean = p.mean(0)
    assert np.all(np.abs(frequency - mean) <= 4 * np.sqrt(mean * (1 - mean) / n))
    assert np.abs(p[5] - mean).max() > 0.05


def test_nothing_is_nan_at_extreme_weights():
    posterior = make(Network(hidden=8, learning_rate=0.1), scale=1e6)
    theta, key = posterior.ensemble[0], prng.key(0)
    D = sample(posterior, key, theta)
    s_next, o = eqx.filter_jit(D.step)(key, S, A)
    assert np.all((s_next >= 0) & (s_next < np.array(SIZES[0])) & (o >= 0) & (o < np.array(SIZES[2])))
    assert np.isfinite(eqx.filter_jit(D.log_prob)(S, A, s_next, o))
    after = jax.jit(jax.vmap(posterior.update, in_axes=(0, None, None, None, 0, None)))
    assert np.isfinite(after(jr.split(key, 6), theta, S, A, jnp.asarray(vectors(SIZES[0])), O)).all()


def test_wide_observations():
    """96 observation features and 256 nodes, sizes mixed, under vmap over runs and particles."""
    sizes = (6, 6, 4), 3, (2, 3, 4) * 32
    posterior = make(Network(hidden=256, dropout=0.1, inputs=("scaled", "scaled", "onehot")), sizes)
    keys = jr.split(prng.key(0), (2, 3))
    s, a = jnp.array([5, 0, 3]), jnp.int32(2)

    def one(key):
        theta = posterior.prior(key)
        D = sample(posterior, key, theta)
        s_next, o = D.step(key, s, a)
        theta = posterior.update(key, theta, s, a, s_next, o)
        return o, D.log_prob(s, a, s_next, o), theta

    o, log_p, theta = jax.jit(jax.vmap(jax.vmap(one)))(keys)
    assert o.shape == (2, 3, 96) and np.all(np.asarray(o) < np.array(sizes[2])) and np.isfinite(log_p).all()
    assert theta.dtype == jnp.float32 and np.isfinite(theta).all()


def test_prior_is_a_member_drawn_uniformly():
    posterior = make(members=4)
    theta = jax.vmap(posterior.prior)(jr.split(prng.key(0), 4000))
    which = np.argmin(np.abs(np.asarray(theta)[:, None, 0] - np.asarray(posterior.ensemble)[None, :, 0]), 1)
    np.testing.assert_allclose(np.bincount(which, minlength=4) / 4000, 0.25, atol=4 * np.sqrt(0.1875 / 4000))


def test_plan_and_filter_on_tiger():
    """The seams: a search, a belief update, and the ablation without U."""
    domain = tiger.make_domain()
    posterior = make(Network(hidden=8), ((2,), 3, (3,)), members=2)
    gba = GBAPOMDP(domain.pomdp, posterior)
    belief = jax.jit(lambda key: initial_belief(key, gba, 16))(prng.key(0))
    stacked = jax.tree.map(lambda x: x[None], belief)
    how = TreeSearch(num_simulations=32, exploration=100.0, depth=5)
    found = jax.jit(lambda belief: how.plan(prng.key(1)[None], gba, belief, jnp.array([5])))(stacked)
    assert np.sum(found.N) == 32 and np.isfinite(found.Q).all()
    a, o = jnp.int32(2), jnp.array([0])
    importance = jax.jit(lambda b: Importance(resample_below=4.0).update(prng.key(2), gba, b, a, o)[0])
    after = importance(belief).states.theta
    assert after.shape == belief.states.theta.shape and np.isfinite(after).all()
    assert not np.array_equal(after, belief.states.theta)
    theta, s = after[0], jnp.array([0])
    assert Frozen(posterior).update(prng.key(0), theta, s, a, s, o) is theta


@pytest.mark.parametrize("learned", ["transition", "observation"])
def test_partial_takes_each_factor_from_its_own_side(learned):
    known = tiger.dynamics(0.85)
    network = make(Network(hidden=8), ((2,), 3, (3,)), networks="T" if learned == "transition" else "O")
    partial = Partial(network, known) if learned == "transition" else Partial(known, network)
    key = prng.key(0)
    theta = partial.prior(key)
    D = sample(partial, key, theta)
    s, a = jnp.array([1]), jnp.int32(2)
    log_prob = jax.jit(jax.vmap(lambda x: D.log_prob(s, a, x[:1], x[1:])))
    np.testing.assert_allclose(np.exp(log_prob(vectors((2, 3)))).sum(), 1, atol=1e-5)
    hearing = np.exp(D.observation_log_prob(s, a, s, s))
    staying = np.exp(D.transition_log_prob(s, a, s))
    assert np.isclose(hearing, 0.85) == (learned == "transition")
    assert np.isclose(staying, 1) == (learned == "observation")
    s_next, o = eqx.filter_jit(D.step)(key, s, a)
    after = eqx.filter_jit(partial.update)(key, theta, s, a, s_next, o)
    leaves = jax.tree.leaves(theta)
    assert len(leaves) == 1 and not np.array_equal(jax.tree.leaves(after)[0], leaves[0])


def test_partial_takes_a_table_of_counts():
    """T from Dirichlet counts, O known: each factor is its own side's, for all (s, a, s', o)."""
    known, counts = tiger.dynamics(0.7), tiger.make_domain().counts
    partial = Partial(Dirichlet(counts, *tiger.SIZES), known)
    D = sample(partial, prng.key(0), partial.prior(prng.key(0)))
    T = np.asarray(counts.T) / np.asarray(counts.T).sum(-1, keepdims=True)

    def both(s, a, i, z):
        s, i, z = s[None], i[None], z[None]
        return D.transition_log_prob(s, a, i), D.log_prob(s, a, i, z), known.observation_log_prob(s, a, i, z)

    grid = jnp.asarray(vectors((2, 3, 2, 3))).T
    log_T, log_D, log_O = (np.asarray(x) for x in jax.vmap(both)(*grid))
    np.testing.assert_allclose(np.exp(log_T), T[grid[0], grid[1], grid[2]], atol=1e-6)
    np.testing.assert_allclose(np.exp(log_D), np.exp(log_T) * np.exp(log_O), atol=1e-6)


def test_a_missing_network_says_so():
    posterior = make(networks="T")
    with pytest.raises(ValueError, match="no O-network"):
        sample(posterior, prng.key(0), posterior.ensemble[0]).observation_log_prob(S, A, S_NEXT, O)
    with pytest.raises(ValueError, match="2 state features"):
        make(Network(inputs=("raw",)))


def test_the_histogram_is_the_distribution_over_all_masks():
    """Fig. i: particles x draws, against every mask of a tiny network; within 4 standard errors."""
    sizes = ((2,), 3, (3,))
    posterior = make(Network(hidden=3), sizes=sizes, scale=3)
    theta, n = posterior.ensemble[0], 2048
    expected = np.zeros(tiger.NUM_BINS)
    for masks, side in itertools.product(all_masks(3), (0, 1)):
        s = jnp.array([side])
        D = posterior.dynamics(theta, masks)
        p = float(np.exp(D.observation_log_prob(s, jnp.int32(tiger.LISTEN), s, s)))
        expected[int(p * tiger.NUM_BINS)] += 1 / (2 * 8)
    gba = GBAPOMDP(tiger.make_domain().pomdp, posterior)
    belief = jax.jit(lambda key: initial_belief(key, gba, n))(prng.key(0))
    found = jax.jit(lambda key: tiger.describe(key, posterior, belief))(prng.key(1))["accuracy_histogram"]
    standard_error = np.sqrt(expected * (1 - expected) / (NUM_NETWORK_DRAWS * n))  # one side: half as many
    assert np.count_nonzero(expected) > 3
    assert np.all(np.abs(np.asarray(found) - expected) <= 4 * standard_error + 1e-6)
