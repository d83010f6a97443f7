"""U = identity: the belief re-weights its models and never changes them."""

from jaxtyping import Array, Float, Int, Key, PyTree

from baddr.core.pomdp import Action, Dynamics, Observation, State
from baddr.core.posterior import Draws, Posterior, Rows, Theta


class Frozen(Posterior):
    """Another posterior without its update: the paper's `filtering` ablation."""

    posterior: Posterior

    def prior(self, key: Key[Array, ""]) -> Theta:
        return self.posterior.prior(key)

    def draw(self, key: Key[Array, ""], theta: Theta) -> PyTree:
        return self.posterior.draw(key, theta)

    def dynamics(self, theta: Theta, epsilon: PyTree) -> Dynamics:
        return self.posterior.dynamics(theta, epsilon)

    def dynamics_of(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.posterior.dynamics_of(thetas, i, epsilon)

    @property
    def draws_once(self) -> bool:
        return self.posterior.draws_once

    @property
    def tries_at_once(self) -> int:
        return self.posterior.tries_at_once

    def tabulate(self, thetas: Theta, i: Int[Array, " n"], epsilon: PyTree, rows: Rows) -> Dynamics | None:
        return self.posterior.tabulate(thetas, i, epsilon, rows)

    def update(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> Theta:
        return theta

    def observation_moments(
        self, theta: Theta, s: State, a: Action, s_next: State, o: Observation, draws: Draws
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return self.posterior.observation_moments(theta, s, a, s_next, o, draws)

    def observation_draws(
        self, key: Key[Array, ""], theta: Theta, s: State, a: Action, s_next: State, o: Observation
    ) -> Draws:
        return self.posterior.observation_draws(key, theta, s, a, s_next, o)
