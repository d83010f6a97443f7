"""The General Bayes-Adaptive POMDP (Def. 4): learning as planning in a POMDP over (s, theta)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.particles import Particles
from baddr.pomdp import POMDP, Action, Observation, Scalar, feature_vector
from baddr.posteriors.base import Posterior, Rows

# A simulation takes about three steps. Evaluating D at this many inputs before the search costs less than
# evaluating it where the search goes, one simulated step after another: see docs/results.md.
MOST_ROWS = 32


class AugmentedState(NamedTuple):
    """s_bar = (s, theta)."""

    s: Int[Array, "..."]
    theta: PyTree


class GBAPOMDP(POMDP):
    """The POMDP whose state is (s, theta), given a posterior family and its update U (Def. 4).

    With `root_sampling` (Alg. 2) a simulation draws one D ~ p(.; theta) at its root and runs in the
    POMDP with those dynamics; without it, a simulation runs in this POMDP itself and learns as it goes.
    Where D is costly to evaluate and has few inputs (`Posterior.tabulates`), each simulation's D is
    tabulated before the search: the same numbers, by large matrix products instead of many small ones.
    """

    pomdp: POMDP
    posterior: Posterior
    root_sampling: bool = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)  # of s; theta is any pytree
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    rows: Rows | None = eqx.field(static=True)  # where each simulation's D is tabulated before the search

    def __init__(
        self, pomdp: POMDP, posterior: Posterior, root_sampling: bool = True, most_rows: int = MOST_ROWS
    ):
        self.pomdp, self.posterior, self.root_sampling = pomdp, posterior, root_sampling
        self.rows = rows_that_matter(pomdp, most_rows) if root_sampling and posterior.tabulates else None
        self.state_sizes, self.observation_sizes = pomdp.state_sizes, pomdp.observation_sizes
        self.num_actions, self.discount, self.horizon = pomdp.num_actions, pomdp.discount, pomdp.horizon

    def initial_state(self, key: Key[Array, ""]) -> AugmentedState:
        key_s, key_theta = jr.split(key)
        return AugmentedState(self.pomdp.initial_state(key_s), self.posterior.prior(key_theta))

    def initial_observation(self, key: Key[Array, ""], s: AugmentedState) -> Observation:
        return self.pomdp.initial_observation(key, s.s)

    def step(self, key: Key[Array, ""], s: AugmentedState, a: Action) -> tuple[AugmentedState, Observation]:
        """Eq. 10-11: draw D from the posterior, step it, and fold the transition into theta."""
        key_D, key_step, key_U = jr.split(key, 3)
        D = self.posterior.sample(key_D, s.theta)
        s_next, o = D.step(key_step, s.s, a)
        theta_next = self.posterior.update(key_U, s.theta, s.s, a, s_next, o)
        return AugmentedState(s_next, theta_next), o

    def reward(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Scalar:
        """R_bar(s_bar, a, s_bar') = R(s, a, s')."""
        return self.pomdp.reward(s.s, a, s_next.s)

    def is_terminal(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Bool[Array, ""]:
        return self.pomdp.is_terminal(s.s, a, s_next.s)

    def sample_roots(self, key: Key[Array, ""], belief: Particles, n: int) -> tuple[Any, PyTree]:
        if not self.root_sampling:
            return super().sample_roots(key, belief, n)

        def one(key: Key[Array, ""]) -> tuple[Any, PyTree]:
            key_particle, key_D = jr.split(key)
            i = belief.sample(key_particle)
            s, theta = belief.at(i)
            return s, (i, self.posterior.draw(key_D, theta))

        s, (i, epsilon) = jax.vmap(one)(jr.split(key, n))
        if self.rows is None:
            return s, (i, epsilon)
        return s, self.posterior.tabulate(belief.states.theta, i, epsilon, self.rows)

    def root_pomdp(self, belief: Particles, draw: PyTree) -> POMDP:
        if not self.root_sampling:
            return self
        if self.rows is not None:
            return self.pomdp.with_dynamics(self.posterior.tabulated(draw, self.rows))
        i, epsilon = draw
        return self.pomdp.with_dynamics(self.posterior.dynamics_of(belief.states.theta, i, epsilon))


def rows_that_matter(pomdp: POMDP, most: int) -> Rows | None:
    """The inputs of D whose outcome a simulation can see; None where there are more than `most`.

    s' of (s, a) matters unless it always ends the episode with one and the same reward; o matters unless
    (s, a, s') ends the episode.
    """
    S, A = pomdp.num_states, pomdp.num_actions
    if S * A * S > most**3:
        return None

    def outcome(i: Array, a: Array, i_next: Array) -> tuple[Bool[Array, ""], Scalar]:
        s, s_next = (feature_vector(x, pomdp.state_sizes) for x in (i, i_next))
        return pomdp.is_terminal(s, a, s_next), pomdp.reward(s, a, s_next)

    over = lambda f, axis: jax.vmap(f, in_axes=tuple(0 if j == axis else None for j in range(3)))
    numbers = (jnp.arange(n, dtype=jnp.int32) for n in (S, A, S))
    try:
        ends, r = (np.asarray(x) for x in over(over(over(outcome, 2), 1), 0)(*numbers))
    except jax.errors.TracerArrayConversionError:  # a POMDP that is an argument of a compiled function
        return None
    seen = ~ends.all(axis=2) | (r != r[:, :, :1]).any(axis=2)
    T = tuple((int(s), int(a)) for s, a in np.argwhere(seen))
    O = tuple((int(s), int(a), int(s_next)) for s, a, s_next in np.argwhere(~ends))
    return Rows(T, O) if len(T) + len(O) <= most else None
