"""BADDr's posterior (Section 4): a T- and an O-network whose dropout is the uncertainty about D.

theta holds the weights w, epsilon the dropout masks: w~ = w . diag(z) is never formed, the masks act on the
activations. A particle's weights are one flat vector (2,629 numbers, 10.5 kB, with networks of 32 nodes on
tiger): a planner that does not tabulate them fetches them at each simulated step, and one stretch of memory
costs it about half of what a dozen separate matrices do.
"""

import math
from itertools import pairwise
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from baddr.core.particles import bytes_of, over_particles
from baddr.core.pomdp import (
    Action,
    Observation,
    Scalar,
    SplitDynamics,
    State,
    all_vectors,
    feature_vector,
    flat_index,
)
from baddr.core.posterior import Posterior, Rows, Tabulated
from baddr.core.prng import running_sum, uniform_integers
from baddr.fast import kernels
from baddr.fast.kernels import Example, Net, Outputs, Words
from baddr.settings import Network

MASK_BITS = 16  # dropout probabilities are rounded to multiples of 2^-16
WORD = 32
TRIES_AT_ONCE = 6  # where draws of a particle share a reading of its weights; nine lanes need 5 or 6
TABULATED_AT_ONCE = 64  # draws of a run: their weights fit the cache

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

    def net(self, net: str) -> Net:
        """T or O, of two hidden layers, for the kernels."""
        inputs, hidden, _, outputs = self.widths(net)
        start = self.num_weights("T") if net == "O" else 0
        return Net(start, inputs, hidden, outputs, self.network.dropout)

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


def slopes(h: Float[Array, "layers hidden"], words: Words, p: float) -> Float[Array, "layers hidden"]:
    """dh/dz of h = dropout(tanh(z)), for hidden layers of which the first ones have masks."""
    keep, scale = unpack(words, h.shape[1]), 1 / (1 - p)
    under_masks = jnp.where(keep, scale - h[: keep.shape[0]] ** 2 / scale, 0)
    return jnp.concatenate([under_masks, 1 - h[keep.shape[0] :] ** 2])


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


class Particle(eqx.Module):
    """The weights of particle i where they lie among those of all particles: for the kernels."""

    thetas: Float[Array, "particles weights"]
    i: Int[Array, ""]
    interpret: bool = eqx.field(static=True)

    def forward(self, net: Net, X: Float[Array, "m inputs"], words: Words) -> Outputs:
        return kernels.forward(self.thetas, self.i, X, words, net, self.interpret)


class DropoutDynamics(SplitDynamics):
    """The D of weights w under dropout masks z: p(s', o | s, a; w~), the summand of Eq. 12."""

    w: Layers | Particle
    masks: Masks
    architecture: Architecture = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        key, masks = self._masks_of_draw(key)
        return sample_features(key, self._T(masks, s, a), self.architecture.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        key, masks = self._masks_of_draw(key)
        return sample_features(key, self._O(masks, s, a, s_next), self.architecture.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return log_prob_of(self._T(self.masks, s, a), self.architecture.state_sizes, s_next)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return log_prob_of(self._O(self.masks, s, a, s_next), self.architecture.observation_sizes, o)

    def log_probs(self, s: State, a: Action, s_next: State, o: Observation) -> tuple[Scalar, Scalar]:
        """log p(s' | s, a; w~) and log p(o | s, a, s'; w~); 0 for a network that is not there."""
        networks = self.architecture.networks
        log_T = self.transition_log_prob(s, a, s_next) if "T" in networks else jnp.zeros(())
        return log_T, self.observation_log_prob(s, a, s_next, o) if "O" in networks else jnp.zeros(())

    def loss(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        """L(w~; (s, a), (s', o)) = -log p(s', o | s, a; w~), over the networks that there are (Eq. 14)."""
        log_T, log_O = self.log_probs(s, a, s_next, o)
        return -log_T - log_O

    def tabulate(self, X_T: Float[Array, "_ _"], X_O: Float[Array, "_ _"]) -> "DropoutTable":
        """The networks' outputs at these inputs."""
        if isinstance(self.w, Particle):
            T = self.w.forward(self.architecture.net("T"), X_T, self.masks[0])
            O = self.w.forward(self.architecture.net("O"), X_O, self.masks[1])
            return DropoutTable(T.Y, O.Y)
        T = jax.vmap(lambda x: self._logits("T", x, self.masks[0]))(X_T)
        return DropoutTable(T, jax.vmap(lambda x: self._logits("O", x, self.masks[1]))(X_O))

    def _masks_of_draw(self, key: Key[Array, ""]) -> tuple[Key[Array, ""], Masks]:
        """The masks that a draw of s' or o uses: this D's own, or new ones from the draw's key."""
        if not self.architecture.network.redraw_masks:
            return key, self.masks
        key, key_masks = jr.split(key)
        return key, draw_masks(key_masks, self.architecture)

    def _T(self, masks: Masks, s: State, a: Action) -> Float[Array, " outputs"]:
        return self._logits("T", self.architecture.inputs_T(s, a), masks[0])

    def _O(self, masks: Masks, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return self._logits("O", self.architecture.inputs_O(s, a, s_next), masks[1])

    def _logits(self, net: str, x: Float[Array, " inputs"], words: Words) -> Float[Array, " outputs"]:
        if net not in self.architecture.networks:
            raise ValueError(f"this Dropout has no {net}-network: give that half of D through Partial")
        if isinstance(self.w, Particle):
            return self.w.forward(self.architecture.net(net), x[None], words).Y[0]
        network = self.architecture.network
        return logits(getattr(self.w, net), x, unpack(words, network.hidden), network.dropout)


class DropoutTable(NamedTuple):
    """The networks' outputs at the inputs that matter."""

    T: Float[Array, "*n T_rows outputs"]
    O: Float[Array, "*n O_rows outputs"]


class TabulatedDynamics(Tabulated):
    """`DropoutDynamics` whose networks were evaluated beforehand."""

    logits: DropoutTable
    rows: Rows = eqx.field(static=True)
    architecture: Architecture = eqx.field(static=True)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return sample_features(key, self._T(s, a), self.architecture.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return sample_features(key, self._O(s, a, s_next), self.architecture.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        return log_prob_of(self._T(s, a), self.architecture.state_sizes, s_next)

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return log_prob_of(self._O(s, a, s_next), self.architecture.observation_sizes, o)

    def probabilities(self) -> tuple[Float[Array, "*draws T_rows S"], Float[Array, "*draws O_rows Z"]]:
        T, O = self.logits
        return _joint(T, self.architecture.state_sizes), _joint(O, self.architecture.observation_sizes)

    def _T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        return _look_up(self.logits.T, self.rows.T, [self._rank(s), a])

    def _O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return _look_up(self.logits.O, self.rows.O, [self._rank(s), a, self._rank(s_next)])

    def _rank(self, s: State) -> Int[Array, ""]:
        return flat_index(s, self.architecture.state_sizes)


def _joint(y: Float[Array, "*rows outputs"], sizes: tuple[int, ...]) -> Float[Array, "*rows values"]:
    """The probability of every feature vector by rank: features are independent given the logits."""
    features = jnp.split(y, np.cumsum(sizes)[:-1], axis=-1)
    values = zip(features, all_vectors(sizes).T, strict=True)
    return jnp.exp(sum(jax.nn.log_softmax(x)[..., value] for x, value in values))


def _look_up(
    table: Float[Array, "rows outputs"], rows: tuple[tuple[int, ...], ...], wanted: list[Int[Array, ""]]
) -> Float[Array, " outputs"]:
    """The entry whose row is wanted. Few rows: compared one by one, which needs no gather."""
    same = jnp.all(np.array(rows, np.int32) == jnp.stack(wanted)[None], axis=1)
    return jnp.sum(jnp.where(same[:, None], table, 0), axis=0)


class Dropout(Posterior):
    """p(D; w): the networks of w under random dropout masks; U is one gradient step (Def. 5).

    The masks are drawn once per D and kept (root sampling, Alg. 2). With `redraw_masks` every *draw* of s'
    or o takes new ones, as in the authors' program; log-probabilities still use the masks of D, so an
    importance weight then comes from other masks than its step, as theirs does.
    """

    num_draws: ClassVar[int] = 8  # per particle: moments are read as averages over many particles
    ensemble: Float[Array, "members weights"]
    architecture: Architecture = eqx.field(static=True)
    interpret: bool = eqx.field(static=True, default=False)  # the GPU's kernels on any machine, for tests

    @property
    def by_kernels(self) -> bool:
        """Whether particles' D and U are computed by kernels: the same numbers, but for rounding."""
        fits = self.architecture.network.layers == kernels.LAYERS and self.ensemble.dtype == jnp.float32
        return fits and (self.interpret or kernels.available())

    @property
    def num_networks(self) -> int:
        return self.ensemble.shape[0]

    def prior(self, key: Key[Array, ""]) -> Weights:
        """One member of the ensemble, uniformly."""
        return self.ensemble[uniform_integers(key, np.asarray(self.num_networks))]

    def draw(self, key: Key[Array, ""], theta: Weights) -> Masks:
        return draw_masks(key, self.architecture)

    def dynamics(self, theta: Weights, epsilon: Masks) -> DropoutDynamics:
        return DropoutDynamics(self.architecture.layers(theta), epsilon, self.architecture)

    def dynamics_of(
        self, thetas: Float[Array, "particles weights"], i: Int[Array, ""], epsilon: Masks
    ) -> DropoutDynamics:
        if not self.by_kernels:
            return self.dynamics(thetas[i], epsilon)
        return DropoutDynamics(Particle(thetas, i, self.interpret), epsilon, self.architecture)

    @property
    def draws_once(self) -> bool:
        return not self.architecture.network.redraw_masks

    @property
    def tries_at_once(self) -> int:
        return TRIES_AT_ONCE if self.by_kernels and self.architecture.network.hidden >= kernels.LARGE else 1

    def tabulate(
        self, thetas: Float[Array, "particles weights"], i: Int[Array, " n"], epsilon: Array, rows: Rows
    ) -> TabulatedDynamics | None:
        """The networks of n draws at all rows at once: a few matrix products for each draw."""
        if self.architecture.networks != "TO" or not self.draws_once:
            return None
        sizes = self.architecture.state_sizes
        (s_T, a_T), (s_O, a_O, s_next_O) = (jnp.array(x, jnp.int32).T for x in rows)
        vectors = jax.vmap(lambda s: feature_vector(s, sizes))
        X_T = jax.vmap(self.architecture.inputs_T)(vectors(s_T), a_T)
        X_O = jax.vmap(self.architecture.inputs_O)(vectors(s_O), a_O, vectors(s_next_O))

        def one(draw: tuple[Int[Array, ""], Masks]) -> DropoutTable:
            return self.dynamics_of(thetas, *draw).tabulate(X_T, X_O)

        if self.by_kernels:
            table = jax.vmap(one)((i, epsilon))
        else:
            table = jax.lax.map(one, (i, epsilon), batch_size=TABULATED_AT_ONCE)
        return TabulatedDynamics(table, rows, self.architecture)

    def sample(self, key: Key[Array, ""], theta: Weights) -> DropoutDynamics:
        """w~ ~ dropout(. | w)."""
        return self.dynamics(theta, self.draw(key, theta))

    def gradient(
        self, theta: Weights, masks: Masks, s: State, a: Action, s_next: State, o: Observation
    ) -> Weights:
        """grad L in theta's layout, zero for a network that does not learn."""

        # Of the views, then joined: the gradient through the slices would be a sum of padded vectors.
        def L(w: Layers) -> Scalar:
            return DropoutDynamics(w, masks, self.architecture).loss(s, a, s_next, o)

        g, network = jax.grad(L)(self.architecture.layers(theta)), self.architecture.network
        T = _flat(g.T, self.architecture.num_weights("T"), network.learn_transition)
        O = _flat(g.O, self.architecture.num_weights("O"), network.learn_observation)
        return jnp.concatenate([T, O])

    def update(
        self, key: Key[Array, ""], theta: Weights, s: State, a: Action, s_next: State, o: Observation
    ) -> Weights:
        """U: w - alpha grad L under a fresh mask. (Eq. 14 prints +; L is a cross-entropy, so it descends.)"""
        return self._descend(theta, self.draw(key, theta), s, a, s_next, o)

    def _descend(
        self, theta: Weights, masks: Masks, s: State, a: Action, s_next: State, o: Observation
    ) -> Weights:
        gradient = self.gradient(theta, masks, s, a, s_next, o)
        return theta - self.architecture.network.learning_rate * gradient

    def update_all(
        self,
        keys: Key[Array, " n"],
        thetas: Float[Array, "particles weights"],
        i: Int[Array, " n"],
        s: Int[Array, "n state_features"],
        a: Action,
        s_next: Int[Array, "n state_features"],
        o: Observation,
        learn: Bool[Array, ""],
    ) -> Float[Array, "n weights"]:
        """U of the particles i: their masks are drawn before (see `over_particles`)."""

        def one(masks: Masks, i: Int[Array, ""], s: State, s_next: State) -> Weights:
            if self.by_kernels:
                return self._descend_in_place(thetas, i, masks, s, a, s_next, o, learn)
            theta = thetas[i]
            return jnp.where(learn, self._descend(theta, masks, s, a, s_next, o), theta)

        masks = jax.vmap(lambda key: draw_masks(key, self.architecture))(keys)
        return over_particles(one, bytes_of(thetas))(masks, i, s, s_next)

    def _descend_in_place(
        self,
        thetas: Float[Array, "particles weights"],
        i: Int[Array, ""],
        masks: Masks,
        s: State,
        a: Action,
        s_next: State,
        o: Observation,
        learn: Bool[Array, ""],
    ) -> Weights:
        """`_descend` of particle i by kernels; a network that does not learn gets a gradient of 0."""
        architecture, network, examples = self.architecture, self.architecture.network, []

        def add(
            net: str, x: Array, words: Words, sizes: tuple[int, ...], values: Array, learns: bool
        ) -> None:
            found = Particle(thetas, i, self.interpret).forward(architecture.net(net), x[None], words)
            y, h1, h2 = (array[0] for array in found)
            dy = jax.grad(lambda y: -log_prob_of(y, sizes, values))(y)
            slope_1, slope_2 = slopes(jnp.stack([h1, h2]), words, network.dropout)
            examples.append(Example(x, h1, slope_1, h2, slope_2, jnp.where(learn & learns, dy, 0)))

        if "T" in architecture.networks:
            x = architecture.inputs_T(s, a)
            add("T", x, masks[0], architecture.state_sizes, s_next, network.learn_transition)
        if "O" in architecture.networks:
            x = architecture.inputs_O(s, a, s_next)
            add("O", x, masks[1], architecture.observation_sizes, o, network.learn_observation)
        nets = tuple(architecture.net(net) for net in architecture.networks)
        return kernels.descend(thetas, i, tuple(examples), nets, network.learning_rate, self.interpret)

    def predictive(
        self,
        key: Key[Array, ""],
        theta: Weights,
        s: State,
        a: Action,
        s_next: State,
        o: Observation,
        num_masks: int,
    ) -> tuple[Scalar, Scalar]:
        """Eq. 12 at (s', o) by Monte Carlo: log p(s' | theta, s, a) and log p(o | theta, s, a, s').

        The networks' masks are independent, so the mean of the product is the product of the means: each
        network is averaged over `num_masks` masks alone, and the sum of both logs is that of
        p(s', o | theta, s, a) over all num_masks^2 pairs. A network that is not there counts as 0.
        """

        def both(key: Key[Array, ""]) -> tuple[Scalar, Scalar]:
            return self.sample(key, theta).log_probs(s, a, s_next, o)

        log_T, log_O = jax.vmap(both)(jr.split(key, num_masks))
        return _log_mean_exp(log_T), _log_mean_exp(log_O)


def _flat(gradient: tuple[Layer, ...], n: int, learn: bool) -> Float[Array, " n"]:
    if not learn or n == 0:
        return jnp.zeros((n,))
    return jnp.concatenate([x.reshape(-1) for layer in gradient for x in layer])


def _log_mean_exp(x: Float[Array, " n"]) -> Scalar:
    return jax.nn.logsumexp(x) - math.log(x.shape[0])
