"""What is seen of a step besides o: whether it ended the episode, and the reward.

Both are known functions of (s, a, s'), so that an (s, a, s') which does not explain them is impossible. That
an episode goes on is evidence for every agent, where the state has a say in it; rewards are evidence where a
filter asks for them (not the paper's setting, whose agents learn from observations alone).
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


class WithOutcome(Models):
    """Models that also weigh the outcome of the step at hand; None: nobody says."""

    posterior: Posterior
    inner: Models
    pomdp: POMDP
    ended: Bool[Array, ""] | None = None
    r: Scalar | None = None

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
        """A proposal that does not explain the outcome has an observation that is not the real one, and no
        weight."""
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
        """Whether R(s, a, s') is r, and the episode would have ended where it did."""
        of_each = lambda function: jax.vmap(function, (0, None, 0))(s, a, s_next)
        yes = jnp.ones(s.shape[:1], bool)
        if self.ended is not None:
            yes = of_each(self.pomdp.is_terminal) == self.ended
        if self.r is not None:
            yes &= jnp.abs(of_each(self.pomdp.reward) - self.r) <= TOLERANCE * jnp.maximum(1, jnp.abs(self.r))
        return yes


def state_tells_ends(pomdp: POMDP) -> bool:
    """Whether it depends on s or s' whether a step ends the episode: elsewhere nothing is learned from it."""
    s = jax.ShapeDtypeStruct((len(pomdp.state_sizes),), jnp.int32)
    a = jax.ShapeDtypeStruct((), jnp.int32)
    traced = jax.make_jaxpr(pomdp.is_terminal)(s, a, s).jaxpr
    used = {id(x) for equation in traced.eqns for x in equation.invars} | {id(x) for x in traced.outvars}
    return id(traced.invars[0]) in used or id(traced.invars[2]) in used
