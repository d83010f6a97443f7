"""Rewards as evidence: R is known and r is seen, so that (s, a, s') which do not explain r are impossible.

Not the paper's setting, whose agents learn from observations alone.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.models import Indices, Models, Proposals
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, Transition
from baddr.core.posterior import Posterior, Theta

TOLERANCE = 1e-4  # of the larger of 1 and |r|


class WithReward(Models):
    """Models that also weigh the reward of the step at hand."""

    posterior: Posterior
    inner: Models
    pomdp: POMDP
    r: Scalar

    @property
    def tries_at_once(self) -> int:
        return self.inner.tries_at_once

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return self.inner.each(function, thetas)

    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.inner.dynamics(thetas, i, epsilon)

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        return self.inner.update(keys, thetas, i, steps, learn)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return self.inner.draw(keys, thetas, i)

    def propose(
        self,
        keys: Key[Array, " n"],
        thetas: Theta,
        i: Indices,
        epsilons: PyTree,
        s: Int[Array, "n state_features"],
        given: tuple[Action, Observation],
    ) -> Proposals:
        """A proposal that does not explain r has an observation that is not the real one, and no weight."""
        found = self.inner.propose(keys, thetas, i, epsilons, s, given)
        explains = self.explains(s, given[0], found.s_next)
        other = (given[1] + 1) % jnp.array(self.pomdp.observation_sizes, given[1].dtype)
        return Proposals(
            s_next=found.s_next,
            o=jnp.where(explains[:, None] | (found.o != given[1][None]), found.o, other[None]),
            log_likelihood=jnp.where(explains, found.log_likelihood, -jnp.inf),
        )

    def log_likelihood(
        self, thetas: Theta, i: Indices, epsilons: PyTree, steps: Transition
    ) -> Float[Array, " n"]:
        found = self.inner.log_likelihood(thetas, i, epsilons, steps)
        return jnp.where(self.explains(steps.s, steps.a, steps.s_next), found, -jnp.inf)

    def explains(
        self, s: Int[Array, "n state_features"], a: Action, s_next: Int[Array, "n state_features"]
    ) -> Bool[Array, " n"]:
        """Whether R(s, a, s') is r."""
        R = jax.vmap(self.pomdp.reward, (0, None, 0))(s, a, s_next)
        return jnp.abs(R - self.r) <= TOLERANCE * jnp.maximum(1, jnp.abs(self.r))
