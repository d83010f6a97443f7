"""`planners.belief_tree.draws.EachDraw` of networks on a CPU: matrices cut out once for a plan, and a step of
all draws as a few wide products.

A step by itself fetches the weights of every draw, for few inputs each: collision avoidance spent nine tenths
of a plan on that.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from baddr.core.models import Models
from baddr.core.particles import tree_at_index
from baddr.core.posterior import Theta
from baddr.fast.dropout_models import DropoutModels
from baddr.fast.models import FrozenModels
from baddr.planners.belief_tree.draws import Draws, EachDraw, Seen, Stepped
from baddr.planners.belief_tree.nodes import Drawn
from baddr.posteriors.dropout import Architecture, sample_features, unpack

Layer = tuple[Float[Array, "P _ _"], Float[Array, "P _"]]  # W and b, stacked over particles


class Nets(eqx.Module):
    """One network of each of P particles, under the masks of several draws each. Those of a particle follow
    one another."""

    layers: tuple[Layer, ...]
    scale: Float[Array, "n layers hidden"]  # of the first hidden layers: 0 where a node is dropped

    def __call__(self, x: Float[Array, "n A inputs"]) -> Float[Array, "n A outputs"]:
        P = self.layers[0][0].shape[0]
        n, A, _ = x.shape
        product = lambda h, W, b: jnp.einsum("pri,pio->pro", h.reshape(P, -1, W.shape[1]), W) + b[:, None]
        h = x
        for j, (W, b) in enumerate(self.layers[:-1]):
            h = jnp.tanh(product(h, W, b))
            if j < self.scale.shape[1]:
                h = h.reshape(n, A, -1) * self.scale[:, j, None]
        return product(h, *self.layers[-1]).reshape(n, A, -1)


class NetworkDraws(Draws):
    """Draws of a `Dropout` that has both networks and keeps its masks."""

    T: Nets
    O: Nets
    architecture: Architecture = eqx.field(static=True)

    def step(self, keys: Key[Array, "n A"], s: Int[Array, "n state_features"]) -> Stepped:
        """With the random numbers of `EachDraw`: `SplitDynamics.step` splits its key in two."""
        key_s, key_o = jnp.moveaxis(each(jr.split)(keys), 2, 0)
        by_actions = jax.vmap(self.architecture.inputs_T, in_axes=(None, 0))
        y = self.T(jax.vmap(by_actions, in_axes=(0, None))(s, self._actions))
        return Stepped(s, sample(key_s, y, self.architecture.state_sizes), key_o)

    def see(self, step: Stepped) -> Seen:
        by_actions = jax.vmap(self.architecture.inputs_O, in_axes=(None, 0, 0))
        y = self.O(jax.vmap(by_actions, in_axes=(0, None, 0))(step.s, self._actions, step.s_next))
        return Seen(sample(step.rest, y, self.architecture.observation_sizes), y)

    def weigh(
        self, step: Stepped, seen: Seen, o: Int[Array, "A C observation_features"]
    ) -> Float[Array, "A C n"]:
        """Features are independent: the sum of a logarithm each is a product with ones and zeros."""
        sizes = self.architecture.observation_sizes
        parts = jnp.split(seen.by, np.cumsum(sizes)[:-1], axis=-1)
        log_p = jnp.concatenate([jax.nn.log_softmax(y, axis=-1) for y in parts], axis=-1)
        values = np.concatenate([np.arange(size) for size in sizes]).astype(np.int32)
        feature = np.repeat(np.arange(len(sizes)), sizes)
        is_value = (o[:, :, feature] == values[None, None]).astype(log_p.dtype)
        return jnp.exp(jnp.einsum("acv,nav->acn", is_value, log_p))

    @property
    def _actions(self) -> Int[Array, " A"]:
        return jnp.arange(self.architecture.num_actions, dtype=jnp.int32)


def each(function: Any) -> Any:
    return jax.vmap(jax.vmap(function))


def sample(
    keys: Key[Array, "n A"], y: Float[Array, "n A outputs"], sizes: tuple[int, ...]
) -> Int[Array, "n A features"]:
    return each(lambda key, y: sample_features(key, y, sizes))(keys, y)


def in_order(drawn: Drawn, num_particles: int) -> Drawn:
    """The draws of one particle one after the other; `draw_root` has all particles, and all again."""
    n = drawn.i.shape[0]
    if n <= num_particles:
        return drawn
    order = np.arange(n).reshape(-1, num_particles).T.reshape(-1)
    return jax.tree.map(lambda x: x[order], drawn)


def draws_of(models: Models, theta: Theta, drawn: Drawn, num_particles: int) -> Draws:
    """The draws of a root `in_order`, in the form that is fastest on a CPU. Masks that are drawn anew in each
    step, and half a network, go the plain way."""
    inner: Any = models.inner if isinstance(models, FrozenModels) else models
    plain = EachDraw(models, theta, drawn.i, drawn.epsilon)
    if not isinstance(inner, DropoutModels) or inner.by_kernels:
        return plain
    architecture = inner.posterior.architecture
    if architecture.networks != "TO" or architecture.network.redraw_masks:
        return plain
    weights = theta if drawn.i.shape[0] >= num_particles else tree_at_index(theta, drawn.i)
    layers = jax.vmap(architecture.layers)(weights)
    T, O = (
        Nets(getattr(layers, net), scales(drawn.epsilon[:, j], architecture)) for j, net in enumerate("TO")
    )
    return NetworkDraws(T=T, O=O, architecture=architecture)


def scales(
    words: UInt32[Array, "n layers words"], architecture: Architecture
) -> Float[Array, "n layers hidden"]:
    """What the nodes of each draw are multiplied with: 0, or 1 / (1 - p)."""
    network = architecture.network
    keep = jax.vmap(lambda words: unpack(words, network.hidden))(words)
    return jnp.where(keep, 1 / (1 - network.dropout), 0.0)
