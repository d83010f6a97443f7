"""A filter that resamples at every step."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import jax.random as jr

from baddr import AugmentedState, Info, Particles
from baddr.core.posterior import sample


@dataclass(frozen=True)
class Bootstrap:
    """Steps, weighs and resamples."""

    num_particles: int = 64
    learn_terminal: bool = True
    patience: float = 1.0
    """The power to which likelihoods are taken."""

    def update(self, key, gba, belief, a, o, learn=True, active=True):
        n, states = belief.num_particles, belief.states
        key_step, key_i = jr.split(key)
        i = jax.vmap(belief.sample)(jr.split(key_i, n))

        def one(key, s, theta):
            key_D, key_step, key_U = jr.split(key, 3)
            D = sample(gba.posterior, key_D, theta)
            s_next, _ = D.step(key_step, s, a)
            theta_next = gba.posterior.update(key_U, theta, s, a, s_next, o)
            theta_next = jax.tree.map(lambda x, y: jnp.where(learn, x, y), theta_next, theta)
            return s_next, theta_next, D.observation_log_prob(s, a, s_next, o)

        theta = jax.tree.map(lambda x: x[i], states.theta)
        s_next, theta, log_w = jax.vmap(one)(jr.split(key_step, n), states.s[i], theta)
        impossible = jnp.isneginf(jnp.max(log_w))
        log_w = jnp.where(impossible, 0.0, self.patience * log_w)
        after = Particles(AugmentedState(s_next, theta), jax.nn.log_softmax(log_w))
        after = jax.tree.map(lambda x, y: jnp.where(active, x, y), after, belief)
        ess = after.effective_sample_size()
        return after, Info(ess, ess / n, jnp.int32(n), jnp.array(True), jnp.int32(0), impossible)
