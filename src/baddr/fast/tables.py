"""Small POMDPs as tables: each simulation's D at the inputs whose outcome it can see, evaluated before the
search.

The same numbers, by large matrix products instead of many small ones, and all that `table_search` needs.
"""

from functools import singledispatch
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.models import Models
from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action, Dynamics, Scalar, SplitDynamics, State, all_vectors, flat_index
from baddr.core.posterior import Posterior, Theta
from baddr.errors import UserError
from baddr.fast.backend import on_cpu
from baddr.fast.dropout_models import DropoutModels, ParticleDynamics
from baddr.fast.latent_models import LatentModels
from baddr.fast.loops import one_by_one, over_particles
from baddr.fast.mixture_models import MixtureModels
from baddr.fast.models import FrozenModels
from baddr.fast.tuning import BYTES_OF_TABLES, MOST_OBSERVATIONS, TABULATED_AT_ONCE
from baddr.posteriors.dropout import Architecture, Dropout, DropoutDynamics, NetworkDynamics
from baddr.posteriors.frozen import Frozen
from baddr.posteriors.latent import LatentDynamics
from baddr.posteriors.mixture import Mixed, Mixture, chosen
from baddr.posteriors.partial import Partial
from baddr.prng import running_sum


class Rows(NamedTuple):
    """Inputs of D, as ranks: the (s, a) whose s' matters, and the (s, a, s') whose o does."""

    T: tuple[tuple[int, int], ...]
    O: tuple[tuple[int, int, int], ...]


class Tables(NamedTuple):
    """D of some simulations of each run at the inputs that matter, and the rest of the POMDP as tables.

    T and O are cumulative probabilities without the last one, which is 1; `row_T` and `row_O` number their
    rows, -1 where the outcome does not matter. All simulations of a run may share one table.
    """

    T: Float[Array, "runs tables T_rows _"]
    O: Float[Array, "runs tables O_rows _"]
    row_T: Int[np.ndarray, "S A"]
    row_O: Int[np.ndarray, "S A S"]
    reward: Float[Array, "S A S"]
    is_terminal: Bool[Array, "S A S"]


# Which inputs matter.


def rows_that_matter(pomdp: POMDP, most: int) -> Rows | None:
    """The inputs of D whose outcome a simulation can see; None where there are more than `most`.

    s' of (s, a) matters unless it always ends the episode with one and the same reward; o matters unless
    (s, a, s') ends the episode.
    """
    S, A = pomdp.num_states, pomdp.num_actions
    if S * A * S > most**3:
        return None
    found = outcomes(pomdp)
    if any(isinstance(x, Tracer) for x in found):  # a function is being compiled
        with jax.ensure_compile_time_eval():  # op by op: a quarter of a second, where nothing is compiled yet
            found = outcomes(pomdp)
    if any(isinstance(x, Tracer) for x in found):
        raise UserError(
            "How to search depends on the POMDP's rewards, and JAX is tracing this POMDP: plan with it "
            "outside `jit`, or leave it out of the arguments of the function that is compiled."
        )
    ends, r = map(np.asarray, found)
    seen = ~ends.all(axis=2) | (r != r[:, :, :1]).any(axis=2)
    T = tuple((int(s), int(a)) for s, a in np.argwhere(seen))
    O = tuple((int(s), int(a), int(s_next)) for s, a, s_next in np.argwhere(~ends))
    return Rows(T, O) if len(T) + len(O) <= most else None


@eqx.filter_jit
def outcomes(pomdp: POMDP) -> tuple[Bool[Array, "S A S"], Float[Array, "S A S"]]:
    """Whether (s, a, s') ends the episode, and R(s, a, s')."""

    def outcome(s: State, a: Action, s_next: State) -> tuple[Bool[Array, ""], Scalar]:
        return pomdp.is_terminal(s, a, s_next), pomdp.reward(s, a, s_next)

    over = lambda f, axis: jax.vmap(f, in_axes=tuple(0 if j == axis else None for j in range(3)))
    s = all_vectors(pomdp.state_sizes)
    return over(over(over(outcome, 2), 1), 0)(s, jnp.arange(pomdp.num_actions, dtype=jnp.int32), s)


@singledispatch
def draws_once(posterior: Posterior) -> bool:
    """Whether a D that was drawn is one distribution, and no step of it draws anew."""
    return True


@draws_once.register(Dropout)
def _(posterior: Dropout) -> bool:
    return not posterior.architecture.network.redraw_masks


@draws_once.register(Frozen)
def _(posterior: Frozen) -> bool:
    return draws_once(posterior.posterior)


@draws_once.register(Mixture)
def _(posterior: Mixture) -> bool:
    return all(map(draws_once, posterior.parts))


@draws_once.register(Partial)
def _(posterior: Partial) -> bool:
    return draws_once(posterior.transition) and draws_once(posterior.observation)


# Networks at these inputs.


class Tabulated(NetworkDynamics):
    """Draws of D whose networks were evaluated beforehand. Elsewhere their outcomes mean nothing."""

    table_T: Float[Array, "*draws T_rows T_outputs"]
    table_O: Float[Array, "*draws O_rows O_outputs"]
    rows: Rows = eqx.field(static=True)
    architecture: Architecture = eqx.field(static=True)

    def logits_T(self, s: State, a: Action) -> Float[Array, " outputs"]:
        return _look_up(self.table_T, self.rows.T, [self._rank(s), a])

    def logits_O(self, s: State, a: Action, s_next: State) -> Float[Array, " outputs"]:
        return _look_up(self.table_O, self.rows.O, [self._rank(s), a, self._rank(s_next)])

    def for_draw(self, key: Array) -> tuple[Array, "Tabulated"]:
        return key, self

    def probabilities(self) -> tuple[Float[Array, "*draws T_rows S"], Float[Array, "*draws O_rows Z"]]:
        """p(s' | s, a) and p(o | s, a, s') of each draw at the rows, of all s' and o by rank."""
        sizes = self.architecture.state_sizes, self.architecture.observation_sizes
        return _joint(self.table_T, sizes[0]), _joint(self.table_O, sizes[1])

    def _rank(self, s: State) -> Int[Array, ""]:
        return flat_index(s, self.architecture.state_sizes)


def tabulate(
    models: Models, rows: Rows, thetas: Theta, i: Int[Array, " n"], epsilons: PyTree
) -> Tabulated | None:
    """n draws of D, of the particles i, evaluated at these inputs and stacked, where D is worth a table."""
    if isinstance(models, FrozenModels):
        return tabulate(models.inner, rows, thetas, i, epsilons)
    if isinstance(models, MixtureModels):
        return _tabulate_parts(models, rows, thetas, i, epsilons)
    if not isinstance(models, DropoutModels | LatentModels) or models.posterior.architecture.networks != "TO":
        return None
    architecture = models.posterior.architecture
    s = all_vectors(architecture.state_sizes)
    (s_T, a_T), (s_O, a_O, s_next_O) = (np.array(x, np.int32).T for x in rows)
    X_T = jax.vmap(architecture.inputs_T)(jnp.asarray(s[s_T]), jnp.asarray(a_T))
    X_O = jax.vmap(architecture.inputs_O)(jnp.asarray(s[s_O]), jnp.asarray(a_O), jnp.asarray(s[s_next_O]))

    def one(draw: tuple[Int[Array, ""], PyTree]) -> tuple[Array, Array]:
        D = models.dynamics(thetas, *draw)
        if isinstance(D, ParticleDynamics):
            return D.logits_at("T", X_T), D.logits_at("O", X_O)
        assert isinstance(D, DropoutDynamics | LatentDynamics)
        return jax.vmap(lambda x: D.logits("T", x))(X_T), jax.vmap(lambda x: D.logits("O", x))(X_O)

    if not on_cpu() if isinstance(models, LatentModels) else models.by_kernels:
        tables = jax.vmap(one)((i, epsilons))
    else:
        tables = jax.lax.map(one, (i, epsilons), batch_size=TABULATED_AT_ONCE)
    return Tabulated(table_T=tables[0], table_O=tables[1], rows=rows, architecture=architecture)


def _tabulate_parts(
    models: MixtureModels, rows: Rows, thetas: Mixed, i: Int[Array, " n"], epsilons: PyTree
) -> Tabulated | None:
    """The tables of each draw's own part; all parts are evaluated."""
    parts = zip(models.parts, thetas.thetas, epsilons, strict=True)
    found = [tabulate(part, rows, theta, i, epsilon) for part, theta, epsilon in parts]
    if any(tables is None for tables in found):
        return None
    logits = lambda tables: (tables.table_T, tables.table_O)
    return eqx.tree_at(logits, found[0], chosen(thetas.which[i][:, None, None], tuple(map(logits, found))))


def _joint(y: Float[Array, "*rows outputs"], sizes: tuple[int, ...]) -> Float[Array, "*rows values"]:
    """The probability of every feature vector by rank: features are independent given the logits."""
    features = jnp.split(y, np.cumsum(sizes)[:-1], axis=-1)
    values = zip(features, all_vectors(sizes).T, strict=True)
    return jnp.exp(sum(jax.nn.log_softmax(x)[..., value] for x, value in values))


def _look_up(
    table: Float[Array, "rows outputs"], rows: tuple[tuple[int, ...], ...], wanted: list[Int[Array, ""]]
) -> Float[Array, " outputs"]:
    """The entry whose row is wanted. Few rows: compared one by one, which needs no gather."""
    same = jnp.all(np.array(rows, np.int32) == jnp.stack(wanted)[None], axis=1)
    return jnp.sum(jnp.where(same[:, None], table, 0), axis=0)


# All that a search needs.


def has_tables(pomdp: POMDP, rows: Rows | None) -> bool:
    """Whether a POMDP with these rows is small enough to be searched by tables."""
    few = pomdp.num_states > 1 and 1 < pomdp.num_observations <= MOST_OBSERVATIONS
    return rows is not None and all(rows) and few


def tables(gba: GBAPOMDP, belief: Particles, draws: PyTree, rows: Rows) -> Tables:
    """What the simulations of each run with these draws can see."""
    if isinstance(draws, Tabulated):
        p_T, p_O = draws.probabilities()
    else:
        p_T, p_O = one_by_one(lambda belief, draws: _tables(gba, rows, belief, draws))(belief, draws)
    row_T = np.full((gba.num_states, gba.num_actions), -1, np.int32)
    row_O = np.full((*row_T.shape, gba.num_states), -1, np.int32)
    for row, index in enumerate(rows.T):
        row_T[index] = row
    for row, index in enumerate(rows.O):
        row_O[index] = row
    is_terminal, reward = outcomes(gba.pomdp)
    return Tables(cumulative(p_T), cumulative(p_O), row_T, row_O, reward, is_terminal)


def _tables(
    gba: GBAPOMDP, rows: Rows, belief: Particles, draws: PyTree
) -> tuple[Float[Array, "draws T_rows S"], Float[Array, "draws O_rows Z"]]:
    """p(s' | s, a) and p(o | s, a, s') of a run's draws at the rows that matter; of one if D is known."""
    if not jax.tree.leaves((belief.states.theta, draws[1])):
        draws = jax.tree.map(lambda x: x[:1], draws)
    s, o = all_vectors(gba.state_sizes), all_vectors(gba.observation_sizes)
    s_T, a_T = (np.array(x, np.int32) for x in zip(*rows.T, strict=True))
    s_O, a_O, s_next_O = (np.array(x, np.int32) for x in zip(*rows.O, strict=True))

    def one(draw: PyTree) -> tuple[Array, Array]:
        D = gba.models.dynamics(belief.states.theta, *draw)
        T = jax.vmap(lambda s_, a: jax.vmap(lambda s_next: _transition_prob(D, s_, a, s_next, o))(s))
        O = jax.vmap(lambda s_, a, s_next: jax.vmap(lambda o: D.observation_log_prob(s_, a, s_next, o))(o))
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
