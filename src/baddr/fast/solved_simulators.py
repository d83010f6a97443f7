"""Policies that look before they act, where the model is uncertain: bounds from below for the belief tree.

Blind policies never look, so where looking pays they say little. The point-based solver finds better ones,
but in a model that is known. So a few simulators of the prior, those that differ most, are solved once and
for all. The policies of the one that is nearest to what the belief expects serve for an episode, if the
belief is certain enough: its models differ half as much as the prior's do. Before that they would do harm. An
agent that expects a bad sensor has a good plan without it, never looks, and never finds out; one without a
good plan tries.

What a policy promises is a bound in its own simulator, and an estimate in others.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from baddr import prng
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.particles import Particles, systematic_indices
from baddr.core.pomdp import POMDP, Dynamics, Transition, all_vectors
from baddr.errors import UserError
from baddr.fast.known_bounds import is_long, is_solved, known_tables, sparse
from baddr.planners.belief_tree.bounds import NONE, Policies
from baddr.planners.belief_tree.search import TreeOfBeliefs
from baddr.planners.tree_search import effective_depth
from baddr.posteriors.known import Known
from baddr.solve.initial import fast_informed_bound
from baddr.solve.model import SparseModel
from baddr.solve.point_based import Budget
from baddr.solve.stored import stored_solution

Simulator = Callable[[Key[Array, ""]], Dynamics]

NUM_DRAWN = 256  # simulators, of which those are solved that differ most
NUM_STEPS = 512  # of drawn simulators, by which models are compared
LEAST_LOG_P = np.log(1e-3)  # of a step: what is rarer counts as this
SAME = 1e-3  # root mean square difference of log p at which two simulators are called the same
MOST_STATES = 512  # the solver takes seconds for each simulator
BUDGET = Budget(precision=1e-2, trials=200, vectors=128)
NUM_MODELS = 64  # of the belief
CERTAIN = 0.5  # spread of a belief's models, in proportion to that of the prior's


class SolvedSimulators(eqx.Module):
    """What the policies of each simulator are worth in it, and how one tells which a model is like."""

    policies: Policies
    steps: Transition  # some that simulators made
    log_p: Float[Array, "J steps"]  # of these, in each simulator
    spread: float = eqx.field(static=True)  # of the prior

    def nearest(self, key: Key[Array, ""], gba: GBAPOMDP, belief: Particles) -> Int[Array, ""]:
        """The simulator that is most like what the belief expects; NONE where it is not certain enough."""
        key_i, key_D = jr.split(key)
        i = systematic_indices(key_i, belief.weights, NUM_MODELS).astype(jnp.int32)
        epsilons = gba.models.draw(jr.split(key_D, NUM_MODELS), belief.states.theta, i)

        def of_one(i: Int[Array, ""], epsilon: PyTree) -> Float[Array, " steps"]:
            return log_p_of(gba.models.dynamics(belief.states.theta, i, epsilon), self.steps)

        log_p = jax.vmap(of_one)(i, epsilons)
        expected = expected_log_p(log_p)
        nearest = jnp.argmin(jnp.sum((self.log_p - expected[None]) ** 2, axis=1)).astype(jnp.int32)
        return jnp.where(spread_of(log_p) <= CERTAIN * self.spread, nearest, NONE)


def log_p_of(D: Dynamics, steps: Transition) -> Float[Array, " steps"]:
    return jnp.maximum(jax.vmap(D.log_prob)(*steps), LEAST_LOG_P)


def expected_log_p(log_p: Float[Array, "models steps"]) -> Float[Array, " steps"]:
    """log E[p]."""
    return jax.nn.logsumexp(log_p, axis=0) - np.log(log_p.shape[0])


def spread_of(log_p: Float[Array, "models steps"]) -> Float[Array, ""]:
    """Root mean square distance of models from what is expected."""
    return jnp.sqrt(jnp.mean((log_p - expected_log_p(log_p)[None]) ** 2))


def solved_simulators(how: TreeOfBeliefs, pomdp: POMDP) -> SolvedSimulators | None:
    """So many simulators of the prior as the planner asks for."""
    if not how.num_solved:
        return None
    if how.simulator is None:
        raise cannot("the domain has no `sample_simulator`")
    if pomdp.num_states > MOST_STATES or not is_solved(pomdp):
        raise cannot(f"{pomdp.num_states:,} states with {pomdp.num_observations:,} observations are too many")
    try:
        chosen, steps, log_p, spread = most_unlike(how.num_solved, how.simulator, pomdp)
    except NotImplementedError:
        raise cannot("they are black boxes, which do not tell probabilities") from None
    models = [model_of(pomdp, D) for D in chosen]
    horizon = effective_depth(pomdp.discount, pomdp.horizon)
    policies = lasting_policies(models, horizon) if is_long(pomdp) else policies_by_steps(models, horizon)
    return SolvedSimulators(policies, steps, log_p, spread)


def cannot(because: str) -> UserError:
    return UserError(
        f"The simulators of this domain cannot be solved: {because}. Leave out --planner.num-solved."
    )


def model_of(pomdp: POMDP, D: Dynamics) -> SparseModel:
    """A simulator's tables for the solver."""
    gba = GBAPOMDP(pomdp, Known(D))
    tables = known_tables(gba)
    if tables is None or tables.O.ndim != 4:
        raise cannot("what is observed depends on the state before the step, or its tables are too large")
    return sparse(gba, tables)


def most_unlike(
    number: int, simulator: Simulator, pomdp: POMDP
) -> tuple[list[Dynamics], Transition, Float[Array, "J steps"], float]:
    """Some simulators of the prior, some steps, log p of these in each simulator, and the prior's spread.

    The first is the one in the middle, and each other one that which is furthest from those before it. The
    distance of two is the root mean square of the difference of log p, over the steps.
    """
    drawn, steps, found = _log_probabilities(simulator, pomdp)
    log_p = np.asarray(found, np.float64)
    away = lambda x: np.sqrt(np.mean((log_p - x) ** 2, axis=1))
    chosen = [int(np.argmin(away(log_p.mean(axis=0))))]
    nearest = away(log_p[chosen[0]])
    while len(chosen) < number and nearest.max() > SAME:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, away(log_p[chosen[-1]]))
    simulators = [jax.tree.map(lambda x, m=m: x[m], drawn) for m in chosen]
    return simulators, steps, jnp.asarray(log_p[chosen], float), float(spread_of(found))


@eqx.filter_jit
def _log_probabilities(
    simulator: Simulator, pomdp: POMDP
) -> tuple[Dynamics, Transition, Float[Array, "M steps"]]:
    """Simulators, a few steps of each, and log p of all of these in each of them."""
    keys_D, keys_s, keys_a, keys_step = jr.split(prng.key(1), 4)
    drawn = jax.vmap(simulator)(jr.split(keys_D, NUM_DRAWN))
    s = jnp.asarray(all_vectors(pomdp.state_sizes))[jr.randint(keys_s, (NUM_STEPS,), 0, pomdp.num_states)]
    a = jr.randint(keys_a, (NUM_STEPS,), 0, pomdp.num_actions, jnp.int32)
    some = jax.tree.map(lambda x: x[jnp.arange(NUM_STEPS) % NUM_DRAWN], drawn)
    step = lambda D, key, s, a: D.step(key, s, a)
    steps = Transition(s, a, *jax.vmap(step)(some, jr.split(keys_step, NUM_STEPS), s, a))
    return drawn, steps, jax.vmap(lambda D: log_p_of(D, steps))(drawn)


def lasting_policies(models: list[SparseModel], horizon: int) -> Policies:
    """Policies that go on for ever. With h steps left one earns as much, less at most what the best of all
    states is worth, gamma^h later."""
    most = max(0.0, *(float(np.max(fast_informed_bound(model))) for model in models))  # when it has ended: 0
    later = most * models[0].discount ** np.arange(horizon + 1)
    alphas = [stored_solution(model, BUDGET).alphas for model in models]
    return Policies(jnp.asarray(_rows(alphas)[None], float), jnp.asarray(later, float), len(models))


def policies_by_steps(models: list[SparseModel], horizon: int) -> Policies:
    """Policies for 0, 1, ..., `horizon` steps left."""
    solutions = [stored_solution(model, BUDGET, horizon) for model in models]
    nothing = [np.zeros((1, model.num_states)) for model in models]
    layers = [nothing, *([x.alphas[x.steps_left == h] for x in solutions] for h in range(1, horizon + 1))]
    most = max(len(alphas) for layer in layers for alphas in layer)
    found = np.stack([_rows(layer, most) for layer in layers])
    return Policies(jnp.asarray(found, float), jnp.zeros((horizon + 1,)), len(models))


def _rows(alphas: list[np.ndarray], most: int = 0) -> Float[np.ndarray, "J_S N"]:
    """The vectors of several models as columns, one model's states after another's. Where a model has fewer,
    its first one stands again."""
    most = max(most, *map(len, alphas))
    return np.concatenate([np.concatenate([x, np.repeat(x[:1], most - len(x), axis=0)]).T for x in alphas])
