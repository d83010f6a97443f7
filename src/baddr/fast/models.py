"""`core.models` for stacks of theta: each family in the way that is best for it. All compute what `EachAlone`
does, where that can serve (`FeatureTables` need models that restart)."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.models import ByDynamics, Indices, Models, draw_each, update_one
from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Dynamics, Transition
from baddr.core.posterior import Posterior, Theta
from baddr.fast.loops import bytes_of, over_particles
from baddr.posteriors.factored import Factored, FactoredCounts, FactoredDynamics
from baddr.posteriors.frozen import Frozen
from baddr.posteriors.partial import Partial, PartialDynamics, split
from baddr.posteriors.tables import FeatureTables, TableModels


@singledispatch
def models_of(posterior: Posterior) -> Models:
    """The fast form of a posterior; any has one."""
    return InBlocks(posterior)


class InBlocks(ByDynamics):
    """A few particles at a time on a CPU, so that their theta stay in the cache."""

    posterior: Posterior

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.posterior.dynamics(tree_at_index(thetas, i), epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        one = update_one(self.posterior, thetas, steps, learn)
        return self.each(one, thetas)(keys, i, steps.s, steps.s_next)


class FactoredModels(ByDynamics):
    """A step of a Bayes network reads a few rows of its counts: they are read where they lie."""

    posterior: Factored

    @property
    def tries_at_once(self) -> int:
        return 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(self, thetas: FactoredCounts, i: Int[Array, ""], epsilon: PyTree) -> FactoredDynamics:
        return self.posterior.dynamics_among(thetas, i, epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        one = update_one(self.posterior, thetas, steps, learn)
        return self.each(one, thetas)(keys, i, steps.s, steps.s_next)


class FrozenModels(ByDynamics):
    """The models of another posterior; nothing is learned."""

    posterior: Frozen

    @property
    def inner(self) -> Models:
        return models_of(self.posterior.posterior)

    @property
    def tries_at_once(self) -> int:
        return self.inner.tries_at_once

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return self.inner.each(function, thetas)

    def dynamics(self, thetas: Theta, i: Int[Array, ""], epsilon: PyTree) -> Dynamics:
        return self.inner.dynamics(thetas, i, epsilon)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Theta, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Theta:
        return tree_at_index(thetas, i)


class PartialModels(ByDynamics):
    """T from the models of one posterior, O from those of another."""

    posterior: Partial

    @property
    def transition(self) -> Models:
        return models_of(self.posterior.transition)

    @property
    def observation(self) -> Models:
        return models_of(self.posterior.observation)

    @property
    def tries_at_once(self) -> int:
        return max(self.transition.tries_at_once, self.observation.tries_at_once)

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(
        self, thetas: tuple[Theta, Theta], i: Int[Array, ""], epsilon: tuple[PyTree, PyTree]
    ) -> PartialDynamics:
        return PartialDynamics(
            split(self.transition.dynamics(thetas[0], i, epsilon[0])),
            split(self.observation.dynamics(thetas[1], i, epsilon[1])),
        )

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self,
        keys: Key[Array, " n"],
        thetas: tuple[Theta, Theta],
        i: Indices,
        steps: Transition,
        learn: Bool[Array, ""],
    ) -> tuple[Theta, Theta]:
        keys_T, keys_O = jnp.moveaxis(jax.vmap(jr.split)(keys), 1, 0)
        return (
            self.transition.update(keys_T, thetas[0], i, steps, learn),
            self.observation.update(keys_O, thetas[1], i, steps, learn),
        )


@models_of.register(FeatureTables)
def _(posterior: FeatureTables) -> TableModels:
    return TableModels(posterior)


@models_of.register(Factored)
def _(posterior: Factored) -> FactoredModels:
    return FactoredModels(posterior)


@models_of.register(Frozen)
def _(posterior: Frozen) -> FrozenModels:
    return FrozenModels(posterior)


@models_of.register(Partial)
def _(posterior: Partial) -> PartialModels:
    return PartialModels(posterior)
