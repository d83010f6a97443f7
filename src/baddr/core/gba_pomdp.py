"""The General Bayes-Adaptive POMDP (Def. 4): learning as planning in a POMDP over (s, theta)."""

from typing import NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.models import EachAlone, Models
from baddr.core.pomdp import POMDP, Action, Observation, Scalar
from baddr.core.posterior import Posterior, sample


class AugmentedState(NamedTuple):
    """s_bar = (s, theta)."""

    s: Int[Array, "..."]
    theta: PyTree


class GBAPOMDP(POMDP):
    """The POMDP whose state is (s, theta), given a posterior family and its update U (Def. 4).

    `models` are how the D and U of many particles are computed; `EachAlone(posterior)` where a posterior is
    given.
    """

    pomdp: POMDP
    models: Models
    state_sizes: tuple[int, ...] = eqx.field(static=True)  # of s; theta is any pytree
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def __init__(self, pomdp: POMDP, posterior: Posterior | Models):
        self.pomdp = pomdp
        self.models = posterior if isinstance(posterior, Models) else EachAlone(posterior)
        self.state_sizes, self.observation_sizes = pomdp.state_sizes, pomdp.observation_sizes
        self.num_actions, self.discount, self.horizon = pomdp.num_actions, pomdp.discount, pomdp.horizon

    @property
    def posterior(self) -> Posterior:
        return self.models.posterior

    def initial_state(self, key: Key[Array, ""]) -> AugmentedState:
        key_s, key_theta = jr.split(key)
        return AugmentedState(self.pomdp.initial_state(key_s), self.posterior.prior(key_theta))

    def initial_observation(self, key: Key[Array, ""], s: AugmentedState) -> Observation:
        return self.pomdp.initial_observation(key, s.s)

    def step(self, key: Key[Array, ""], s: AugmentedState, a: Action) -> tuple[AugmentedState, Observation]:
        """Eq. 10-11: draw D from the posterior, step it, and fold the transition into theta."""
        key_D, key_step, key_U = jr.split(key, 3)
        D = sample(self.posterior, key_D, s.theta)
        s_next, o = D.step(key_step, s.s, a)
        theta_next = self.posterior.update(key_U, s.theta, s.s, a, s_next, o)
        return AugmentedState(s_next, theta_next), o

    def reward(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Scalar:
        """R_bar(s_bar, a, s_bar') = R(s, a, s')."""
        return self.pomdp.reward(s.s, a, s_next.s)

    def is_terminal(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Bool[Array, ""]:
        return self.pomdp.is_terminal(s.s, a, s_next.s)
