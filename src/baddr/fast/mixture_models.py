"""Several posteriors' models at once: each in the way that is best for it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.models import ByDynamics, Indices, Models
from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Dynamics, Transition
from baddr.core.posterior import Theta
from baddr.fast.loops import bytes_of, over_particles
from baddr.fast.models import models_of
from baddr.posteriors.mixture import Mixed, Mixture, after, mixed


@models_of.register(Mixture)
def _(posterior: Mixture) -> "MixtureModels":
    return MixtureModels(posterior)


class MixtureModels(ByDynamics):
    """The models of all parts."""

    posterior: Mixture

    @property
    def parts(self) -> tuple[Models, ...]:
        return tuple(map(models_of, self.posterior.parts))

    @property
    def tries_at_once(self) -> int:
        return max(part.tries_at_once for part in self.parts)

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(self, thetas: Mixed, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        parts = zip(self.parts, thetas.thetas, epsilon, strict=True)
        return mixed(thetas.which[i], tuple(part.dynamics(theta, i, draw) for part, theta, draw in parts))

    def draw(self, keys: Key[Array, " n"], thetas: Mixed, i: Indices) -> tuple[PyTree, ...]:
        parts = zip(self.parts, self._keys(keys), thetas.thetas, strict=True)
        return tuple(part.draw(keys, theta, i) for part, keys, theta in parts)

    def update(
        self, keys: Key[Array, " n"], thetas: Mixed, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Mixed:
        parts = zip(self.parts, self._keys(keys), thetas.thetas, strict=True)
        updated = tuple(part.update(keys, theta, i, steps, learn) for part, keys, theta in parts)
        return after(tree_at_index(thetas, i), updated)

    def _keys(self, keys: Key[Array, " n"]) -> Key[Array, "parts n"]:
        """One for each part, as the posterior splits them."""
        return jnp.moveaxis(jax.vmap(lambda key: jr.split(key, len(self.posterior.parts)))(keys), 1, 0)
