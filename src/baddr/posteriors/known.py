"""A point mass: the dynamics are known and nothing is learned."""

from jaxtyping import Array, Key

from baddr.core.pomdp import Action, Dynamics, Observation, State
from baddr.core.posterior import Posterior


class Known(Posterior):
    """p(D; theta) = 1 at one D. POMCP on the truth is PO-UCT under this posterior."""

    D: Dynamics

    def prior(self, key: Key[Array, ""]) -> tuple[()]:
        return ()

    def draw(self, key: Key[Array, ""], theta: tuple[()]) -> tuple[()]:
        return ()

    def dynamics(self, theta: tuple[()], epsilon: tuple[()]) -> Dynamics:
        return self.D

    def update(
        self, key: Key[Array, ""], theta: tuple[()], s: State, a: Action, s_next: State, o: Observation
    ) -> tuple[()]:
        return ()
