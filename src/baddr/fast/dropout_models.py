"""The networks of many particles: masks drawn before the weights are touched, and on a GPU kernels that read
the weights where they lie."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.models import ByDynamics, Indices, draw_each
from baddr.core.pomdp import Action, State, Transition
from baddr.core.posterior import Theta
from baddr.fast import kernels
from baddr.fast.backend import has_kernels, on_cpu
from baddr.fast.kernels import Example, Net, Outputs, Words
from baddr.fast.loops import bytes_of, over_particles
from baddr.fast.models import models_of
from baddr.fast.tuning import TRIES_AT_ONCE
from baddr.posteriors.dropout import (
    Architecture,
    Dropout,
    Masks,
    NetworkDynamics,
    Weights,
    draw_masks,
    log_prob_of,
    masks_of_draw,
    unpack,
)

Stack = Float[Array, "particles weights"]


@models_of.register(Dropout)
def _(posterior: Dropout) -> "DropoutModels":
    return DropoutModels(posterior, by_kernels=has_kernels() and fit_kernels(posterior))


def fit_kernels(posterior: Dropout) -> bool:
    """Whether the kernels are for such networks."""
    return posterior.architecture.network.layers == kernels.LAYERS and posterior.ensemble.dtype == jnp.float32


class DropoutModels(ByDynamics):
    """D and U of particles' networks; by kernels the same numbers, but for rounding."""

    posterior: Dropout
    by_kernels: bool = eqx.field(static=True)

    @property
    def tries_at_once(self) -> int:
        large = self.posterior.architecture.network.hidden >= kernels.LARGE
        return TRIES_AT_ONCE if self.by_kernels and large else 1

    def each(self, function: Callable[..., Any], thetas: Theta) -> Callable[..., Any]:
        return over_particles(function, bytes_of(thetas))

    def dynamics(self, thetas: Stack, i: Int[Array, ""], epsilon: Masks) -> NetworkDynamics:
        if not self.by_kernels:
            return self.posterior.dynamics(thetas[i], epsilon)
        particle = Particle(thetas, i)
        return ParticleDynamics(particle=particle, masks=epsilon, architecture=self.posterior.architecture)

    def draw(self, keys: Key[Array, " n"], thetas: Theta, i: Indices) -> PyTree:
        return draw_each(self.posterior, keys, thetas, i)

    def update(
        self, keys: Key[Array, " n"], thetas: Stack, i: Indices, steps: Transition, learn: Bool[Array, ""]
    ) -> Float[Array, "n weights"]:
        """U of the particles i: their masks are drawn before (see `over_particles`)."""

        def one(masks: Masks, i: Int[Array, ""], s: State, s_next: State) -> Weights:
            step = Transition(s, steps.a, s_next, steps.o)
            if self.by_kernels:
                return self._descend_in_place(Particle(thetas, i), masks, step, learn)
            theta = thetas[i]
            return jnp.where(learn, self.posterior.descend(theta, masks, step), theta)

        masks = jax.vmap(lambda key: draw_masks(key, self.posterior.architecture))(keys)
        return self.each(one, thetas)(masks, i, steps.s, steps.s_next)

    def _descend_in_place(
        self, particle: "Particle", masks: Masks, step: Transition, learn: Bool[Array, ""]
    ) -> Weights:
        """`Dropout.descend` by kernels; a network that does not learn gets a gradient of 0."""
        architecture = self.posterior.architecture
        network = architecture.network
        inputs = {"T": architecture.inputs_T(step.s, step.a)}
        if "O" in architecture.networks:
            inputs["O"] = architecture.inputs_O(step.s, step.a, step.s_next)
        targets = {
            "T": (architecture.state_sizes, step.s_next, network.learn_transition),
            "O": (architecture.observation_sizes, step.o, network.learn_observation),
        }
        nets, examples = tuple(net_of(architecture, net) for net in architecture.networks), []
        for name, net in zip(architecture.networks, nets, strict=True):
            sizes, values, learns = targets[name]
            found = particle.forward(net, inputs[name][None], masks["TO".index(name)])
            y, h1, h2 = (array[0] for array in found)
            dy = jax.grad(lambda y, sizes=sizes, values=values: -log_prob_of(y, sizes, values))(y)
            slope_1, slope_2 = slopes(jnp.stack([h1, h2]), masks["TO".index(name)], network.dropout)
            dy = jnp.where(learn & learns, dy, 0)
            examples.append(Example(inputs[name], h1, slope_1, h2, slope_2, dy))
        rate = network.learning_rate
        return kernels.descend(particle.thetas, particle.i, tuple(examples), nets, rate, on_cpu())


def net_of(architecture: Architecture, net: str) -> Net:
    """T or O, of two hidden layers, for the kernels."""
    architecture.check_has(net)
    inputs, hidden, _, outputs = architecture.widths(net)
    start = architecture.num_weights("T") if net == "O" else 0
    return Net(start, inputs, hidden, outputs, architecture.network.dropout)


def slopes(h: Float[Array, "layers hidden"], words: Words, p: float) -> Float[Array, "layers hidden"]:
    """dh/dz of h = dropout(tanh(z)), for hidden layers of which the first ones have masks."""
    keep, scale = unpack(words, h.shape[1]), 1 / (1 - p)
    under_masks = jnp.where(keep, scale - h[: keep.shape[0]] ** 2 / scale, 0)
    return jnp.concatenate([under_masks, 1 - h[keep.shape[0] :] ** 2])


class Particle(eqx.Module):
    """The weights of particle i where they lie among those of all particles. On a CPU, which has no kernels
    but in tests, they are interpreted."""

    thetas: Stack
    i: Int[Array, ""]

    def forward(self, net: Net, X: Float[Array, "m inputs"], words: Words) -> Outputs:
        return kernels.forward(self.thetas, self.i, X, words, net, on_cpu())


class ParticleDynamics(NetworkDynamics):
    """`DropoutDynamics` by kernels."""

    particle: Particle
    masks: Masks
    architecture: Architecture = eqx.field(static=True)

    def logits_T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        return self.logits_at("T", self.architecture.inputs_T(s, a)[None])[0]

    def logits_O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return self.logits_at("O", self.architecture.inputs_O(s, a, s_next)[None])[0]

    def logits_at(self, net: str, X: Float[Array, "m inputs"]) -> Float[Array, "m outputs"]:
        return self.particle.forward(net_of(self.architecture, net), X, self.masks["TO".index(net)]).Y

    def for_draw(self, key: Key[Array, ""]) -> tuple[Key[Array, ""], "ParticleDynamics"]:
        key, masks = masks_of_draw(key, self.masks, self.architecture)
        return key, ParticleDynamics(particle=self.particle, masks=masks, architecture=self.architecture)
