"""The two bounds on a value function: vectors below it, points above it. Needs no JAX.

Below: V(b) >= max_i alpha_i . b, where alpha_i is the value of some policy in each state.

Above: a point is a belief b_i with a bound v_i on its value. Where b = lambda b_i + rest, with lambda as
large as it can be, convexity gives V(b) <= lambda v_i + V(rest), and rest is bounded by the initial bound
(the sawtooth of Hauskrecht, 2000, over max_a Q_a . b in place of the corners). Both sides scale with b:
beliefs need not sum to one here, so that a row may be p(s', o | b, a) as it comes.
"""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from baddr.solve.model import Actions, Values

Support = Int[np.ndarray, " U"]
Places = Int[np.ndarray, " n"]
WIDEST = 2**21  # numbers in one step of the sawtooth
ALMOST_ONE = 1 - 1e-12
TINY = 1e-300  # in place of 0 where it is divided by
NOTHING = np.arange(0)
NOWHERE = -1  # in place of a point: the initial bound


class Stack:
    """Rows of numbers, one after another: an array that grows by doubling."""

    def __init__(self, width: int):
        self.size, self._rows = 0, np.empty((4, width))

    def add(self, row: Float64[np.ndarray, " width"] | float) -> None:
        if self.size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self.size] = row
        self.size += 1

    @property
    def rows(self) -> Float64[np.ndarray, "size width"]:
        return self._rows[: self.size]


class Bounds:
    """Of one value function. Vectors only become more, and points lower: a bound that was true stays so."""

    def __init__(self, below: Actions, above: Actions):
        S = below.shape[1]
        self.above = above
        self.alphas, self.actions, self.makers = Stack(S), [], []  # a vector's action, and who made it
        self.after: list[Places] = []  # the vectors that it refers to, for the step after
        self.points, self.values, self.initial, self.changed = Stack(S), Stack(1), Stack(len(above)), Stack(1)
        self.owners: list[Any] = []  # of the points
        self.clock = 0  # counts the changes of points
        for a, alpha in enumerate(below):
            self.add_alpha(alpha, a, np.array([a]))  # the same action for ever
        self.useful, self.settled = NOTHING, 0

    def settle(self, useful: Places) -> None:
        """Rows that have not seen the vectors so far look at those of use alone."""
        self.useful, self.settled = useful, self.alphas.size

    def add_alpha(self, alpha: Values, action: int, after: Places = NOTHING, maker: Any = None) -> int:
        """The number of the new vector."""
        self.alphas.add(alpha)
        self.actions.append(action)
        self.after.append(after)
        self.makers.append(maker)
        return self.alphas.size - 1

    def add_point(self, owner: Any, support: Support, p: Float64[np.ndarray, " U"]) -> int:
        """The number of the new point; it says nothing before it has a value."""
        b = np.zeros(self.above.shape[1])
        b[support] = p
        self.points.add(b)
        self.initial.add(self.above[:, support] @ p)
        self.values.add(np.inf)
        self.changed.add(0.0)
        self.owners.append(owner)
        return self.points.size - 1

    def set_point(self, i: int, value: float) -> None:
        self.clock += 1
        self.values.rows[i], self.changed.rows[i] = value, self.clock


class Rows:
    """Some beliefs over a common support, and their bounds: these are brought up to date, not computed anew.

    Bounds only become tighter, so that a row need not look again at what has not changed.
    """

    def __init__(self, support: Support, W: Float64[np.ndarray, "n U"], bounds: Bounds):
        self.support, self.W, self.bounds = support, W, bounds
        self.whole = len(support) == bounds.above.shape[1]  # all states
        self.initial = W @ self.columns(bounds.above).T
        self.upper = self.initial.max(axis=1)  # = portion * value of point + rest
        self.point, self.portion = np.full(len(W), NOWHERE), np.zeros(len(W))
        self.rest = self.upper
        self.lower = np.full(len(W), -np.inf)
        self.best = np.zeros(len(W), int)  # the vector of each row
        self.inverse = 1 / np.maximum(W, TINY)
        self.seen = self.seen_clock = 0

    def columns(self, table: Float64[np.ndarray, "m S"]) -> Float64[np.ndarray, "m U"]:
        return table if self.whole else table[:, self.support]

    def update(self) -> None:
        """Look at the vectors and points that are new or changed."""
        self.update_lower()
        self.update_upper()

    def update_lower(self) -> None:
        if self.seen < self.bounds.alphas.size:
            self._look_at_alphas(self._unseen())
            self.seen = self.bounds.alphas.size

    def update_upper(self) -> None:
        if self.seen_clock < self.bounds.clock:
            self._look_at_points(np.flatnonzero(self.bounds.changed.rows[:, 0] > self.seen_clock))
            self.seen_clock = self.bounds.clock

    def _unseen(self) -> slice | Places:
        """The newest vectors, and of those before them what is of use."""
        useful, settled, size = self.bounds.useful, self.bounds.settled, self.bounds.alphas.size
        if self.seen >= settled:
            return slice(self.seen, size)
        return np.concatenate([useful[useful >= self.seen], np.arange(settled, size)])

    def _look_at_alphas(self, new: slice | Places) -> None:
        values = self.columns(self.bounds.alphas.rows[new]) @ self.W.T
        if not len(values):
            return
        best = np.argmax(values, axis=0)
        value = values[best, np.arange(len(best))]
        better = value > self.lower
        number = best + new.start if isinstance(new, slice) else new[best]
        self.best = np.where(better, number, self.best)
        self.lower = np.where(better, value, self.lower)

    def _look_at_points(self, new: Places) -> None:
        """Those whose support lies in that of the rows; others have lambda = 0."""
        p = self.columns(self.bounds.points.rows[new])
        if not self.whole:
            inside = p.sum(axis=1) > ALMOST_ONE
            p, new = p[inside], new[inside]
        step = max(1, WIDEST // max(1, self.W.size))
        for first in range(0, len(p), step):
            self._sawtooth(p[first : first + step], new[first : first + step])

    def _sawtooth(self, p: Float64[np.ndarray, "P U"], new: Places) -> None:
        """min_i lambda_i v_i + max_a (b - lambda_i b_i) . Q_a."""
        v, initial = self.bounds.values.rows[new], self.bounds.initial.rows[new]
        # The axis to reduce comes first, which is the fastest way; what is left is [P, n].
        portion = 1 / (p.T[:, :, None] * self.inverse.T[:, None]).max(axis=0)  # lambda
        rest = (self.initial.T[:, None] - portion[None] * initial.T[:, :, None]).max(axis=0)
        upper = portion * v + rest
        better = np.flatnonzero(upper.min(axis=0) < self.upper)
        if len(better):
            i = upper[:, better].argmin(axis=0)
            self.upper, self.rest = self.upper.copy(), self.rest.copy()
            self.point[better], self.portion[better] = new[i], portion[i, better]
            self.rest[better], self.upper[better] = rest[i, better], upper[i, better]
