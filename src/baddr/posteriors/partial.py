"""Partially known dynamics: T from one posterior, O from another, each of which may be a point mass."""

import jax.random as jr
from jaxtyping import Array, Key, PyTree

from baddr.core.pomdp import Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.core.posterior import Posterior, Theta
from baddr.posteriors.known import Known


def split(D: Dynamics) -> SplitDynamics:
    """D, which must have its factors apart."""
    if isinstance(D, SplitDynamics):
        return D
    raise TypeError(f"{type(D).__name__} gives no separate p(s' | s, a) and p(o | s, a, s')")


class PartialDynamics(SplitDynamics):
    """p(s' | s, a) of one D and p(o | s, a, s') of another."""

    transition: SplitDynamics
    observation: SplitDynamics

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return self.transition.sample_state(key, s, a)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return self.observation.sample_observation(key, s, a, s_next)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return self.transition.transition_log_prob(s, a, s_next)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return self.observation.observation_log_prob(s, a, s_next, o)


class Partial(Posterior):
    """T and O from two posteriors; a plain `Dynamics` stands for one that is known.

    theta is the pair of their parameters, and both learn from every transition. `Dropout` without one of
    its networks (`Architecture.networks`) keeps the unused half out of the particles.
    """

    transition: Posterior
    observation: Posterior

    def __init__(self, transition: Posterior | Dynamics, observation: Posterior | Dynamics):
        self.transition = Known(transition) if isinstance(transition, Dynamics) else transition
        self.observation = Known(observation) if isinstance(observation, Dynamics) else observation

    def prior(self, key: Key[Array, ""]) -> tuple[Theta, Theta]:
        key_T, key_O = jr.split(key)
        return self.transition.prior(key_T), self.observation.prior(key_O)

    def draw(self, key: Key[Array, ""], theta: tuple[Theta, Theta]) -> tuple[PyTree, PyTree]:
        key_T, key_O = jr.split(key)
        return self.transition.draw(key_T, theta[0]), self.observation.draw(key_O, theta[1])

    def dynamics(self, theta: tuple[Theta, Theta], epsilon: tuple[PyTree, PyTree]) -> PartialDynamics:
        return PartialDynamics(
            split(self.transition.dynamics(theta[0], epsilon[0])),
            split(self.observation.dynamics(theta[1], epsilon[1])),
        )

    def update(
        self,
        key: Key[Array, ""],
        theta: tuple[Theta, Theta],
        s: State,
        a: Action,
        s_next: State,
        o: Observation,
    ) -> tuple[Theta, Theta]:
        key_T, key_O = jr.split(key)
        return (
            self.transition.update(key_T, theta[0], s, a, s_next, o),
            self.observation.update(key_O, theta[1], s, a, s_next, o),
        )
