"""Layers, and what turns an observation's integer features into numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from baddr.agents.learners.settings import DPFRL
from baddr.errors import UserError

SMALLEST_GRID = 12  # features from which `auto` takes an observation for a grid
CHANNELS = (32, 64, 64)  # of the three convolutions


def kaiming(key: Key[Array, ""], shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    """Weights ~ N(0, 2 / fan-in): He et al.'s start for ReLU layers."""
    return jnp.sqrt(2.0 / fan_in) * jr.normal(key, shape)


class Linear(eqx.Module):
    """W x + b. Every layer starts Kaiming-normal with b = 0, the actor's and the critic's too."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, key: Key[Array, ""], inputs: int, outputs: int):
        self.weight = kaiming(key, (inputs, outputs), inputs)
        self.bias = jnp.zeros((outputs,))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        y = x @ self.weight
        return y + jnp.broadcast_to(self.bias, y.shape)


def one_hot(features: Int[Array, "*batch n"], sizes: tuple[int, ...]) -> Float[Array, "*batch total"]:
    """The one-hot vectors of all features, one after the other."""
    parts = [jax.nn.one_hot(features[..., i], size) for i, size in enumerate(sizes)]
    return jnp.concatenate(parts, axis=-1)


class OneHotEncoder(eqx.Module):
    """Concatenated one-hot features, two layers."""

    first: Linear
    second: Linear
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], sizes: tuple[int, ...], width: int):
        key_1, key_2 = jr.split(key)
        self.first, self.second = Linear(key_1, sum(sizes), width), Linear(key_2, width, width)
        self.sizes = sizes

    def __call__(self, o: Int[Array, "B n"]) -> Float[Array, "B E"]:
        return jax.nn.relu(self.second(jax.nn.relu(self.first(one_hot(o, self.sizes)))))


def convolve(image: Float[Array, "B y x i"], kernel: Float[Array, "3 3 i o"]) -> Float[Array, "B y x o"]:
    """A 3 x 3 convolution that keeps the size, as one product of all neighbourhoods: many learners, each with
    a kernel of its own, are then a batch of products instead of a grouped convolution, which is slow."""
    _, rows, columns, _ = image.shape
    padded = jnp.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = [(i, j) for i in range(3) for j in range(3)]
    around = jnp.concatenate([padded[:, i : i + rows, j : j + columns] for i, j in corners], axis=-1)
    return around @ kernel.reshape(-1, kernel.shape[-1])


class GridEncoder(eqx.Module):
    """One embedding of cells, then 3 convolutions (3 x 3, same size) with ReLU, flattened."""

    embedding: Float[Array, "values numbers"]
    kernels: tuple[Float[Array, "3 3 _ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    columns: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], num_values: int, columns: int, numbers: int):
        key, key_embedding = jr.split(key)
        self.embedding = jr.normal(key_embedding, (num_values, numbers))
        widths = zip((numbers, *CHANNELS), CHANNELS, strict=False)
        keys = jr.split(key, len(CHANNELS))
        self.kernels = tuple(kaiming(k, (3, 3, i, o), 9 * i) for k, (i, o) in zip(keys, widths, strict=True))
        self.biases = tuple(jnp.zeros((width,)) for width in CHANNELS)
        self.columns = columns

    def __call__(self, o: Int[Array, "B n"]) -> Float[Array, "B E"]:
        image = jax.nn.one_hot(o, len(self.embedding)) @ self.embedding
        image = image.reshape(len(o), -1, self.columns, image.shape[-1])
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            image = convolve(image, kernel)
            image = jax.nn.relu(image + jnp.broadcast_to(bias, image.shape))
        return image.reshape(len(o), -1)


def looks_like_grid(sizes: tuple[int, ...]) -> bool:
    return len(sizes) >= SMALLEST_GRID and len(set(sizes)) == 1 and sizes[0] > 2


def make_encoder(key: Key[Array, ""], sizes: tuple[int, ...], settings: DPFRL) -> OneHotEncoder | GridEncoder:
    """The encoder that `settings.encoder` asks for."""
    kind = settings.encoder
    if kind == "onehot" or (kind == "auto" and not looks_like_grid(sizes)):
        return OneHotEncoder(key, sizes, settings.observation_width)
    if len(sizes) % settings.grid_columns or len(set(sizes)) > 1:
        raise UserError(
            f"{len(sizes)} observation features do not fill {settings.grid_columns} columns of equal cells: "
            "set dpfrl.grid-columns, or dpfrl.encoder to onehot."
        )
    return GridEncoder(key, sizes[0], settings.grid_columns, settings.embedding)
