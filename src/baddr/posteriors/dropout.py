"""BADDr's posterior (Section 4): a T- and an O-network whose dropout is the uncertainty about D.

theta holds the weights w, epsilon the dropout masks: w~ = w . diag(z) is never formed, the masks act on the
activations. A particle's weights are one flat vector (2,629 numbers, 10.5 kB, with networks of 32 nodes on
tiger): a planner that does not tabulate them fetches them at each simulated step, and one stretch of memory
costs it about half of what a dozen separate matrices do.
"""

import math
from abc import abstractmethod
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from baddr.core.pomdp import Action, Observation, Scalar, SplitDynamics, State, Transition
from baddr.core.posterior import Posterior
from baddr.posteriors.settings import Network
from baddr.prng import running_sum, uniform_integers

MASK_BITS = 16  # dropout probabilities are rounded to multiples of 2^-16
WORD = 32

Weights = Float[Array, " weights"]  # theta
Layer = tuple[Float[Array, "_ _"], Float[Array, " _"]]  # W (fan_in x fan_out) and b
Masks = UInt32[Array, "2 dropout_layers words"]  # of the T- and the O-network, a bit per node, 1: keep


class Layers(NamedTuple):
    """w_T and w_O layer by layer: views of theta. A network that is not there has no layers."""

    T: tuple[Layer, ...]
    O: tuple[Layer, ...]


class Architecture(NamedTuple):
    """All that the networks' shapes depend on.

    `networks` "T" or "O" leaves the other one out, where its half of D comes from elsewhere (`Partial`).
    """

    network: Network
    state_sizes: tuple[int, ...]
    num_actions: int
    observation_sizes: tuple[int, ...]
    networks: str = "TO"

    @property
    def coding(self) -> tuple[str, ...]:
        """The input coding of every state feature."""
        inputs, n = self.network.inputs, len(self.state_sizes)
        if isinstance(inputs, str):
            return (inputs,) * n
        if len(inputs) != n:
            raise ValueError(f"network.inputs names {len(inputs)} codings for {n} state features")
        return inputs

    @property
    def num_dropout_layers(self) -> int:
        return 1 if self.network.dropout_placement == "first" else self.network.layers - 1

    def widths(self, net: str) -> list[int]:
        """Of T or O: its inputs, hidden layers and outputs; nothing where it is left out."""
        if net not in self.networks:
            return []
        codings = zip(self.coding, self.state_sizes, strict=True)
        num_features = sum(size if coding == "onehot" else 1 for coding, size in codings)
        hidden = [self.network.hidden] * (self.network.layers - 1)
        if net == "T":
            return [num_features + self.num_actions, *hidden, sum(self.state_sizes)]
        return [2 * num_features + self.num_actions, *hidden, sum(self.observation_sizes)]

    def num_weights(self, net: str) -> int:
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.widths(net)))

    def layers(self, theta: Weights) -> Layers:
        """theta cut into matrices: T before O, layer after layer, W (fan_in x fan_out) before b."""
        end, nets = 0, []
        for net in "TO":
            layers = []
            for fan_in, fan_out in pairwise(self.widths(net)):
                start, middle, end = end, end + fan_in * fan_out, end + (fan_in + 1) * fan_out
                layers.append((theta[start:middle].reshape(fan_in, fan_out), theta[middle:end]))
            nets.append(tuple(layers))
        return Layers(*nets)

    def check_has(self, net: str) -> None:
        if net not in self.networks:
            raise ValueError(f"this Dropout has no {net}-network: give that half of D through Partial")

    def inputs_T(self, s: State, a: Action) -> Float[Array, " inputs"]:
        return jnp.concatenate([self._encode(s), one_hot(a, self.num_actions)])

    def inputs_O(self, s: State, a: Action, s_next: State) -> Float[Array, " inputs"]:
        return jnp.concatenate([self.inputs_T(s, a), self._encode(s_next)])

    def _encode(self, s: State) -> Float[Array, " inputs"]:
        return encode(s, self.state_sizes, self.coding)


def initial_weights(key: Key[Array, ""], architecture: Architecture) -> Weights:
    """Untrained theta: uniform in +- 1 / sqrt(fan_in), weights and biases alike (PyTorch's default)."""
    bounds = [
        np.full((fan_in + 1) * fan_out, 1 / math.sqrt(fan_in))
        for net in "TO"
        for fan_in, fan_out in pairwise(architecture.widths(net))
    ]
    bound = jnp.asarray(np.concatenate(bounds), float)
    return jr.uniform(key, bound.shape, minval=-bound, maxval=bound)


def draw_masks(key: Key[Array, ""], architecture: Architecture) -> Masks:
    """z ~ Bernoulli(1 - p) for every node that can be dropped, 32 to a word.

    A word of Bernoulli(q) bits is built from uniform words, one per binary digit of q from the last to the
    first: OR with the next word where the digit is 1, AND where it is 0. One word will do for p = 1/2.
    """
    network = architecture.network
    shape = (2, architecture.num_dropout_layers, math.ceil(network.hidden / WORD))
    q = round((1 - network.dropout) * 2**MASK_BITS)
    if q == 2**MASK_BITS:
        return jnp.full(shape, 0xFFFFFFFF, jnp.uint32)
    digits = f"{q:0{MASK_BITS}b}".rstrip("0")
    uniform = jr.bits(key, (len(digits), *shape), jnp.uint32)
    words = jnp.zeros(shape, jnp.uint32)
    for i, digit in enumerate(reversed(digits)):
        words = words | uniform[i] if digit == "1" else words & uniform[i]
    # Without a barrier XLA may draw a node's bit again for every weight that it touches.
    return jax.lax.optimization_barrier(words)


def unpack(words: UInt32[Array, "layers words"], hidden: int) -> Bool[Array, "layers hidden"]:
    """The bits of the first `hidden` nodes of every layer."""
    position = np.arange(WORD, dtype=np.uint32)[None, None]
    bits = (words[:, :, None] >> position) & np.uint32(1)
    return bits.reshape(words.shape[0], WORD * words.shape[1])[:, :hidden] == 1


def logits(
    w: tuple[Layer, ...], x: Float[Array, " inputs"], keep: Bool[Array, "layers hidden"], p: float
) -> Float[Array, " outputs"]:
    """f_w~(x): linear, tanh, dropout, linear, tanh, ..., linear. What is kept is scaled by 1 / (1 - p)."""
    h = x
    for i, (W, b) in enumerate(w[:-1]):
        h = jnp.tanh(h @ W + b)
        if i < keep.shape[0]:
            h = jnp.where(keep[i], h * (1 / (1 - p)), 0)
    W, b = w[-1]
    return h @ W + b


def encode(
    features: Int[Array, " n"], sizes: tuple[int, ...], coding: tuple[str, ...]
) -> Float[Array, " inputs"]:
    """Network inputs for a feature vector: raw integers, scaled to [-1, 1], or one-hot."""
    if all(c == "raw" for c in coding):
        return features.astype(float)
    if all(c == "onehot" for c in coding):  # one comparison, not one for each feature
        of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        values = np.concatenate([np.arange(n, dtype=np.int32) for n in sizes])
        return (features[of] == values).astype(float)
    parts = [_encode_one(features[i], n, c) for i, (n, c) in enumerate(zip(sizes, coding, strict=True))]
    return jnp.concatenate(parts)


def _encode_one(value: Int[Array, ""], size: int, coding: str) -> Float[Array, " inputs"]:
    if coding == "onehot":
        return one_hot(value, size)
    x = value.astype(float)[None]
    return x if coding == "raw" else 2 * x / max(size - 1, 1) - 1


def one_hot(value: Int[Array, ""], size: int) -> Float[Array, " size"]:
    return (jnp.arange(size, dtype=value.dtype) == value).astype(float)


def per_feature(y: Float[Array, " outputs"], sizes: tuple[int, ...]) -> Float[Array, "features values"]:
    """Concatenated logits as a row per feature, short rows padded with -inf."""
    widest = max(sizes)
    if all(size == widest for size in sizes):
        return y.reshape(len(sizes), widest)
    offsets, column = np.cumsum([0, *sizes[:-1]])[:, None], np.arange(widest)[None]
    valid = column < np.array(sizes)[:, None]
    return jnp.where(valid, y[np.where(valid, offsets + column, 0)], -jnp.inf)


def log_prob_of(y: Float[Array, " outputs"], sizes: tuple[int, ...], values: Int[Array, " n"]) -> Scalar:
    """Sum over the features of log softmax(y)[value]."""
    log_p = jax.nn.log_softmax(per_feature(y, sizes), axis=-1)
    chosen = jnp.arange(max(sizes), dtype=values.dtype)[None] == values[:, None]
    return jnp.sum(jnp.where(chosen, log_p, 0))


def sample_features(
    key: Key[Array, ""], y: Float[Array, " outputs"], sizes: tuple[int, ...]
) -> Int[Array, " features"]:
    """One value per feature from its softmax, by inversion: a uniform number each.

    A value of probability zero is never drawn, as in `prng.categorical`.
    """
    rows = per_feature(y, sizes)
    p = jnp.exp(rows - jnp.max(rows, axis=-1, keepdims=True))
    running = running_sum(p)
    total = running[:, -1:]
    u = jr.uniform(key, (len(sizes), 1), p.dtype) * total
    index = jnp.sum(running <= u, axis=-1, dtype=jnp.int32)
    return jnp.minimum(index, jnp.sum(running < total, axis=-1, dtype=jnp.int32))


class NetworkDynamics(SplitDynamics):
    """A D whose outcomes are softmaxes of the logits of two networks."""

    architecture: eqx.AbstractVar[Architecture]

    @abstractmethod
    def logits_T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        """Of the features of s', one after the other."""

    @abstractmethod
    def logits_O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        """Of the features of o."""

    @abstractmethod
    def for_draw(self, key: Key[Array, ""]) -> tuple[Key[Array, ""], "NetworkDynamics"]:
        """The D that a draw of s' or o uses, this one or one under new masks, and the key that is left."""

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        key, D = self.for_draw(key)
        return sample_features(key, D.logits_T(s, a), self.architecture.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        key, D = self.for_draw(key)
        return sample_features(key, D.logits_O(s, a, s_next), self.architecture.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return log_prob_of(self.logits_T(s, a), self.architecture.state_sizes, s_next)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return log_prob_of(self.logits_O(s, a, s_next), self.architecture.observation_sizes, o)


class DropoutDynamics(NetworkDynamics):
    """The D of weights w under dropout masks z: p(s', o | s, a; w~), the summand of Eq. 12."""

    w: Layers
    masks: Masks
    architecture: Architecture = eqx.field(static=True)

    def logits_T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        return self.logits("T", self.architecture.inputs_T(s, a))

    def logits_O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return self.logits("O", self.architecture.inputs_O(s, a, s_next))

    def logits(self, net: str, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """f_w~(x) of the T- or the O-network."""
        self.architecture.check_has(net)
        network, words = self.architecture.network, self.masks["TO".index(net)]
        return logits(getattr(self.w, net), x, unpack(words, network.hidden), network.dropout)

    def for_draw(self, key: Key[Array, ""]) -> tuple[Key[Array, ""], "DropoutDynamics"]:
        key, masks = masks_of_draw(key, self.masks, self.architecture)
        return key, DropoutDynamics(w=self.w, masks=masks, architecture=self.architecture)

    def log_probs(self, s: State, a: Action, s_next: State, o: Observation) -> tuple[Scalar, Scalar]:
        """log p(s' | s, a; w~) and log p(o | s, a, s'; w~); 0 for a network that is not there."""
        networks = self.architecture.networks
        log_T = self.transition_log_prob(s, a, s_next) if "T" in networks else jnp.zeros(())
        return log_T, self.observation_log_prob(s, a, s_next, o) if "O" in networks else jnp.zeros(())

    def loss(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        """L(w~; (s, a), (s', o)) = -log p(s', o | s, a; w~), over the networks that there are (Eq. 14)."""
        log_T, log_O = self.log_probs(s, a, s_next, o)
        return -log_T - log_O


def masks_of_draw(
    key: Key[Array, ""], masks: Masks, architecture: Architecture
) -> tuple[Key[Array, ""], Masks]:
    """The masks that a draw of s' or o uses: those of its D, or new ones from the draw's key."""
    if not architecture.network.redraw_masks:
        return key, masks
    key, key_masks = jr.split(key)
    return key, draw_masks(key_masks, architecture)


class Dropout(Posterior):
    """p(D; w): the networks of w under random dropout masks; U is one gradient step (Def. 5).

    The masks are drawn once per D and kept (root sampling, Alg. 2). With `redraw_masks` every *draw* of s'
    or o takes new ones, as in the authors' program; log-probabilities still use the masks of D, so an
    importance weight then comes from other masks than its step, as theirs does.
    """

    ensemble: Float[Array, "members weights"]
    architecture: Architecture = eqx.field(static=True)

    @property
    def num_networks(self) -> int:
        return self.ensemble.shape[0]

    def prior(self, key: Key[Array, ""]) -> Weights:
        """One member of the ensemble, uniformly."""
        return self.ensemble[uniform_integers(key, np.asarray(self.num_networks))]

    def draw(self, key: Key[Array, ""], theta: Weights) -> Masks:
        return draw_masks(key, self.architecture)

    def dynamics(self, theta: Weights, epsilon: Masks) -> DropoutDynamics:
        return DropoutDynamics(
            w=self.architecture.layers(theta), masks=epsilon, architecture=self.architecture
        )

    def gradient(self, theta: Weights, masks: Masks, step: Transition) -> Weights:
        """grad L in theta's layout, zero for a network that does not learn."""

        # Of the views, then joined: the gradient through the slices would be a sum of padded vectors.
        def L(w: Layers) -> Scalar:
            return DropoutDynamics(w=w, masks=masks, architecture=self.architecture).loss(*step)

        g, network = jax.grad(L)(self.architecture.layers(theta)), self.architecture.network
        T = _flat(g.T, self.architecture.num_weights("T"), network.learn_transition)
        O = _flat(g.O, self.architecture.num_weights("O"), network.learn_observation)
        return jnp.concatenate([T, O])

    def update(
        self, key: Key[Array, ""], theta: Weights, s: State, a: Action, s_next: State, o: Observation
    ) -> Weights:
        """U: w - alpha grad L under a fresh mask. (Eq. 14 prints +; L is a cross-entropy, so it descends.)"""
        return self.descend(theta, self.draw(key, theta), Transition(s, a, s_next, o))

    def descend(self, theta: Weights, masks: Masks, step: Transition) -> Weights:
        """w - alpha grad L under these masks."""
        return theta - self.architecture.network.learning_rate * self.gradient(theta, masks, step)

    def predictive(
        self, key: Key[Array, ""], theta: Weights, step: Transition, num_masks: int
    ) -> tuple[Scalar, Scalar]:
        """Eq. 12 at (s', o) by Monte Carlo: log p(s' | theta, s, a) and log p(o | theta, s, a, s').

        The networks' masks are independent, so the mean of the product is the product of the means: each
        network is averaged over `num_masks` masks alone, and the sum of both logs is that of
        p(s', o | theta, s, a) over all num_masks^2 pairs. A network that is not there counts as 0.
        """

        def both(key: Key[Array, ""]) -> tuple[Scalar, Scalar]:
            return self.dynamics(theta, self.draw(key, theta)).log_probs(*step)

        log_T, log_O = jax.vmap(both)(jr.split(key, num_masks))
        return _log_mean_exp(log_T), _log_mean_exp(log_O)


def _flat(gradient: tuple[Layer, ...], n: int, learn: bool) -> Float[Array, " n"]:
    if not learn or n == 0:
        return jnp.zeros((n,))
    return jnp.concatenate([x.reshape(-1) for layer in gradient for x in layer])


def _log_mean_exp(x: Float[Array, " n"]) -> Scalar:
    return jax.nn.logsumexp(x) - math.log(x.shape[0])
