"""The shared networks of many particles: steps of all of them are a few matrix products."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Bool, Int, Key

from baddr.core.models import Indices, Models, update_one
from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Transition
from baddr.core.posterior import Theta
from baddr.fast.loops import over_particles
from baddr.fast.models import models_of
from baddr.fast.tuning import BYTES_OF_LATENT
from baddr.posteriors.latent import Epsilon, Gaussian, Latent, LatentDynamics


@models_of.register(Latent)
def _(posterior: Latent) -> "LatentModels":
    return LatentModels(posterior)


class LatentModels(Models):
    """D and U of particles that share their networks."""

    posterior: Latent

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, BYTES_OF_LATENT)

    def dynamics(self, thetas: Gaussian, i: Int[Array, ""], epsilon: Epsilon) -> LatentDynamics:
        # Of theta nothing is read where z was drawn.
        return self.posterior.dynamics(tree_at_index(thetas, i), epsilon)

    def update(
        self, keys: Key[Array, " n"], thetas: Gaussian, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Gaussian:
        one = update_one(self.posterior, thetas, steps, learn)
        return self.each(one, thetas)(keys, i, steps.s, steps.s_next)
