"""The reading copy: against closed forms, and what is fast against it."""

import jax.numpy as jnp
import numpy as np
from helpers import untrained
from searches import plain_tiger

from baddr import prng
from baddr.core import plain
from baddr.core.pomdp import Transition
from baddr.posteriors.dropout import unpack
from baddr.posteriors.settings import Network

FAMILY = plain.Family(
    draw=lambda random, theta: theta,
    step=plain_tiger,
    likelihood=lambda D, s, a, s_next, o: D if o == s_next else 1 - D,
    update=lambda random, theta, s, a, s_next, o: theta,
)


def test_both_filters_hear_as_bayes_does():
    """p(left | heard left) = .85; the standard error with 4000 particles is .0056 and .0079."""
    random = np.random.default_rng(0)
    belief = [plain.Particle(i % 2, 0.85) for i in range(4000)]
    kept = plain.rejection_sampling(random, FAMILY, belief, 2, 0)
    assert abs(np.mean([p.s == 0 for p in kept]) - 0.85) < 4 * 0.0056
    after, weights = plain.importance_sampling(random, FAMILY, belief, [1 / 4000] * 4000, 2, 0)
    assert abs(sum(w for p, w in zip(after, weights, strict=True) if p.s == 0) - 0.85) < 1e-9


def test_a_search_of_one_step_averages_rewards():
    search = plain.Search(plain_tiger, 3, 1e6, 1, 0.95)
    root, _ = plain.po_uct(np.random.default_rng(0), search, lambda r: (int(r.integers(2)), 0.85), 3000)
    assert root.N == [1000] * 3 and np.isclose(root.Q[2], -1)
    assert np.all(np.abs(np.array(root.Q[:2]) + 45) < 4 * 55 / np.sqrt(1000))


def test_the_update_of_the_networks_is_eq_14():
    """U of the T-network, whose only feature has two values, under the same mask."""
    posterior = untrained(Network(hidden=6, learning_rate=0.1), ((2,), 3, (3,)))
    theta, arch = posterior.ensemble[0], posterior.architecture
    masks = posterior.draw(prng.key(3), theta)
    step = Transition(jnp.array([1]), jnp.int32(2), jnp.array([0]), jnp.array([1]))
    w = plain.Weights(*(np.asarray(x, float) for layer in arch.layers(theta).T for x in layer))
    x, z = np.asarray(arch.inputs_T(step.s, step.a), float), np.asarray(unpack(masks[0], 6))[0]
    _, gradient = plain.loss_gradient(w, x, z.astype(float), 0.5, 0)
    found = arch.layers(posterior.descend(theta, masks, step)).T
    wanted = plain.descend(w, gradient, 0.1)
    for ours, theirs in zip([y for layer in found for y in layer], wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
