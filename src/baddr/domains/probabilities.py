"""Random walks in a POMDP, and whether a D's probabilities are those that it draws with.

All draws come from one fixed seed: a D passes always, or never.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr import prng
from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics
from baddr.domains.callback import BlackBox
from baddr.domains.shapes import SEED, Problems
from baddr.domains.tables import every_vector

WALKERS, STEPS = 64, 64  # of the random walks
NUM_PAIRS = 32  # (s, a), from the walks, whose probabilities are looked at
NUM_DRAWS = 4096  # from each pair
STANDARD_ERRORS = 5.0
LARGEST_SPACE = 2**14  # outcomes that are summed over
TOLERANCE = 1e-4  # of sums and of log-probabilities


class Walk(NamedTuple):
    """Random walks in the true POMDP: how each begins, and all steps, flat over walkers and time."""

    s_0: Int[np.ndarray, "walkers state_features"]
    o_0: Int[np.ndarray, "walkers observation_features"]
    s: Int[np.ndarray, "n state_features"]
    a: Int[np.ndarray, " n"]
    s_next: Int[np.ndarray, "n state_features"]
    o: Int[np.ndarray, "n observation_features"]
    r: Float[np.ndarray, " n"]
    terminal: Bool[np.ndarray, " n"]


@eqx.filter_jit
def _walk(key: Key[Array, ""], pomdp: POMDP) -> tuple[Array, ...]:
    def walker(key: Key[Array, ""]) -> tuple[Array, ...]:
        key_s, key_o, key_steps = jr.split(key, 3)
        s_0 = pomdp.initial_state(key_s)

        def step(s: Array, key: Key[Array, ""]) -> tuple[Array, tuple[Array, ...]]:
            key_a, key_step = jr.split(key)
            a = (jr.uniform(key_a) * pomdp.num_actions).astype(jnp.int32)
            s_next, o = pomdp.step(key_step, s, a)
            r, terminal = pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next)
            return jnp.where(terminal, s_0, s_next), (s, a, s_next, o, r, terminal)

        steps = jax.lax.scan(step, s_0, jr.split(key_steps, STEPS))[1]
        return s_0, pomdp.initial_observation(key_o, s_0), *steps

    return jax.vmap(walker)(jr.split(key, WALKERS))


def walk(pomdp: POMDP) -> Walk:
    """Random walks of 64 steps; where an episode ends, a walk begins again where it began."""
    s_0, o_0, *steps = map(np.asarray, _walk(prng.key(SEED), pomdp))
    return Walk(s_0, o_0, *(x.reshape(-1, *x.shape[2:]) for x in steps))


def probabilities(name: str, D: Dynamics, pomdp: POMDP) -> Problems:
    """One sentence at most for each kind of mistake, about the first (s, a) that shows it: of D, and of the
    POMDP that has D for its dynamics."""
    if isinstance(D, BlackBox):  # which has none
        return
    yield from probabilities_of(name, D, pomdp)
    through = f"pomdp.with_dynamics({name}).step" if name != "pomdp.dynamics" else "pomdp.step"
    yield from _frequencies(name, through, D, pomdp.with_dynamics(D).step, pomdp, _pairs(pomdp))


def probabilities_of(name: str, D: Dynamics, pomdp: POMDP) -> Problems:
    """The same of D alone: sums, agreement, and the frequencies of what it draws."""
    pairs = _pairs(pomdp)
    yield from _sums(name, D, pomdp, *pairs)
    yield from _agreement(name, D, pomdp, *pairs)
    yield from _frequencies(name, f"{name}.step", D, D.step, pomdp, pairs)


def _pairs(pomdp: POMDP) -> tuple[Array, Array]:
    """Different (s, a) of random walks, the actions in turn."""
    steps = walk(pomdp)
    visited = np.unique(steps.s, axis=0)
    count = min(NUM_PAIRS, len(visited) * pomdp.num_actions)
    number = np.linspace(0, len(visited) * pomdp.num_actions - 1, count).astype(int)
    s, a = visited[number // pomdp.num_actions], number % pomdp.num_actions
    return jnp.asarray(s, jnp.int32), jnp.asarray(a, jnp.int32)


@eqx.filter_jit
def _total(f: Callable[..., Array], s: Array, a: Array, *outcomes: Array) -> Float[Array, " pairs"]:
    """The sum of exp f(s, a, outcome), for each pair."""
    one = lambda s, a: jnp.sum(jnp.exp(jax.vmap(lambda *x: f(s, a, *x))(*outcomes)))
    return jax.lax.map(lambda pair: one(*pair), (s, a))


def _sums(name: str, D: Dynamics, pomdp: POMDP, s: Array, a: Array) -> Problems:
    """Over all (s', o); over s' and over o where these are too many; over neither where each is."""
    S, Z = pomdp.num_states, pomdp.num_observations
    if S * Z <= LARGEST_SPACE:
        both = every_vector((*pomdp.state_sizes, *pomdp.observation_sizes))
        n = len(pomdp.state_sizes)
        yield from _off_one(f"{name}.log_prob", _total(D.log_prob, s, a, both[:, :n], both[:, n:]), s, a)
    elif S <= LARGEST_SPACE and isinstance(D, SplitDynamics):
        total = _total(D.transition_log_prob, s, a, every_vector(pomdp.state_sizes))
        yield from _off_one(f"{name}.transition_log_prob", total, s, a)


def _off_one(member: str, total: Array, s: Array, a: Array) -> Problems:
    off = np.flatnonzero(~(np.abs(np.asarray(total) - 1) <= TOLERANCE))
    if len(off):
        i = off[0]
        where = f"s = {np.asarray(s[i]).tolist()}, a = {int(a[i])}"
        yield f"{member}: the probabilities for {where} sum to {float(total[i]):.6g}, not to 1"


@eqx.filter_jit
def _draws(step: Callable[..., Any], D: Dynamics, key: Key[Array, ""], s: Array, a: Array, n: int) -> Any:
    """n draws of (s', o) from each pair, and their log-probabilities."""

    def pair(key: Key[Array, ""], s: Array, a: Array) -> Any:
        s_next, o = jax.vmap(step, (0, None, None))(jr.split(key, n), s, a)
        return s_next, o, jax.vmap(D.log_prob, (None, None, 0, 0))(s, a, s_next, o)

    return jax.lax.map(lambda x: pair(*x), (jr.split(key, len(s)), s, a))


def _frequencies(
    name: str, member: str, D: Dynamics, step: Callable[..., Any], pomdp: POMDP, pairs: tuple[Array, Array]
) -> Problems:
    """Each outcome that was drawn, against its probability.

    By Bernstein's inequality a count X of n draws is off n p by more than 5 standard errors and 5 with
    probability at most 8e-6.
    """
    s_next, o, log_p = _draws(step, D, prng.key(SEED), *pairs, NUM_DRAWS)
    if np.any(np.isnan(log_p)):
        yield f"{name}.log_prob is NaN for an outcome of {member}"
        return
    outcomes = np.concatenate([s_next, o], axis=-1)
    for i in range(len(outcomes)):
        each, first, count = np.unique(outcomes[i], axis=0, return_index=True, return_counts=True)
        p = np.exp(np.asarray(log_p[i], np.float64)[first])
        bound = STANDARD_ERRORS * np.sqrt(NUM_DRAWS * p * np.maximum(1 - p, 0)) + 5
        wrong = (np.abs(count - NUM_DRAWS * p) > bound) | (p == 0)
        if np.any(wrong):
            j = np.flatnonzero(wrong)[0]
            k = len(pomdp.state_sizes)
            where = f"s = {np.asarray(pairs[0][i]).tolist()}, a = {int(pairs[1][i])}"
            yield (
                f"{member} draws s' = {each[j, :k].tolist()}, o = {each[j, k:].tolist()} from {where} in "
                f"{count[j]} of {NUM_DRAWS} draws ({count[j] / NUM_DRAWS:.4f}), but by {name}.log_prob its "
                f"probability is {p[j]:.4f}"
            )
            return


@eqx.filter_jit
def _parts(D: Dynamics, pomdp: POMDP, key: Key[Array, ""], s: Array, a: Array) -> tuple[Array | None, ...]:
    """For one draw (s', o) from each pair: log p(s', o), log p(s'), log p(o | s'), and sum_o p(o | s').

    p(s') is the sum of p(s', o) over o where these can be listed, or else what `transition_log_prob` says.
    """
    listed = pomdp.num_observations <= LARGEST_SPACE
    every = every_vector(pomdp.observation_sizes) if listed else None

    def pair(x: tuple[Array, Array, Array]) -> tuple[Array | None, ...]:
        key, s, a = x
        s_next, o = D.step(key, s, a)
        both, observation = D.log_prob(s, a, s_next, o), D.observation_log_prob(s, a, s_next, o)
        if every is None:
            transition = D.transition_log_prob(s, a, s_next) if isinstance(D, SplitDynamics) else None
            return both, transition, observation, None
        over_o = lambda f: jax.nn.logsumexp(jax.vmap(lambda o: f(s, a, s_next, o))(every))
        return both, over_o(D.log_prob), observation, jnp.exp(over_o(D.observation_log_prob))

    return jax.lax.map(pair, (jr.split(key, len(s)), s, a))


def _agreement(name: str, D: Dynamics, pomdp: POMDP, s: Array, a: Array) -> Problems:
    """observation_log_prob (and transition_log_prob) against log_prob."""
    both, transition, observation, total = _parts(D, pomdp, prng.key(SEED), s, a)
    if total is not None:
        yield from _off_one(f"{name}.observation_log_prob", total, s, a)
    if both is None or transition is None or observation is None:
        return
    impossible = np.isneginf(both) & np.isneginf(transition + observation)  # which frequencies tell
    apart = np.where(impossible, 0, np.abs(np.asarray(transition + observation - both, np.float64)))
    if not np.all(apart <= TOLERANCE):
        i = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        yield (
            f"{name}.observation_log_prob does not agree with log_prob: p(s') p(o | s') is "
            f"{math.exp(transition[i] + observation[i]):.4g}, log_prob says {math.exp(both[i]):.4g}"
        )
