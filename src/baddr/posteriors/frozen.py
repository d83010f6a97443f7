"""U = identity: the belief re-weights its models and never changes them."""

from jaxtyping import Array, Key, PyTree

from baddr.core.pomdp import Action, Dynamics, Observation, State
from baddr.core.posterior import Posterior, Theta


class Frozen(Posterior):
    """Another posterior without its update: the paper's `filtering` ablation."""

    posterior: Posterior

    def prior(self, key: Key[Array, ""]) -> Theta:
        return self.posterior.prior(key)

    def draw(self, key: Key[Array, ""], theta: Theta) -> PyTree:
        return self.posterior.draw(key, theta)

    def dynamics(self, theta: Theta, epsilon: PyTree) -> Dynamics:
        return self.posterior.dynamics(theta, epsilon)

    def update(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> Theta:
        return theta
