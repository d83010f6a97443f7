"""Domains of NumPy arrays: T[s, a, s'], O[a, s', o], R and a start distribution (`from_tables`)."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Key

from baddr.core.checks import wrong
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State, Table
from baddr.domains.domain import Domain
from baddr.domains.entry import Names
from baddr.domains.tables import KNOWN
from baddr.errors import UserError
from baddr.files.settings import misfits, refuse
from baddr.posteriors import Counts
from baddr.prng import categorical, loggamma

TOLERANCE = 1e-5  # of a row's sum; rows are then divided by it


class Finite(POMDP):
    """A POMDP of tables, with one state feature and one observation feature."""

    dynamics: Dynamics
    R: Float[Array, "S A S"]
    start: Float[Array, " S"]
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    terminal: Bool[Array, "S A S"] | None = None  # the transitions that end an episode; None: none does

    def initial_state(self, key: Key[Array, ""]) -> State:
        return categorical(key, self.start)[None]

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.zeros((1,), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return self.R[s[0], a, s_next[0]]

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return jnp.array(False) if self.terminal is None else self.terminal[s[0], a, s_next[0]]


LARGEST_REWARD = 1e30  # float32 ends at 3e38, and returns are sums of many


@dataclass(frozen=True)
class Prior:
    """What an agent knows about the tables before it acts.

    Every row of a learned table is Dirichlet(total * ((1 - noise) * truth + noise * uniform)), uniform over
    all outcomes. The rows of the other table are known.
    """

    total: float = 10.0  # how many observed steps the prior is worth, for each row
    noise: float = 0.5
    learned: Literal["TO", "T", "O"] = "TO"

    def problems(self) -> list[str]:
        return wrong(
            (self.total > 0, "prior.total must be positive"),
            (0 <= self.noise <= 1, "prior.noise must lie in [0, 1]"),
            (self.learned in ("TO", "T", "O"), "prior.learned must be TO, T or O"),
        )


@dataclass(frozen=True)
class Options:
    """What `from_tables` also takes, by name."""

    horizon: int = 50  # K: the most steps of an episode
    terminal: Any = None  # states (numbers, or a mask [s']) or transitions (a mask [s, a] or [s, a, s'])
    prior: Prior = Prior()
    names: tuple[Sequence[str], Sequence[str], Sequence[str]] | None = None  # of states, actions, o

    def problems(self) -> list[str]:
        return [*wrong((self.horizon >= 1, "horizon must be at least 1")), *self.prior.problems()]


def from_tables(T: Any, O: Any, R: Any, start: Any, discount: float, **options: Any) -> Domain:
    """A finite POMDP of arrays, and a prior about it: a domain like those of this package.

    T[s, a, s'] and O[a, s', o] are probabilities, R[s, a, s'] (or R[s, a], or R[s]) rewards, and start[s] the
    distribution of the first state. By name: horizon (50), terminal, prior and names, as in `Options`.
    Rewards and probabilities are float32. Agents that want a first observation see number 0.
    """
    chosen = Options(**options)
    T, O, start = _probabilities("T", T, "s, a, s'"), _probabilities("O", O, "a, s', o"), _start(start)
    S, A, Z = _sizes(T, O, start)
    found = misfits(chosen, but=("terminal", "names")) or chosen.problems()
    refuse([*wrong((0 <= discount <= 1, "discount must lie in [0, 1]")), *found])
    terminal = None if chosen.terminal is None else _terminal(chosen.terminal, S, A)
    sizes = (S,), (Z,)
    pomdp = Finite(
        dynamics=Table(_float32(T), _float32(O), *sizes),
        R=_float32(_rewards(R, S, A)),
        start=_float32(start),
        discount=float(discount),
        horizon=chosen.horizon,
        state_sizes=sizes[0],
        observation_sizes=sizes[1],
        num_actions=A,
        terminal=None if terminal is None else jnp.asarray(terminal),
    )
    expected, counts, sample_simulator = _prior(T, O, chosen.prior)
    return Domain(
        name=f"tables-{_digest(T, O, start)}",  # trained priors are kept under this name
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=counts,
        learned=chosen.prior.learned,
        names=None if chosen.names is None else _names(chosen.names, (S, A, Z)),
    )


# The prior.


def _prior(
    T: Float64[np.ndarray, "S A S"], O: Float64[np.ndarray, "A S Z"], prior: Prior
) -> tuple[Table, Counts, Callable[[Key[Array, ""]], Dynamics]]:
    """The expected model, the counts, and draws from them: learned rows ~ their Dirichlets."""
    learned, sizes = prior.learned, ((T.shape[0],), (O.shape[-1],))
    noise_T, noise_O = (prior.noise if half in learned else 0.0 for half in "TO")
    total_T, total_O = (prior.total if half in learned else KNOWN for half in "TO")
    mean_T, mean_O = prior_mean(T, noise_T), prior_mean(O, noise_O)
    counts = Counts(_float32(total_T * mean_T), _float32(total_O * mean_O))

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        key_T, key_O = jr.split(key)
        draw_T = dirichlet(key_T, counts.T) if "T" in learned else _float32(mean_T)
        draw_O = dirichlet(key_O, counts.O) if "O" in learned else _float32(mean_O)
        return Table(draw_T, draw_O, *sizes)

    return Table(_float32(mean_T), _float32(mean_O), *sizes), counts, sample_simulator


def prior_mean(truth: Float64[np.ndarray, "*rows n"], noise: float) -> Float64[np.ndarray, "*rows n"]:
    """(1 - noise) * truth + noise * uniform, row by row."""
    return (1 - noise) * truth + noise / truth.shape[-1]


def dirichlet(key: Key[Array, ""], alpha: Float[Array, "*rows n"]) -> Float[Array, "*rows n"]:
    """Rows ~ Dirichlet(alpha); an entry of zero stays zero. In logarithms, as small counts underflow."""
    log_gamma = loggamma(key, jnp.where(alpha > 0, alpha, 1))
    return jax.nn.softmax(jnp.where(alpha > 0, log_gamma, -jnp.inf), axis=-1)


def _float32(x: Float64[np.ndarray, "..."]) -> Float[Array, "..."]:
    return jnp.asarray(x, jnp.float32)


def _digest(*tables: np.ndarray) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in tables)).hexdigest()[:8]


# What is wrong with arrays, in sentences.


def _numbers(name: str, values: Any) -> Float64[np.ndarray, "..."]:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be an array of numbers.") from None
    if not np.all(np.isfinite(array)):
        raise UserError(f"{name} must be finite; {_place(name, array, ~np.isfinite(array))}.")
    return array


def _place(name: str, array: np.ndarray, wrong: np.ndarray) -> str:
    """The first entry that is wrong."""
    index = tuple(np.argwhere(wrong)[0].tolist())
    return f"{name}[{', '.join(map(str, index))}] is {array[index]:g}"


def _probabilities(name: str, values: Any, indices: str) -> Float64[np.ndarray, "*rows n"]:
    """Rows of probabilities, divided by their sums."""
    array = _numbers(name, values)
    rank = indices.count(",") + 1
    if array.ndim != rank or 0 in array.shape:
        raise UserError(f"{name} must be an array {name}[{indices}], not of shape {array.shape}.")
    if np.any(array < 0):
        raise UserError(f"{name} holds probabilities; {_place(name, array, array < 0)}.")
    sums = array.sum(-1)
    off = np.abs(sums - 1) > TOLERANCE
    if np.any(off):
        row = tuple(np.argwhere(off)[0].tolist())
        where = f"{name}[{', '.join(map(str, row))}]" if row else name
        raise UserError(f"The probabilities of {where} sum to {sums[row]:.6g}, not to 1.")
    return array / sums[..., None]


def _start(values: Any) -> Float64[np.ndarray, " S"]:
    return _probabilities("start", values, "s")


def _sizes(T: np.ndarray, O: np.ndarray, start: np.ndarray) -> tuple[int, int, int]:
    """How many states, actions and observations there are, where the tables agree."""
    S, A, Z = T.shape[0], T.shape[1], O.shape[2]
    if T.shape[2] != S:
        raise UserError(f"T[s, a, s'] must have as many s' as s, not {T.shape[2]} and {S}.")
    if O.shape[:2] != (A, S):
        needed = f"O[a, s', o] needs shape ({A}, {S}, _)"
        raise UserError(f"T has {A} actions and {S} states, so {needed}, not {O.shape}.")
    if len(start) != S:
        raise UserError(f"T has {S} states, so start needs {S} probabilities, not {len(start)}.")
    return S, A, Z


def _rewards(values: Any, S: int, A: int) -> Float64[np.ndarray, "S A S"]:
    R = _numbers("R", values)
    if R.shape not in ((S,), (S, A), (S, A, S)):
        shapes = f"({S}, {A}, {S}), ({S}, {A}) or ({S},)"
        raise UserError(f"R must be an array R[s, a, s'], R[s, a] or R[s], of shape {shapes}, not {R.shape}.")
    refuse_rewards(R)
    return np.broadcast_to(R.reshape(R.shape + (1,) * (3 - R.ndim)), (S, A, S)).copy()


def refuse_rewards(R: Any, where: str = "R") -> None:
    """Rewards that float32 has not: returns would be infinite."""
    largest = float(np.max(np.abs(np.asarray(R, np.float64)), initial=0.0))
    if not largest <= LARGEST_REWARD:
        raise UserError(f"{where}: rewards must be at most {LARGEST_REWARD:.0e} in size, not {largest:.3g}.")


def _terminal(values: Any, S: int, A: int) -> Bool[np.ndarray, "S A S"]:
    """States by number, or a mask; an episode ends when it enters one of them."""
    mask = np.asarray(values)
    if mask.dtype != bool:
        if not np.issubdtype(mask.dtype, np.integer) or mask.ndim != 1 or np.any((mask < 0) | (mask >= S)):
            raise UserError(f"terminal must list states, 0 to {S - 1}, or be an array of True and False.")
        mask = np.isin(np.arange(S), mask)
    if mask.shape == (S,):
        mask = mask[None, None]
    elif mask.shape == (S, A):
        mask = mask[:, :, None]
    elif mask.shape != (S, A, S):
        raise UserError(f"terminal must have shape ({S},), ({S}, {A}) or ({S}, {A}, {S}), not {mask.shape}.")
    return np.broadcast_to(mask, (S, A, S)).copy()


def _names(names: Any, sizes: tuple[int, int, int]) -> Names:
    if len(names) != 3 or tuple(map(len, names)) != sizes:
        raise UserError("names must be those of {} states, {} actions and {} observations.".format(*sizes))
    states, actions, observations = (tuple(map(str, kind)) for kind in names)
    return Names((("state", states),), actions, (("observation", observations),))
