"""The sparse tables of any POMDP whose states can be listed. Importing it imports JAX.

Rows come from log-probabilities, never from frequencies: where outcomes are too many to try all of them, they
are found by drawing, and a row counts only if what was found has all of its probability.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy.sparse import csr_array

from baddr import prng
from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics, all_vectors
from baddr.errors import UserError
from baddr.solve.model import SparseModel, Values, too_large

MOST_STATES = 20_000
ALL_STATES = 1_500  # all of them are tried as successors; beyond it draws come first
ALL_OBSERVATIONS = 4_096
DRAWS = 64  # of what may follow, for each row
START_DRAWS = 2**16
BLOCK = 2**22  # probabilities at a time
TOLERANCE = 1e-4  # of a row's sum, in float32; rows are then divided by it
MISSED = 1e-5  # probability that drawn outcomes may lack, in float32: of more, all outcomes are tried
SMALLEST = 1e-12  # probability: less is what float32 leaves of nothing

Numbers = Int[np.ndarray, " n"]


class Triples(NamedTuple):
    """The transitions (s, a, s') of positive probability, by flat index."""

    s: Numbers
    a: Numbers
    s_next: Numbers
    p: Float64[np.ndarray, " n"]

    def at(self, some: Numbers | Bool[np.ndarray, " n"]) -> "Triples":
        return Triples(*(x[some] for x in self))


class Seen(NamedTuple):
    """What may be observed after a transition, by its number."""

    row: Numbers
    o: Int[np.ndarray, "n features"]
    p: Float64[np.ndarray, " n"]


def sparse_model(pomdp: POMDP) -> SparseModel:
    """The tables of a POMDP. Transitions that end the episode are left out of T; their rewards are not."""
    S, A, Z = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
    if S > MOST_STATES:
        raise too_large(S, A, Z, f"more than {MOST_STATES:,} states")
    D: Dynamics = pomdp.dynamics  # type: ignore[attr-defined]
    follows = transitions(pomdp, D)
    r, ends = outcomes(pomdp, follows)
    R = np.bincount(follows.a * S + follows.s, follows.p * r, A * S).reshape(A, S)
    on = follows.at(~ends)
    tables = [on.at(on.a == a) for a in range(A)]
    T = tuple(csr_array((t.p, (t.s, t.s_next)), shape=(S, S)) for t in tables)
    start, exact = start_of(pomdp)
    return SparseModel(T, observations(pomdp, D, on), R, start, float(pomdp.discount), exact)


# --- the start ---------------------------------------------------------------------------------------


def start_of(pomdp: POMDP) -> tuple[Values, bool]:
    """p(s_0), and whether it is exact: a POMDP's own `start`, or one state that no key changes. Otherwise it
    is what many draws give."""
    given: Any = getattr(pomdp, "start", None)
    if given is not None:
        p = np.asarray(given, np.float64)
        return p / p.sum(), True
    traced = jax.make_jaxpr(pomdp.initial_state)(prng.key(0)).jaxpr
    used = {id(x) for equation in traced.eqns for x in equation.invars} | {id(x) for x in traced.outvars}
    fixed = id(traced.invars[0]) not in used
    keys = jr.split(prng.key(0), 1 if fixed else START_DRAWS)
    s = flat(np.asarray(jax.jit(jax.vmap(pomdp.initial_state))(keys)), pomdp.state_sizes)
    return np.bincount(s, minlength=pomdp.num_states) / len(s), fixed


def flat(vectors: np.ndarray, sizes: tuple[int, ...]) -> Int[np.ndarray, "*_"]:
    """The numbers of feature vectors."""
    return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(vectors, -1, 0)), sizes), np.int64)


# --- transitions -------------------------------------------------------------------------------------


def transitions(pomdp: POMDP, D: Dynamics) -> Triples:
    """All (s, a, s') with p(s' | s, a)."""
    S, A = pomdp.num_states, pomdp.num_actions
    s, a = np.divmod(np.arange(S * A), A)
    found, missing = [], np.arange(S * A)
    if S > ALL_STATES and isinstance(D, SplitDynamics):
        drawn = drawn_transitions(pomdp, D, s, a)
        row = drawn.s * A + drawn.a
        whole = np.abs(np.bincount(row, drawn.p, S * A) - 1) < MISSED
        found, missing = [drawn.at(whole[row])], np.flatnonzero(~whole)
    found += list(listed_transitions(pomdp, D, s[missing], a[missing]))
    follows = Triples(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    sums = np.bincount(follows.s * A + follows.a, follows.p, S * A)
    if np.any(np.abs(sums - 1) > TOLERANCE):
        i = int(np.argmax(np.abs(sums - 1)))
        state = all_vectors(pomdp.state_sizes)[i // A].tolist()
        raise UserError(
            f"The probabilities of s' after state {state} and action {i % A} sum to {sums[i]:.6g}, not to 1."
        )
    return follows._replace(p=follows.p / sums[follows.s * A + follows.a])


def drawn_transitions(pomdp: POMDP, D: SplitDynamics, s: Numbers, a: Numbers) -> Triples:
    """Those that some draws meet, with their probabilities."""
    draw = lambda key, s, a: jax.vmap(lambda k: D.sample_state(k, s, a))(jr.split(key, DRAWS))
    states = all_vectors(pomdp.state_sizes)
    keys = jr.split(prng.key(0), len(s))
    s_next = np.concatenate(list(blocks(draw, DRAWS, keys, states[s], a)))
    triples = np.stack([np.repeat(s, DRAWS), np.repeat(a, DRAWS), flat(s_next, pomdp.state_sizes).ravel()])
    s, a, s_next = np.unique(triples, axis=1)
    log_p = np.concatenate(list(blocks(D.transition_log_prob, 1, states[s], a, states[s_next])))
    return Triples(s, a, s_next, np.exp(log_p.astype(np.float64)))


def listed_transitions(pomdp: POMDP, D: Dynamics, s: Numbers, a: Numbers) -> Iterator[Triples]:
    """All s' for each pair (s, a)."""
    S = pomdp.num_states
    states = all_vectors(pomdp.state_sizes)
    of_pair = jax.vmap(transition_log_prob(pomdp, D), (None, None, 0))
    first, cost = 0, S * (1 if isinstance(D, SplitDynamics) else pomdp.num_observations)
    for log_p in blocks(lambda s, a: of_pair(s, a, jnp.asarray(states)), cost, states[s], a):
        p = np.exp(log_p.astype(np.float64))
        row, s_next = np.nonzero(p > SMALLEST)
        yield Triples(s[first + row], a[first + row], s_next, p[row, s_next])
        first += len(p)


def transition_log_prob(pomdp: POMDP, D: Dynamics) -> Callable[..., Any]:
    """log p(s' | s, a); where D does not give it, the sum over all observations."""
    if isinstance(D, SplitDynamics):
        return D.transition_log_prob
    S, A, Z = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
    if Z > ALL_OBSERVATIONS or S * S * A * Z > 64 * BLOCK:
        raise too_large(S, A, Z, "and its dynamics do not give p(s' | s, a) apart: SplitDynamics does")
    every_o = jnp.asarray(all_vectors(pomdp.observation_sizes))
    joint = jax.vmap(D.log_prob, (None, None, None, 0))
    return lambda s, a, s_next: jax.nn.logsumexp(joint(s, a, s_next, every_o))


def outcomes(pomdp: POMDP, follows: Triples) -> tuple[Float64[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The reward of each transition, and whether it ends the episode."""
    states = all_vectors(pomdp.state_sizes)
    both = lambda s, a, s_next: jnp.stack(
        [pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next).astype(float)]
    )
    found = list(blocks(both, 1, states[follows.s], follows.a, states[follows.s_next]))
    r, ends = np.concatenate(found).astype(np.float64).T
    return r, ends > 0.5


# --- observations ------------------------------------------------------------------------------------


def observations(pomdp: POMDP, D: Dynamics, on: Triples) -> tuple[csr_array, ...]:
    """p(o | a, s') where an episode can go on in s'; o is numbered anew where not all are listed."""
    S, A = pomdp.num_states, pomdp.num_actions
    if not len(on.s):  # every step is the last one
        return (csr_array(np.ones((S, 1))),) * A
    pair, first, which = np.unique(on.a * S + on.s_next, return_index=True, return_inverse=True)
    firsts = on.at(first)
    few = pomdp.num_observations <= ALL_OBSERVATIONS
    row, o = (listed_observations if few else drawn_observations)(pomdp, D, firsts)
    number = flat(o, pomdp.observation_sizes) if few else np.unique(o, axis=0, return_inverse=True)[1]
    Z = pomdp.num_observations if few else int(number.max()) + 1
    p = observation_probabilities(pomdp, D, firsts, row, o)
    sums = np.bincount(row, p, len(pair))
    if np.any(np.abs(sums - 1) > (TOLERANCE if few else MISSED)):
        because = "its observations are too many to list, and draws do not find all that can follow a state"
        raise too_large(S, A, pomdp.num_observations, because)
    _refuse_dependence_on_s(pomdp, D, on, which, Seen(row, o, p))
    seen_a, seen_s = np.divmod(pair[row], S)
    tables = []
    for a in range(A):
        mine = seen_a == a
        # Where no transition leads, any observation will do.
        empty = np.setdiff1d(np.arange(S), seen_s[mine])
        values = np.concatenate([p[mine] / sums[row[mine]], np.ones(len(empty))])
        places = np.concatenate([seen_s[mine], empty]), np.append(number[mine], np.zeros(len(empty), int))
        tables.append(csr_array((values, places), shape=(S, Z)))
    return tuple(tables)


def listed_observations(pomdp: POMDP, D: Dynamics, firsts: Triples) -> tuple[Numbers, np.ndarray]:
    """Of all observations, those that can follow: the number of the transition, and the vector o."""
    every, states = all_vectors(pomdp.observation_sizes), all_vectors(pomdp.state_sizes)
    of = jax.vmap(D.observation_log_prob, (None, None, None, 0))
    call = lambda s, a, s_next: of(s, a, s_next, jnp.asarray(every))
    log_p = blocks(call, len(every), states[firsts.s], firsts.a, states[firsts.s_next])
    row, o = np.nonzero(np.concatenate(list(log_p)) > np.log(SMALLEST))
    return row, every[o]


def drawn_observations(pomdp: POMDP, D: Dynamics, firsts: Triples) -> tuple[Numbers, np.ndarray]:
    """Those that some draws meet."""
    if not isinstance(D, SplitDynamics):
        S, A, Z = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
        raise too_large(S, A, Z, "and its dynamics do not give p(o | s, a, s') apart: SplitDynamics does")
    states = all_vectors(pomdp.state_sizes)
    draw = lambda key, s, a, s_next: jax.vmap(lambda k: D.sample_observation(k, s, a, s_next))(
        jr.split(key, DRAWS)
    )
    keys = jr.split(prng.key(1), len(firsts.s))
    cost = DRAWS * len(pomdp.observation_sizes)
    row, found = 0, []
    for block in blocks(draw, cost, keys, states[firsts.s], firsts.a, states[firsts.s_next]):
        for drawn in block:
            o = drawn[:1] if np.all(drawn == drawn[:1]) else np.unique(drawn, axis=0)
            found.append((np.full(len(o), row), o))
            row += 1
    rows, o = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(o)


def observation_probabilities(
    pomdp: POMDP, D: Dynamics, follows: Triples, row: Numbers, o: np.ndarray
) -> Float64[np.ndarray, " n"]:
    """p(o | s, a, s') for the transition number `row` and o."""
    states, t = all_vectors(pomdp.state_sizes), follows.at(row)
    given = states[t.s], t.a, states[t.s_next], o
    cost = len(pomdp.observation_sizes)
    return np.exp(np.concatenate(list(blocks(D.observation_log_prob, cost, *given))).astype(np.float64))


def _refuse_dependence_on_s(pomdp: POMDP, D: Dynamics, on: Triples, which: Numbers, seen: "Seen") -> None:
    """The tables have p(o | a, s'): every s that leads to s' must give the same."""
    row, o, p = seen
    count = np.bincount(row, minlength=which.max() + 1)
    start = np.cumsum(count) - count
    each = count[which]
    triple = np.repeat(np.arange(len(which)), each)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each) + np.repeat(start[which], each)
    found = observation_probabilities(pomdp, D, on, triple, o[place])
    if np.any(np.abs(found - p[place]) > TOLERANCE):
        raise UserError(
            "This POMDP cannot be solved: what is observed depends on the state before the step, and the "
            "solver takes p(o | a, s'). Make it a feature of the next state."
        )


def blocks(function: Callable[..., Any], cost: int, *arguments: Any) -> Iterator[np.ndarray]:
    """function(*arguments), of many places at once, one compiled program for all blocks of them."""
    n = len(arguments[0])
    size = max(1, min(n, BLOCK // max(1, cost)))
    program = jax.jit(jax.vmap(function))
    for first in range(0, n, size):
        places = np.minimum(np.arange(first, first + size), n - 1)
        given = [jnp.asarray(x[places]) if isinstance(x, np.ndarray) else x[places] for x in arguments]
        given = [x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) else x for x in given]
        yield np.asarray(program(*given))[: n - first]
