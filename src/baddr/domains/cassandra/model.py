"""A finite POMDP from a file in Cassandra's format, and a prior about it.

States, actions and observations are numbered as the file lists them, from 0. Nothing in the format ends
an episode: the horizon does. There is no first observation either: agents that want one see number 0.
"""

import hashlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State, Table
from baddr.core.prng import categorical
from baddr.domains.cassandra.format import Model, read
from baddr.domains.domain import Domain
from baddr.posteriors import Counts

KNOWN = 10_000.0  # the total of a Dirichlet row that is known


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

    def initial_state(self, key: Key[Array, ""]) -> State:
        return categorical(key, self.start)[None]

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.zeros((1,), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return self.R[s[0], a, s_next[0]]

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return jnp.array(False)


def make_domain(
    path: str,
    horizon: int = 50,
    discount: float = -1.0,
    prior_total: float = 10.0,
    prior_noise: float = 0.5,
    learned: str = "TO",
) -> Domain:
    """The file's POMDP; its discount where `discount` is negative.

    The prior: every row of a learned table is Dirichlet(prior_total * ((1 - prior_noise) * truth +
    prior_noise * uniform)), uniform over all outcomes. Rows of the other table are known.
    """
    model = read(path)
    discount = model.discount if discount < 0 else discount
    sizes = (len(model.states),), (len(model.observations),)
    noise_T, noise_O = (prior_noise if half in learned else 0.0 for half in "TO")
    total_T, total_O = (prior_total if half in learned else KNOWN for half in "TO")
    T, O = prior_mean(model.T.swapaxes(0, 1), noise_T), prior_mean(model.O, noise_O)
    counts = Counts(_float32(total_T * T), _float32(total_O * O))

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """Learned rows ~ their Dirichlets; the others are as in the file."""
        key_T, key_O = jr.split(key)
        draw_T = dirichlet(key_T, counts.T) if "T" in learned else _float32(T)
        draw_O = dirichlet(key_O, counts.O) if "O" in learned else _float32(O)
        return Table(draw_T, draw_O, *sizes)

    return Domain(
        # Trained priors are kept under this name: another content of the file is another domain.
        name=f"{Path(path).stem}-{hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8]}",
        pomdp=make_pomdp(model, discount, horizon),
        sample_simulator=sample_simulator,
        expected_simulator=Table(_float32(T), _float32(O), *sizes),
        counts=counts,
        learned=learned,
    )


def make_pomdp(model: Model, discount: float, horizon: int) -> Finite:
    """The model in float32, with rows that sum to one."""
    S, A, Z = len(model.states), len(model.actions), len(model.observations)
    T, O = model.T.swapaxes(0, 1), model.O
    return Finite(
        dynamics=Table(_float32(_normalised(T)), _float32(_normalised(O)), (S,), (Z,)),
        R=_float32(model.R.swapaxes(0, 1)),
        start=_float32(model.start),
        discount=discount,
        horizon=horizon,
        state_sizes=(S,),
        observation_sizes=(Z,),
        num_actions=A,
    )


def prior_mean(truth: Float64[np.ndarray, "*rows n"], noise: float) -> Float64[np.ndarray, "*rows n"]:
    """(1 - noise) * truth + noise * uniform, row by row."""
    return (1 - noise) * _normalised(truth) + noise / truth.shape[-1]


def _normalised(rows: Float64[np.ndarray, "*rows n"]) -> Float64[np.ndarray, "*rows n"]:
    """The rows of a file may be a little off one."""
    return rows / rows.sum(-1, keepdims=True)


def dirichlet(key: Key[Array, ""], alpha: Float[Array, "*rows n"]) -> Float[Array, "*rows n"]:
    """Rows ~ Dirichlet(alpha); an entry of zero stays zero. In logarithms, as small counts underflow."""
    log_gamma = jr.loggamma(key, jnp.where(alpha > 0, alpha, 1))
    return jax.nn.softmax(jnp.where(alpha > 0, log_gamma, -jnp.inf), axis=-1)


def _float32(x: Float64[np.ndarray, "..."]) -> Float[Array, "..."]:
    return jnp.asarray(x, jnp.float32)
