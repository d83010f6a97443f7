"""The bounds that a solution starts from: blind policies below, the fast informed bound above. Needs no JAX.

Both are a backup that is repeated. With h steps left it is repeated h times from 0, and exact. Without a
horizon it starts from a constant that bounds all returns and moves towards its fixed point from there, so
that what it has found is a bound whenever it stops.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Int
from scipy.sparse import block_diag, csr_array

from baddr.solve.model import Actions, Sparse, SparseModel, Values, stacked

SMALLEST_CHANGE = 1e-9  # of a backup, in proportion to the range of returns, at which it is not repeated
MOST_BACKUPS = 100_000
MOST_JOINT = 2 * 10**7  # entries of the table of (s, a, o): beyond it, the bound of the underlying MDP

Backup = Callable[[Actions], Actions]


def blind_policies(model: SparseModel, horizon: int | None = None) -> Actions:
    """Below: the value of one action for ever (or for `horizon` steps), for each action and state."""
    return last(layers(model, blind_backup(model), horizon, -1))


def fast_informed_bound(model: SparseModel, horizon: int | None = None) -> Actions:
    """Above: Q(s, a) of one who sees the state after every step but the next (Hauskrecht, 2000)."""
    return last(layers(model, informed_backup(model), horizon, 1))


def layers(model: SparseModel, backup: Backup, horizon: int | None, sign: int) -> Iterator[Actions]:
    """The bound for 1, 2, ..., `horizon` steps left, or the one for all times; above (1) or below (-1)."""
    Q = np.zeros_like(model.R)
    if horizon is not None:
        for _ in range(horizon):
            Q = backup(Q)
            yield Q
        return
    scale = max(0.0, float(np.max(sign * model.R))) / (1 - model.discount)
    tolerance = SMALLEST_CHANGE * max(1e-30, float(np.max(np.abs(model.R)))) / (1 - model.discount)
    Q = Q + sign * scale
    for _ in range(MOST_BACKUPS):
        before, Q = Q, backup(Q)
        if np.max(np.abs(Q - before)) <= tolerance:
            break
    yield Q


def last(bounds: Iterator[Actions]) -> Actions:
    *_, found = bounds
    return found


def blind_backup(model: SparseModel) -> Backup:
    """Q_a <- R_a + gamma T_a Q_a, for all actions as one product."""
    T = csr_array(block_diag(model.T, format="csr"))
    shape = model.R.shape
    return lambda Q: model.R + model.discount * (T @ Q.ravel()).reshape(shape)


def informed_backup(model: SparseModel) -> Backup:
    """Q(s, a) <- R(s, a) + gamma sum_o max_a' sum_s' p(s', o | s, a) Q(s', a')."""
    if sum(map(_num_joint, model.T, model.O)) > MOST_JOINT:
        return _mdp_backup(model)
    A, S, Z = model.num_actions, model.num_states, model.num_observations
    joint = [_joint(T, O) for T, O in zip(model.T, model.O, strict=True)]
    table = stacked([rows for rows, _ in joint])
    cells = np.concatenate([a * S + keys // Z for a, (_, keys) in enumerate(joint)])  # (a, s) of each row

    def backup(Q: Actions) -> Actions:
        best = np.max(table @ np.ascontiguousarray(Q.T), axis=1)
        return model.R + model.discount * np.bincount(cells, best, A * S).reshape(A, S)

    return backup


def _num_joint(T: Sparse, O: Sparse) -> int:
    return int(np.diff(O.indptr)[T.indices].sum())


def _joint(T: Sparse, O: Sparse) -> tuple[Sparse, Int[np.ndarray, " n"]]:
    """p(s', o | s, a) of one action: rows by (s, o), those with an entry; and which (s, o) they are."""
    T = T.tocoo()
    each = np.diff(O.indptr)[T.col]  # the observations of each entry of T
    first = np.repeat(O.indptr[T.col] - np.concatenate([[0], np.cumsum(each)[:-1]]), each)
    places = first + np.arange(len(first))
    key = np.repeat(T.row.astype(np.int64), each) * O.shape[1] + O.indices[places]
    keys, rows = np.unique(key, return_inverse=True)
    p = np.repeat(T.data, each) * O.data[places]
    return csr_array((p, (rows, np.repeat(T.col, each))), shape=(len(keys), T.shape[1])), keys


def _mdp_backup(model: SparseModel) -> Backup:
    """Q(s, a) <- R(s, a) + gamma sum_s' p(s' | s, a) max_a' Q(s', a')."""
    T = stacked(model.T)
    return lambda Q: model.R + model.discount * (T @ np.max(Q, axis=0)).reshape(model.R.shape)


def start_value(Q: Actions, start: Values) -> float:
    """max_a sum_s p(s_0 = s) Q(s, a)."""
    return float(np.max(Q @ start))
