"""A mixture's weights are the marginal likelihoods of its parts: against exact evidence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import exact, prng
from baddr.agents.mixture import Mixture as MixtureAgent
from baddr.core.belief_update import initial_belief, next_episode
from baddr.core.filters import Importance
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import EachAlone
from baddr.core.pomdp import Transition
from baddr.core.posterior import sample
from baddr.domains import tiger
from baddr.errors import UserError
from baddr.fast.choose import models_of
from baddr.posteriors import Dirichlet, Known, Mixture
from baddr.posteriors.bank import draw_bank
from baddr.posteriors.mixture import MixedSplitDynamics, part_weights
from baddr.posteriors.settings import MixtureSettings

DOMAIN = tiger.make_domain()
COUNTS = Dirichlet(DOMAIN.counts, (2,), (3,))
CERTAIN = Known(tiger.dynamics(0.7))
LISTEN = jnp.int32(tiger.LISTEN)
EPISODES = [(0, 0, 1), (1, 1, 1, 1)]  # what was heard


def filtered(mixture, n):
    """p(part | h) of n particles after the episodes, for a key."""
    gba, filter = GBAPOMDP(DOMAIN.pomdp, mixture), Importance(n, resample_below=n / 2)

    def listen(belief, x):
        return filter.update(x[0], gba, belief, LISTEN, x[1])[0], None

    def one(key):
        belief = initial_belief(key, gba, n)
        for e, heard in enumerate(EPISODES):
            key_next, *keys = jr.split(jr.fold_in(key, e), 1 + len(heard))
            belief = next_episode(key_next, gba, belief) if e else belief
            belief, _ = jax.lax.scan(listen, belief, (jnp.stack(keys), jnp.array(heard)[:, None]))
        return part_weights(mixture, belief)

    return one


def test_weights_of_parts_are_their_marginal_likelihoods():
    """A point mass and counts, .8 and .2, over two episodes: 16 filters of 2048, within 4 standard errors."""
    mixture = Mixture((CERTAIN, COUNTS), (0.8, 0.2))
    found = np.asarray(jax.jit(jax.vmap(filtered(mixture, 2048)))(jr.split(prng.key(0), 16)), np.float64)
    p0 = np.full(2, 0.5)
    histories = [tuple((tiger.LISTEN, o) for o in heard) for heard in EPISODES]
    T, O = (np.asarray(x, np.float64) for x in DOMAIN.counts)
    parts = (
        exact.known(exact.tabulate(DOMAIN.pomdp.with_dynamics(CERTAIN.D), p0).D),
        exact.DirichletTables(T, O),
    )
    joint = np.log([0.8, 0.2]) + [exact.log_evidence(part, p0, histories) for part in parts]
    wanted = np.exp(joint - np.logaddexp.reduce(joint))
    assert abs(wanted[0] - 0.8) > 0.02  # the parts do not explain it equally well
    assert np.all(np.abs(found.mean(0) - wanted) < 4 * found.std(0, ddof=1) / 4)


def test_a_small_part_has_its_share_of_the_particles_from_the_start():
    mixture = Mixture((CERTAIN, COUNTS), (0.9, 0.1))
    gba = GBAPOMDP(DOMAIN.pomdp, mixture)
    keys = jr.split(prng.key(0), 50)
    which = np.asarray(jax.jit(jax.vmap(lambda key: initial_belief(key, gba, 16)))(keys).states.theta.which)
    assert set(np.sum(which == 1, axis=1).tolist()) == {1, 2}
    alone = jax.jit(jax.vmap(mixture.prior))(jr.split(prng.key(0), 4000)).which
    assert abs(np.mean(alone) - 0.1) < 4 * np.sqrt(0.09 / 4000)


def test_a_particle_is_of_its_part():
    """Its D and its U are those of the part; the theta of the other stays."""
    mixture = Mixture((CERTAIN, COUNTS), (0.5, 0.5))
    s, o = jnp.array([0]), jnp.array([0])
    x = Transition(s, LISTEN, s, o)
    for which in (0, 1):
        theta = mixture.prior(prng.key(1))._replace(which=jnp.int32(which))
        D = sample(mixture, prng.key(2), theta)
        assert isinstance(D, MixedSplitDynamics)
        own = sample(mixture.parts[which], prng.key(2), theta.thetas[which])
        assert D.log_prob(*x) == own.log_prob(*x)
        assert D.transition_log_prob(s, LISTEN, s) == own.transition_log_prob(s, LISTEN, s)
        after = mixture.update(prng.key(3), theta, *x)
        learned = after.thetas[1].O[LISTEN, 0, 0] - theta.thetas[1].O[LISTEN, 0, 0]
        assert after.which == which and learned == which


def test_models_of_many_are_those_of_each_alone():
    bank = draw_bank(prng.key(0), DOMAIN.sample_simulator, 8)
    mixture = Mixture((bank, COUNTS), (0.5, 0.5))
    thetas = mixture.priors(jr.split(prng.key(1), 12))
    i, keys = jnp.array([0, 3, 3, 11, 7], jnp.int32), jr.split(prng.key(2), 5)
    s = jnp.array([[0], [1], [0], [1], [1]])
    steps = Transition(s, LISTEN, s, jnp.array([1]))
    results = []
    for models in (models_of(mixture), EachAlone(mixture)):
        epsilons = eqx.filter_jit(models.draw)(keys, thetas, i)
        proposals = eqx.filter_jit(models.propose)(keys, thetas, i, epsilons, s, (LISTEN, steps.o))
        update = eqx.filter_jit(models.update)
        results.append((epsilons, proposals, update(keys, thetas, i, steps, jnp.array(True))))
    for fast, plain in zip(*map(jax.tree.leaves, results), strict=True):
        assert np.allclose(fast, plain, atol=1e-6)


def test_an_agent_that_has_no_posterior_is_refused():
    for name in ("dpfrl", "pomcp", "mixture"):
        agent = MixtureAgent(mixture=MixtureSettings((name, "bank"), (0.5, 0.5)))
        with pytest.raises(UserError, match="cannot be mixed"):
            agent.parts()
    assert MixtureSettings(("bank",), (0.5, 0.5)).problems() and MixtureSettings(("bank",), (0.0,)).problems()
    names = [type(part).__name__ for part in MixtureAgent().parts()]
    assert names == ["Latent", "BADDr"]
