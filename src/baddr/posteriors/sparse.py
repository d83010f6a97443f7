"""D as sparse tables, for POMDPs with many states: of each row only the outcomes that it holds."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.pomdp import Action, Observation, Scalar, SplitDynamics, State, feature_vector, flat_index

Index = Int[Array, ""]


class Ragged(eqx.Module):
    """Rows of weights, one after another, and a weight `floor` that every outcome has besides."""

    starts: Int[Array, " rows_and_one"]
    columns: Int[Array, " entries"]  # ascending in each row
    weights: Float[Array, " entries"]
    running: Float[Array, " entries"]  # their sum from the start of the row on
    floor: Scalar
    num_outcomes: int = eqx.field(static=True)
    longest: int = eqx.field(static=True)  # of the rows

    def total(self, row: Index) -> Scalar:
        return self._held(row) + self.floor * self.num_outcomes

    def weight(self, row: Index, column: Index) -> Scalar:
        found, i = self.find(row, column)
        return jnp.where(found, self.weights[i], 0) + self.floor

    def find(self, row: Index, column: Index) -> tuple[Bool[Array, ""], Index]:
        """Whether a row holds a column, and where."""
        i = self._search(row, lambda i: self.columns[i] < column)
        inside = i < self.starts[row + 1]
        i = jnp.minimum(i, self.columns.shape[0] - 1)
        return inside & (self.columns[i] == column), i

    def draw(self, key: Key[Array, ""], row: Index) -> Index:
        """An outcome in proportion to its weight."""
        key_held, key_any = jr.split(key)
        held = self._held(row)
        u = jr.uniform(key_held) * (held + self.floor * self.num_outcomes)
        last = jnp.maximum(self.starts[row + 1] - 1, self.starts[row])
        i = jnp.minimum(self._search(row, lambda i: self.running[i] <= u), last)
        anything = jr.randint(key_any, (), 0, self.num_outcomes, jnp.int32)
        rest = (u >= held) & (self.floor > 0)
        return jnp.where(rest, anything, self.columns[jnp.minimum(i, self.columns.shape[0] - 1)])

    def _held(self, row: Index) -> Scalar:
        end = self.starts[row + 1]
        return jnp.where(end > self.starts[row], self.running[end - 1], 0)

    def _search(self, row: Index, before: Callable[[Index], Bool[Array, ""]]) -> Index:
        """The first entry of a row that is not `before`, by halving."""
        low, high = self.starts[row], self.starts[row + 1]
        for _ in range(self.longest.bit_length()):
            middle = (low + high) // 2
            right = (low < high) & before(jnp.minimum(middle, self.columns.shape[0] - 1))
            low, high = jnp.where(right, middle + 1, low), jnp.where(right | (low >= high), high, middle)
        return low


def ragged(
    starts: np.ndarray, columns: np.ndarray, weights: np.ndarray, n: int, floor: float = 0.0
) -> Ragged:
    """Of rows as SciPy's csr_array has them; a row's last weight is never lost to rounding."""
    lengths = np.diff(starts)
    total = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    running = total[1:] - np.repeat(total[starts[:-1]], lengths)
    if not len(columns):  # arrays of nothing cannot be looked into
        columns, weights, running = np.zeros(1, int), np.zeros(1), np.zeros(1)
    return Ragged(
        jnp.asarray(starts, jnp.int32),
        jnp.asarray(columns, jnp.int32),
        jnp.asarray(weights, jnp.float32),
        jnp.asarray(running, jnp.float32),
        jnp.float32(floor),
        int(n),
        int(lengths.max(initial=0)),
    )


class SparseTable(SplitDynamics):
    """`core.pomdp.Table` with the outcomes that its rows hold alone. Rows need not sum to one."""

    T: Ragged  # rows by (a, s)
    O: Ragged  # rows by (a, s')
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)

    def row(self, a: Action, s: State) -> Index:
        num_states = int(np.prod(self.state_sizes))
        return a * num_states + flat_index(s, self.state_sizes)

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        return feature_vector(self.T.draw(key, self.row(a, s)), self.state_sizes)

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return feature_vector(self.O.draw(key, self.row(a, s_next)), self.observation_sizes)

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        row = self.row(a, s)
        weight = self.T.weight(row, flat_index(s_next, self.state_sizes))
        return jnp.log(weight) - jnp.log(self.T.total(row))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        row = self.row(a, s_next)
        weight = self.O.weight(row, flat_index(o, self.observation_sizes))
        return jnp.log(weight) - jnp.log(self.O.total(row))
