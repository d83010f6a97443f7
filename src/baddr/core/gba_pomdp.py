"""The General Bayes-Adaptive POMDP (Def. 4): learning as planning in a POMDP over (s, theta)."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.particles import Particles, one_by_one, over_all, over_particles
from baddr.core.pomdp import (
    POMDP,
    Action,
    Dynamics,
    Observation,
    Scalar,
    SplitDynamics,
    State,
    Tables,
    all_vectors,
)
from baddr.core.posterior import Posterior, Rows, Tabulated
from baddr.core.prng import running_sum

# A simulation takes about three steps. Evaluating D at this many inputs before the search costs less than
# evaluating it where the search goes, one simulated step after another: see docs/results.md.
MOST_ROWS = 32
BYTES_OF_TABLES = 4096  # that making the tables of a draw touches, about
MOST_OBSERVATIONS = 64  # of a search by tables, whose loop over them is unrolled


class AugmentedState(NamedTuple):
    """s_bar = (s, theta)."""

    s: Int[Array, "..."]
    theta: PyTree


class GBAPOMDP(POMDP):
    """The POMDP whose state is (s, theta), given a posterior family and its update U (Def. 4).

    With `root_sampling` (Alg. 2) a simulation draws one D ~ p(.; theta) at its root and runs in the
    POMDP with those dynamics; without it, a simulation runs in this POMDP itself and learns as it goes.
    Where D is costly to evaluate and has few inputs (`Posterior.tabulate`), each simulation's D is
    tabulated before the search: the same numbers, by large matrix products instead of many small ones.
    """

    pomdp: POMDP
    posterior: Posterior
    root_sampling: bool = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)  # of s; theta is any pytree
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    rows: Rows | None = eqx.field(static=True)  # the inputs of D that matter, where they are few

    def __init__(
        self, pomdp: POMDP, posterior: Posterior, root_sampling: bool = True, most_rows: int = MOST_ROWS
    ):
        self.pomdp, self.posterior, self.root_sampling = pomdp, posterior, root_sampling
        self.rows = rows_that_matter(pomdp, most_rows) if root_sampling and posterior.draws_once else None
        self.state_sizes, self.observation_sizes = pomdp.state_sizes, pomdp.observation_sizes
        self.num_actions, self.discount, self.horizon = pomdp.num_actions, pomdp.discount, pomdp.horizon

    def initial_state(self, key: Key[Array, ""]) -> AugmentedState:
        return self.initial_pair(*jr.split(key))

    def initial_pair(self, key_s: Key[Array, ""], key_theta: Key[Array, ""]) -> AugmentedState:
        """(s_0, theta_0) with s_0 ~ p_s0 and theta_0 from the prior."""
        return AugmentedState(self.pomdp.initial_state(key_s), self.posterior.prior(key_theta))

    def initial_observation(self, key: Key[Array, ""], s: AugmentedState) -> Observation:
        return self.pomdp.initial_observation(key, s.s)

    def step(self, key: Key[Array, ""], s: AugmentedState, a: Action) -> tuple[AugmentedState, Observation]:
        """Eq. 10-11: draw D from the posterior, step it, and fold the transition into theta."""
        key_D, key_step, key_U = jr.split(key, 3)
        D = self.posterior.sample(key_D, s.theta)
        s_next, o = D.step(key_step, s.s, a)
        theta_next = self.posterior.update(key_U, s.theta, s.s, a, s_next, o)
        return AugmentedState(s_next, theta_next), o

    def reward(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Scalar:
        """R_bar(s_bar, a, s_bar') = R(s, a, s')."""
        return self.pomdp.reward(s.s, a, s_next.s)

    def is_terminal(self, s: AugmentedState, a: Action, s_next: AugmentedState) -> Bool[Array, ""]:
        return self.pomdp.is_terminal(s.s, a, s_next.s)

    def sample_roots(self, key: Key[Array, ""], belief: Particles, n: int) -> tuple[Any, PyTree]:
        if not self.root_sampling:
            return super().sample_roots(key, belief, n)

        def one(key_particle: Key[Array, ""], key_D: Key[Array, ""]) -> tuple[Any, PyTree]:
            i = belief.sample(key_particle)
            s, theta = belief.at(i)
            return s, (i, self.posterior.draw(key_D, theta))

        return jax.vmap(one)(*jr.split(key, (2, n)))

    def prepare(self, belief: Particles, draws: PyTree) -> PyTree:
        if self.rows is None:
            return draws
        tabulate = partial(self.posterior.tabulate, rows=self.rows)
        tabulated = over_all(tabulate)(belief.states.theta, *draws)
        return draws if tabulated is None else tabulated

    def root_pomdp(self, belief: Particles, draw: PyTree) -> POMDP:
        if not self.root_sampling:
            return self
        return self.pomdp.with_dynamics(self._dynamics(belief, draw))

    def _dynamics(self, belief: Particles, draw: PyTree) -> Dynamics:
        """The D of the simulation with this `draw`."""
        if isinstance(draw, Dynamics):
            return draw
        i, epsilon = draw
        return self.posterior.dynamics_of(belief.states.theta, i, epsilon)

    @property
    def has_tables(self) -> bool:
        """Whether `tables` gives some."""
        few = self.num_states > 1 and 1 < self.num_observations <= MOST_OBSERVATIONS
        return self.rows is not None and all(self.rows) and few

    def tables(self, belief: Particles, draws: PyTree) -> Tables | None:
        if self.rows is None or not self.has_tables:
            return None
        known = isinstance(draws, Tabulated)
        p_T, p_O = draws.probabilities() if known else one_by_one(self._tables)(belief, draws)
        row_T = np.full((self.num_states, self.num_actions), -1, np.int32)
        row_O = np.full((*row_T.shape, self.num_states), -1, np.int32)
        for row, index in enumerate(self.rows.T):
            row_T[index] = row
        for row, index in enumerate(self.rows.O):
            row_O[index] = row
        is_terminal, reward = outcomes(self.pomdp)
        return Tables(cumulative(p_T), cumulative(p_O), row_T, row_O, reward, is_terminal)

    def _tables(
        self, belief: Particles, draws: PyTree
    ) -> tuple[Float[Array, "draws T_rows S"], Float[Array, "draws O_rows Z"]]:
        """p(s' | s, a) and p(o | s, a, s') of a run's draws at the rows that matter; of one if D is known."""
        assert self.rows is not None
        if not isinstance(draws, Dynamics) and not jax.tree.leaves((belief.states.theta, draws[1])):
            draws = jax.tree.map(lambda x: x[:1], draws)
        s, o = all_vectors(self.state_sizes), all_vectors(self.observation_sizes)
        s_T, a_T = (np.array(x, np.int32) for x in zip(*self.rows.T, strict=True))
        s_O, a_O, s_next_O = (np.array(x, np.int32) for x in zip(*self.rows.O, strict=True))

        def one(draw: PyTree) -> tuple[Array, Array]:
            D = self._dynamics(belief, draw)
            T = jax.vmap(lambda s_, a: jax.vmap(lambda s_next: _transition_prob(D, s_, a, s_next, o))(s))
            O = jax.vmap(
                lambda s_, a, s_next: jax.vmap(lambda o: D.observation_log_prob(s_, a, s_next, o))(o)
            )
            return T(s[s_T], a_T), jnp.exp(O(s[s_O], a_O, s[s_next_O]))

        return over_particles(one, BYTES_OF_TABLES)(draws)


def cumulative(p: Float[Array, "*rows values"]) -> Float[Array, "*rows fewer_values"]:
    """Running sums in proportion to the last, which is left out. From the last possible value on they are
    exactly 1, so that a uniform number in [0, 1) never draws an impossible one."""
    running = running_sum(p)
    return running[..., :-1] / running[..., -1:]


def _transition_prob(
    D: Dynamics, s: State, a: Action, s_next: State, every_o: Int[np.ndarray, "Z observation_features"]
) -> Scalar:
    """p(s' | s, a; D): the sum of D(s', o | s, a) over o, where D does not give it itself."""
    if isinstance(D, SplitDynamics):
        return jnp.exp(D.transition_log_prob(s, a, s_next))
    return jnp.sum(jnp.exp(jax.vmap(lambda o: D.log_prob(s, a, s_next, o))(every_o)))


def outcomes(pomdp: POMDP) -> tuple[Bool[Array, "S A S"], Float[Array, "S A S"]]:
    """Whether (s, a, s') ends the episode, and R(s, a, s')."""

    def outcome(s: State, a: Action, s_next: State) -> tuple[Bool[Array, ""], Scalar]:
        return pomdp.is_terminal(s, a, s_next), pomdp.reward(s, a, s_next)

    over = lambda f, axis: jax.vmap(f, in_axes=tuple(0 if j == axis else None for j in range(3)))
    s = all_vectors(pomdp.state_sizes)
    return over(over(over(outcome, 2), 1), 0)(s, jnp.arange(pomdp.num_actions, dtype=jnp.int32), s)


def rows_that_matter(pomdp: POMDP, most: int) -> Rows | None:
    """The inputs of D whose outcome a simulation can see; None where there are more than `most`.

    s' of (s, a) matters unless it always ends the episode with one and the same reward; o matters unless
    (s, a, s') ends the episode.
    """
    S, A = pomdp.num_states, pomdp.num_actions
    if S * A * S > most**3:
        return None

    try:
        ends, r = (np.asarray(x) for x in jax.jit(lambda: outcomes(pomdp))())
    except jax.errors.TracerArrayConversionError:  # a POMDP that is an argument of a compiled function
        return None
    seen = ~ends.all(axis=2) | (r != r[:, :, :1]).any(axis=2)
    T = tuple((int(s), int(a)) for s, a in np.argwhere(seen))
    O = tuple((int(s), int(a), int(s_next)) for s, a, s_next in np.argwhere(~ends))
    return Rows(T, O) if len(T) + len(O) <= most else None
