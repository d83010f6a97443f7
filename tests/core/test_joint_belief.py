"""The filters against the exact mixture p(s, theta | h): each state with the counts of its own past.

Marginals are not enough. A filter that resamples theta without its s, or keeps the last episode's states,
has the right mean accuracy on tiger, and components (s, theta) that no history can lead to.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import exact, prng
from baddr.core import belief_update
from baddr.core.filters import Importance, Rejection
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles
from baddr.domains import tiger
from baddr.posteriors import Dirichlet

N = 4096
P0 = np.full(2, 0.5)
DOMAIN = tiger.make_domain()
GBA = GBAPOMDP(DOMAIN.pomdp, Dirichlet(DOMAIN.counts, *tiger.SIZES))
EXACT = exact.DirichletTables(*map(np.asarray, DOMAIN.counts))

initial_belief = eqx.filter_jit(belief_update.initial_belief)
next_episode = eqx.filter_jit(belief_update.next_episode)
FILTERS: dict[str, Callable] = {
    "systematic": eqx.filter_jit(Importance(resample_below=2.0 * N).update),  # at every step
    "independent": eqx.filter_jit(Importance(resample_below=2.0 * N, resampling="independent").update),
    "not resampled": eqx.filter_jit(Importance(resample_below=0.0).update),
    "rejection": eqx.filter_jit(Rejection().update),
}
# What was heard while listening, episode by episode. No door is opened: the episodes end by their horizon,
# and only then does the state at its end tell something that the next one must forget.
HEARD = [[[0, 0, 1]], [[0, 0], [0]], [[0, 1], [1], [0, 0]]]


def exact_after(episodes: list[list[int]]) -> exact.Mixture:
    b = exact.initial_mixture(EXACT, P0)
    for heard in episodes:
        b = exact.next_episode(b, P0)
        for o in heard:
            b, _ = exact.mixture_update(EXACT, b, tiger.LISTEN, o)
    return b


def filtered_after(update: Callable, episodes: list[list[int]], seed: int) -> Particles:
    belief, t = initial_belief(prng.key(seed), GBA, N), 0
    for i, heard in enumerate(episodes):
        belief = next_episode(jr.fold_in(prng.key(seed), 1000 + i), GBA, belief) if i else belief
        for o in heard:
            t += 1
            key = jr.fold_in(prng.key(seed), t)
            belief, _ = update(key, GBA, belief, jnp.int32(tiger.LISTEN), jnp.array([o], jnp.int32))
    return belief


def components(belief: Particles) -> dict[tuple[int, tuple[int, ...]], float]:
    """The mass of each (s, theta), theta as the exact mixture names it: the transitions counted so far."""
    grown = [
        np.asarray(x) - np.asarray(prior) for x, prior in zip(belief.states.theta, DOMAIN.counts, strict=True)
    ]
    thetas = np.concatenate([x.reshape(N, -1) for x in grown], axis=1).astype(int)
    mass: dict[tuple[int, tuple[int, ...]], float] = {}
    for s, theta, w in zip(
        belief.states.s[:, 0].tolist(), thetas.tolist(), belief.weights.tolist(), strict=True
    ):
        mass[s, tuple(theta)] = mass.get((s, tuple(theta)), 0.0) + w
    return mass


@pytest.mark.parametrize("episodes", HEARD, ids=str)
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_has_the_exact_mixture_over_states_and_counts(name, episodes):
    """The same components (s, theta), none more and none less; their masses within 5 standard errors.

    Each step that resamples and each new episode adds noise of its own, at most that of one draw of N.
    """
    wanted = {(s, theta): w[s] for theta, w in exact_after(episodes).items() for s in (0, 1) if w[s] > 0}
    belief = filtered_after(FILTERS[name], episodes, seed=11)
    found = components(belief)
    assert found.keys() == wanted.keys()
    num_draws = 1 + sum(map(len, episodes)) + len(episodes)
    size = float(belief.effective_sample_size()) / num_draws
    for component, p in wanted.items():
        assert abs(found[component] - p) < 5 * np.sqrt(p * (1 - p) / size)


def test_the_next_episodes_states_are_drawn_from_the_start_and_forget_the_last_ones():
    """However certain the last state was: one half left, whatever the state before and the model."""
    belief = filtered_after(FILTERS["systematic"], [[0] * 6], seed=3)
    assert np.mean(np.asarray(belief.states.s) == 0) > 0.7
    after = next_episode(prng.key(5), GBA, belief)
    for before in (0, 1):
        mine = np.asarray(belief.states.s[:, 0]) == before
        left = np.mean(np.asarray(after.states.s)[mine, 0] == 0)
        assert abs(left - 0.5) < 5 * np.sqrt(0.25 / mine.sum())
    assert eqx.tree_equal(after.states.theta, belief.states.theta)


@pytest.mark.parametrize("name", ["systematic", "independent"])
def test_resampled_particles_are_weighed_by_the_last_observation_alone(name):
    """Dirichlet (5, 3): after one left, the next has 6/9 where the good door is left, and 4/9 elsewhere."""
    belief = filtered_after(FILTERS[name], [[0, 0]], seed=4)
    left, w = np.asarray(belief.states.s[:, 0]) == 0, np.asarray(belief.weights)
    assert w[left] == pytest.approx(w[left][0], rel=1e-4) and w[~left] == pytest.approx(w[~left][0], rel=1e-4)
    assert w[left][0] / w[~left][0] == pytest.approx((6 / 9) / (4 / 9), rel=1e-4)
