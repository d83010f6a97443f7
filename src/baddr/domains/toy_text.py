"""Gymnasium's toy-text environments as domains (`from_gymnasium`): their tables are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.sparse import csr_array

from baddr.domains.cassandra.model import tables_domain
from baddr.domains.cassandra.tables import Rewards, SparseTables
from baddr.domains.domain import Domain
from baddr.domains.finite import Prior
from baddr.domains.sparse import Episodes
from baddr.errors import UserError


def from_gymnasium(
    env: Any,
    observation: Callable[[int], int] | Any = None,
    *,
    discount: float = 0.95,
    horizon: int = 100,
    prior: Prior | None = None,
) -> Domain:
    """The domain of an environment with a table `P` (FrozenLake, Taxi, CliffWalking).

    `observation` is what is seen of the next state: a function s' -> o, an array of p(o | s'), or None: the
    state itself. Agents know it, and learn the transitions, unless `prior` says something else.
    """
    inner = getattr(env, "unwrapped", env)
    table = getattr(inner, "P", None)
    if not isinstance(table, dict) or not table:
        raise UserError(
            "from_gymnasium needs an environment with a table P[s][a]; use from_simulators for others."
        )
    S, A = len(table), len(table[next(iter(table))])
    O = _observations(observation, S)
    start = np.asarray(getattr(inner, "initial_state_distrib", np.full(S, 1 / S)), np.float64)
    T, R, ends = _tables(table, start)
    states, actions, seen = (tuple(map(str, range(n))) for n in (S, A, O.shape[1]))
    shown = (csr_array(O),) * A
    model = SparseTables(
        states, actions, seen, discount, T=T, O=shown, R=R, start=start / start.sum(), ends=ends
    )
    return tables_domain(model, Episodes(discount, horizon, prior or Prior(learned="T")))


def _tables(table: dict[int, Any], start: Float64[np.ndarray, " S"]) -> tuple[tuple[Any, ...], Rewards, Any]:
    """p(s' | s, a), R(s, a, s') and the states that end an episode."""
    S, A = len(table), len(table[0])
    rows = [(s, a, *outcome) for s in range(S) for a in range(A) for outcome in table[s][a]]
    s, a, p, s_next, r, over = (np.array(x) for x in zip(*rows, strict=True))
    ends = _ends(s[p > 0], s_next[p > 0].astype(int), over[p > 0].astype(bool), start)
    T, others = [], []
    for action in range(A):
        mine = (a == action) & (p > 0)
        place = (s[mine], s_next[mine].astype(int))
        add = lambda values, place=place: csr_array((values, place), shape=(S, S))
        T.append(add(p[mine].astype(float)))
        total = add(p[mine] * r[mine]).tocoo()
        mean = total.data / np.asarray(T[-1][total.row, total.col]).ravel()
        others.append(csr_array((mean, (total.row, total.col)), shape=(S, S)))
    return tuple(T), Rewards(np.zeros((A, S)), tuple(others)), ends


def _ends(s: Any, s_next: Any, over: Any, start: Float64[np.ndarray, " S"]) -> np.ndarray:
    """The states in which episodes end; only states that an episode can come to are looked at."""
    reached = start > 0
    for _ in range(len(start)):
        before = reached.sum()
        reached[s_next[reached[s] & ~over]] = True
        if reached.sum() == before:
            break
    ends = np.zeros(len(start), bool)
    ends[s_next[reached[s] & over]] = True
    if np.any(ends & reached):
        state = int(np.flatnonzero(ends & reached)[0])
        raise UserError(f"State {state} ends an episode only sometimes; a state must end it always or never.")
    return ends


def _observations(observation: Any, S: int) -> Float64[np.ndarray, "S Z"]:
    """p(o | s')."""
    if observation is None:
        return np.eye(S)
    if callable(observation):
        number: Callable[[int], Any] = observation
        seen = np.array([int(number(s)) for s in range(S)])
        if np.any(seen < 0):
            raise UserError("observation(s) must return whole numbers from 0 up.")
        return np.eye(int(seen.max()) + 1)[seen]
    O = np.asarray(observation, np.float64)
    if O.ndim != 2 or len(O) != S or np.any(O < 0) or np.any(np.abs(O.sum(1) - 1) > 1e-5):
        raise UserError(
            f"observation must be a function, or an array of p(o | s') with {S} rows that sum to 1."
        )
    return O
