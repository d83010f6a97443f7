"""One network D(s', o | s, a; z) for all particles; a particle holds a Gaussian over z.

z in R^d stands for *which simulator this is*. The networks' weights are shared and fixed: what is learned
online is theta = N(mean, factor factor^T), d + d^2 numbers. U is a Gauss-Newton step towards the mode of
D(s', o | s, a; z) N(z; theta), which has no learning rate: evidence adds up as precision does.

The factor A is that of the covariance, so that a draw is one small product. In u, where z = mean + A u, theta
is N(0, I) and the posterior's precision is I + F: no eigenvalue below 1, however long one learns.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from baddr.core.particles import tree_at_index
from baddr.core.pomdp import Action, Observation, State, Transition
from baddr.core.posterior import Posterior
from baddr.posteriors.dropout import Architecture, Layer, NetworkDynamics, per_feature

TINY = 1e-12  # in place of 0, where a feature is certain

Z = Float[Array, " d"]
Epsilon = Z | tuple[()]  # z itself; nothing, where D is that of the mean


class Gaussian(NamedTuple):
    """theta: N(mean, factor factor^T)."""

    mean: Float[Array, "*n d"]
    factor: Float[Array, "*n d d"]


class OfZ(NamedTuple):
    """What z adds to the last hidden layer and to the outputs."""

    hidden: Float[Array, "d hidden"]
    outputs: Float[Array, "d outputs"]


class LatentNet(NamedTuple):
    """f(x; z): layers of x alone, and then a hidden layer and the outputs, to which z adds. Late, so that
    there is little to differentiate; each hidden node still has a threshold for z that depends on x.

    Without `of_z` it is the same for all z, and nothing is learned from what it predicts.
    """

    layers: tuple[Layer, ...]
    of_z: OfZ | None

    def hidden(self, x: Float[Array, " inputs"], z: Z) -> Float[Array, " hidden"]:
        """The last hidden layer."""
        for W, b in self.layers[:-2]:
            x = jnp.tanh(x @ W + b)
        W, b = self.layers[-2]
        return jnp.tanh(x @ W + b if self.of_z is None else x @ W + b + z @ self.of_z.hidden)

    def outputs(self, h: Float[Array, " hidden"], z: Float[Array, " d"]) -> Float[Array, " outputs"]:
        """The logits, from what `hidden` gave."""
        W, b = self.layers[-1]
        return h @ W + b if self.of_z is None else h @ W + b + z @ self.of_z.outputs

    def jacobian(self, h: Float[Array, " hidden"]) -> Float[Array, "d outputs"]:
        """d logits / dz, from what `hidden` gave."""
        assert self.of_z is not None
        return (self.of_z.hidden * (1 - h**2)[None]) @ self.layers[-1][0] + self.of_z.outputs

    def logits(self, x: Float[Array, " inputs"], z: Float[Array, " d"]) -> Float[Array, " outputs"]:
        return self.outputs(self.hidden(x, z), z)


class LatentDynamics(NetworkDynamics):
    """D(.; z)."""

    T: LatentNet | None
    O: LatentNet | None
    z: Z
    architecture: Architecture = eqx.field(static=True)

    def logits_T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        return self.logits("T", self.architecture.inputs_T(s, a))

    def logits_O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return self.logits("O", self.architecture.inputs_O(s, a, s_next))

    def logits(self, net: str, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """f(x; z) of the T- or the O-network."""
        found: LatentNet | None = getattr(self, net)
        if found is None:
            raise ValueError(f"this Latent has no {net}-network: give that half of D through Partial")
        return found.logits(x, self.z)

    def for_draw(self, key: Key[Array, ""]) -> tuple[Key[Array, ""], "LatentDynamics"]:
        return key, self


class Prediction(NamedTuple):
    """A network, its inputs, and the features that it predicts, as they came out."""

    net: LatentNet
    x: Float[Array, " inputs"]
    sizes: tuple[int, ...]
    y: Int[Array, " features"]


class Latent(Posterior):
    """p(D; theta): D(.; z) of z ~ N(mean, factor factor^T), or of its mean (`expected`).

    A network that is left out (None) is the half of D that comes from elsewhere (`Partial`).
    """

    T: LatentNet | None
    O: LatentNet | None
    start: Gaussian  # theta_0, or a stack of which each particle has one (`about`)
    architecture: Architecture = eqx.field(static=True)
    expected: bool = eqx.field(static=True, default=False)

    @property
    def dimensions(self) -> int:
        return self.start.mean.shape[-1]

    def prior(self, key: Key[Array, ""]) -> Gaussian:
        if self.start.mean.ndim == 1:
            return self.start
        return tree_at_index(self.start, jr.randint(key, (), 0, self.start.mean.shape[0]))

    def draw(self, key: Key[Array, ""], theta: Gaussian) -> Epsilon:
        return () if self.expected else theta.mean + theta.factor @ jr.normal(key, theta.mean.shape)

    def dynamics(self, theta: Gaussian, epsilon: Epsilon) -> LatentDynamics:
        z = theta.mean if isinstance(epsilon, tuple) else epsilon
        return LatentDynamics(T=self.T, O=self.O, z=z, architecture=self.architecture)

    def update(
        self, key: Key[Array, ""], theta: Gaussian, s: State, a: Action, s_next: State, o: Observation
    ) -> Gaussian:
        """U: Lambda' = Lambda + k J^T (diag p - p p^T) J and mean' = mean + Lambda'^-1 J^T (y - p), over the
        features that both networks predict, for the prediction p (`moderated`, by k) and the outcome y."""
        g, F = jnp.zeros(theta.mean.shape), jnp.zeros(theta.factor.shape)
        for prediction in self.predictions(Transition(s, a, s_next, o)):
            dg, dF = score(prediction, theta)
            g, F = g + dg, F + dF
        return conditioned(theta, g, F)

    def predictions(self, step: Transition) -> Iterator[Prediction]:
        """What z is learned from: a network, its inputs, and what came of them."""
        (s, a, s_next, o), shape = step, self.architecture
        if self.T is not None and self.T.of_z is not None:
            yield Prediction(self.T, shape.inputs_T(s, a), shape.state_sizes, s_next)
        if self.O is not None and self.O.of_z is not None:
            yield Prediction(self.O, shape.inputs_O(s, a, s_next), shape.observation_sizes, o)


def about(z: Float[Array, "M d"], width: float) -> Gaussian:
    """A Gaussian of this width about the z of each simulator. All of them together have mean 0 and covariance
    I, as the prior has that is one Gaussian: z is scaled to the rest.

    Where simulators are spread otherwise than a Gaussian (probabilities of which most are about 0, and some
    are not) one Gaussian puts too little where they are, and what is rare is learned too slowly.
    """
    z = z - jnp.mean(z, axis=0, keepdims=True)
    factor = jnp.linalg.cholesky(z.T @ z / len(z) + TINY * jnp.eye(z.shape[1]))
    white = jax.scipy.linalg.solve_triangular(factor, z.T, lower=True).T
    narrow = jnp.broadcast_to(width * jnp.eye(z.shape[1]), (*z.shape, z.shape[1]))
    return Gaussian(math.sqrt(1 - width**2) * white, narrow)


def score(prediction: Prediction, theta: Gaussian) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Gradient and Gauss-Newton matrix in u of log p(y | x; mean + A u)."""
    net, x, sizes, y = prediction
    h = net.hidden(x, theta.mean)
    rows = per_feature(net.outputs(h, theta.mean), sizes)
    J = theta.factor.T @ net.jacobian(h)
    J = jax.vmap(lambda row: jnp.nan_to_num(per_feature(row, sizes), neginf=0.0))(J)
    p, precision, J = moderated(rows, J)
    outcome = jnp.arange(max(sizes), dtype=y.dtype)[None] == y[:, None]
    g = jnp.sum(jnp.where(outcome[None], J, 0), axis=(1, 2))
    return g, jnp.einsum("ifc,fc,jfc->ij", J, precision * p, J)


def moderated(
    rows: Float[Array, "features values"], J: Float[Array, "d features values"]
) -> tuple[Float[Array, "features values"], Float[Array, "features 1"], Float[Array, "d features values"]]:
    """E[p] under theta, about, the scale k of its slope, and J less its mean under p.

    At the mean alone p is too certain where theta is wide, and U learns too little from success. With such J,
    J^T (diag p - p p^T) J is a sum of squares.
    """
    p = jax.nn.softmax(rows)
    centred = J - jnp.sum(p[None] * J, axis=-1, keepdims=True)
    spread = jnp.sum(p * jnp.sum(centred**2, axis=0), axis=-1, keepdims=True)
    k = scale_of(spread, jnp.sum(p * (1 - p), axis=-1, keepdims=True))
    p = jax.nn.softmax(k * rows)
    return p, k, J - jnp.sum(p[None] * J, axis=-1, keepdims=True)


def scale_of(spread: Float[Array, "..."], chance: Float[Array, "..."]) -> Float[Array, "..."]:
    """k: a logit of mean m and variance v has E[sigmoid] = sigmoid(k m), about, with k^-2 = 1 + pi v / 8
    (MacKay 1992).

    v of a feature is the variance of the difference of two logits, on average over pairs of different values
    drawn from p: `spread` is the variance of a logit about the feature's mean, and `chance` the probability
    that two values differ.
    """
    return 1 / jnp.sqrt(1 + math.pi / 8 * 2 * spread / (chance + TINY))


def conditioned(theta: Gaussian, g: Float[Array, " d"], F: Float[Array, "d d"]) -> Gaussian:
    """theta after evidence of this gradient and this precision in u.

    With I + F = L L^T: A' = A L^-T, and mean' = mean + A' L^-1 g.
    """
    d = g.shape[0]
    left = eliminated(jnp.concatenate([jnp.eye(d, dtype=F.dtype) + F, theta.factor, g[None]]))
    factor, g = left[:d], left[d]
    return Gaussian(theta.mean + factor @ g, factor)


def eliminated(rows: Float[Array, "rows d *n"]) -> Float[Array, "rows_left d *n"]:
    """X L^-T for the d x d matrix L L^T above and the rows X below it: Cholesky, column after column."""
    d, columns = rows.shape[1], []
    for left in reversed(range(d)):  # columns after this one
        column = rows[:, 0] / jnp.sqrt(rows[0, 0])[None]
        columns.append(column[1 + left :])
        rows = rows[1:, 1:] - column[1:, None] * column[None, 1 : 1 + left]
    return jnp.stack(columns, axis=1)


def initial_net(key: Key[Array, ""], widths: list[int], dimensions: int | None) -> LatentNet:
    """Untrained: uniform in +- 1 / sqrt(fan_in). Without dimensions z adds nothing."""

    def uniform(key: Key[Array, ""], fan_in: int, fan_out: int) -> Float[Array, "_ _"]:
        bound = 1 / math.sqrt(fan_in)
        return jr.uniform(key, (fan_in, fan_out), minval=-bound, maxval=bound)

    *keys, key_hidden, key_outputs = jr.split(key, len(widths) + 1)
    sizes = zip(keys, pairwise(widths), strict=True)
    layers = tuple((uniform(key, n, m), jnp.zeros((m,))) for key, (n, m) in sizes)
    if dimensions is None:
        return LatentNet(layers, None)
    of_z = uniform(key_hidden, dimensions, widths[-2]), uniform(key_outputs, dimensions, widths[-1])
    return LatentNet(layers, OfZ(*of_z))
