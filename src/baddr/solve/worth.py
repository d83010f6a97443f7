"""What a policy is worth that was made for another model than the truth. Needs no JAX."""

import numpy as np
from jaxtyping import Float64

from baddr.solve.model import SparseModel, Values
from baddr.solve.point_based import Solution
from baddr.solve.policy import act

MOST_BELIEFS = 20_000  # that are told apart at a time
DIGITS = 10  # to which beliefs are compared: those that differ by less are one

Reached = dict[bytes, tuple[Values, Values]]  # the agent's belief, and p(history, s) under the truth


def worth(
    solution: Solution, believed: SparseModel, truth: SparseModel, horizon: int, most: int = MOST_BELIEFS
) -> float | None:
    """The expected return in `truth` of who acts by the solution of `believed`, and believes it to the end.

    Exact: histories after which the agent believes the same are one. None where there are too many of them.
    """
    reached: Reached = {b"": (believed.start, truth.start)}
    total = 0.0
    for t in range(horizon):
        after: Reached = {}
        for b, w in reached.values():
            a = act(solution, b, horizon - t)
            total += truth.discount**t * float(truth.R[a] @ w)
            for b_next, w_next in _followed(believed, truth, a, b, w):
                key = np.round(b_next, DIGITS).tobytes()
                _, before = after.get(key, (b_next, 0.0))
                after[key] = b_next, before + w_next
        reached = after
        if len(reached) > most:
            return None
    return total


def _followed(
    believed: SparseModel, truth: SparseModel, a: int, b: Values, w: Values
) -> list[tuple[Values, Values]]:
    """What is believed after each observation that the truth can give, with p(history, s)."""
    seen = _after(truth, a, w)
    expected = _after(believed, a, b)
    pairs = []
    for o in np.flatnonzero(seen.sum(axis=0) > 0):
        # An observation that the agent holds for impossible teaches it nothing.
        b_next = expected[:, o] if expected[:, o].sum() > 0 else expected.sum(axis=1)
        if b_next.sum() > 0:
            pairs.append((b_next / b_next.sum(), seen[:, o]))
    return pairs


def _after(model: SparseModel, a: int, p: Values) -> Float64[np.ndarray, "S Z"]:
    """p(s', o) from p(s)."""
    return (model.T[a].T @ p)[:, None] * model.O[a].toarray()
