"""Do a posterior, a planner and a filter keep their promises? Values, in sentences: `baddr check`.

Each is tried on a domain; all draws come from one fixed seed, so it passes always, or never.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key

from baddr import exact, prng
from baddr.agents.base import made_for
from baddr.agents.check import (
    LEARN,
    PLAN,
    STRUCTURE,
    UPDATE,
    filter_structure,
    planner_structure,
    posterior_structure,
)
from baddr.core.belief_update import initial_belief
from baddr.core.filters import Filter
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner
from baddr.core.posterior import Posterior, Theta, sample
from baddr.domains import tiger
from baddr.domains.check import some_posterior
from baddr.domains.domain import Domain
from baddr.domains.probabilities import STEPS, TOLERANCE, WALKERS, probabilities_of, walk
from baddr.domains.shapes import SEED, Problems, differ, short, undetermined
from baddr.life.run import is_finite
from baddr.posteriors import Counts, Dirichlet

RUNS, NUM_PARTICLES = 4, 64  # that a planner is shown
SEEDS = 16  # of beliefs that are compared with the exact one
NUM_KEYS = 16  # of a random U, over which its predictions are averaged
MOST_HISTORIES = 1000  # that the update criterion is looked at for
HEARD = tuple((tiger.LISTEN, o) for o in (0, 0, 1))  # before a belief is compared with the exact one
OPENED = ((0, tiger.NULL),)  # the tiger goes anywhere: here an update is random
BIAS = 0.02  # that a filter may have, beside the error of its draws

Check = Callable[[Any, Domain], Problems]


def problems(group: str, settings: Any, domain: Domain) -> tuple[list[str], list[str]]:
    """All that is wrong with the posterior, planner or filter that some settings stand for; and what was
    measured of it."""
    if group == "planner":
        return planner_problems(made_for(domain, settings), domain), []
    if group == "filter":
        return filter_problems(made_for(tiger.make_domain(), settings)), []
    posterior = settings.build(domain)
    return posterior_problems(posterior, domain), [_measured(settings, domain)]


def _measured(settings: Any, domain: Domain) -> str:
    """The gap of the update criterion, in words: on the domain, or on tiger where that is too large."""
    for where in (domain, tiger.make_domain()):
        try:
            found = criterion_gap(settings.build(where), where)
        except Exception as error:
            return f"not measured: the update criterion (Def. 3), which raised {short(error)}"
        if found is not None:
            gap, depth = found
            return (
                f"measured: the update criterion (Def. 3). On {where.name}, with its counts as the prior, "
                f"predictions differ from Bayes' rule by up to {gap:.2g} within {depth} steps"
            )
    return "not measured: the update criterion (Def. 3)"


def posterior_problems(posterior: Any, domain: Domain) -> list[str]:
    """All that is wrong with a posterior on a domain."""
    structure = posterior_structure(posterior, domain.pomdp)
    return structure or _found(POSTERIOR_CHECKS, posterior, domain)


def planner_problems(planner: Any, domain: Domain, posterior: Posterior | None = None) -> list[str]:
    """All that is wrong with a planner on a domain, which plans with a posterior that the domain has."""
    gba = GBAPOMDP(domain.pomdp, posterior or some_posterior(domain))
    structure = planner_structure(planner, gba)
    return structure or _found(PLANNER_CHECKS, (planner, gba), domain)


def filter_problems(filter: Any) -> list[str]:
    """All that is wrong with a filter, on tiger, where the exact belief is known."""
    structure = filter_structure(filter, _counted_tiger())
    return structure or _found(FILTER_CHECKS, filter, tiger.make_domain())


def _found(checks: Sequence[Check], value: Any, domain: Domain) -> list[str]:
    wrong: list[str] = []
    for check in checks:
        try:
            wrong += check(value, domain)
        except Exception as error:
            wrong.append(f"the check of {inspect.getdoc(check)} raised {short(error)}")
    return wrong


# --- a posterior ---------------------------------------------------------------------------------------


def _determined_posterior(posterior: Posterior, domain: Domain) -> Problems:
    """posterior: the arguments of its methods determine what they return"""
    steps, keys = walk(domain.pomdp), jr.split(prng.key(SEED), WALKERS)
    thetas = jax.vmap(posterior.prior)(keys)
    given = tuple(jnp.asarray(x[:WALKERS]) for x in (steps.s, steps.a, steps.s_next, steps.o))
    step = lambda key, theta, s, a: sample(posterior, key, theta).step(key, s, a)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "prior(key)": (posterior.prior, (keys,)),
        "draw(key, theta)": (posterior.draw, (keys, thetas)),
        "dynamics(theta, epsilon).step(key, s, a)": (step, (keys, thetas, *given[:2])),
        LEARN: (posterior.update, (keys, thetas, *given)),
    }
    for name, (f, x) in functions.items():
        yield from undetermined(name, jax.vmap(f), x)


def _probable_models(posterior: Posterior, domain: Domain) -> Problems:
    """dynamics: probabilities sum to one, agree with each other, and are those that step draws with"""
    key_prior, key_D = jr.split(prng.key(SEED))
    D = sample(posterior, key_D, posterior.prior(key_prior))
    yield from probabilities_of("dynamics(theta_0, epsilon)", D, domain.pomdp)


def _learned_models(posterior: Posterior, domain: Domain) -> Problems:
    """update: leaves theta finite, and dynamics as before, in 64 steps of a random walk"""
    steps = walk(domain.pomdp)
    transitions = tuple(jnp.asarray(x[:STEPS]) for x in (steps.s, steps.a, steps.s_next, steps.o))
    key_prior, key_D, key_U = jr.split(prng.key(SEED), 3)

    @jax.jit
    def learned(keys: Key[Array, " steps"]) -> Theta:
        learn = lambda theta, x: (posterior.update(x[0], theta, *x[1]), None)
        start = jax.tree.map(jnp.asarray, posterior.prior(key_prior))
        return jax.lax.scan(learn, start, (keys, transitions))[0]

    theta = learned(jr.split(key_U, STEPS))
    stacked = jax.tree.map(lambda x: x[None], theta)
    if not bool(is_finite(Particles(AugmentedState(jnp.zeros((1, 1), jnp.int32), stacked), jnp.zeros((1,))))):
        yield f"{LEARN} leaves a NaN or an infinity in theta within {STEPS} steps of a random walk"
        return
    name = f"dynamics(theta, epsilon) after {STEPS} updates"
    yield from probabilities_of(name, sample(posterior, key_D, theta), domain.pomdp)


def criterion_gap(posterior: Posterior, domain: Domain) -> tuple[float, int] | None:
    """How far U is from Bayes' rule with the domain's counts for a prior (Def. 3): the largest difference of
    a predicted probability, after all full histories of so many steps. None: that is too much to look at.

    It is measured, not judged: networks meet the criterion only roughly, and another prior than the domain's
    counts has a gap from the start.
    """
    pomdp = domain.pomdp
    shape = pomdp.num_states, pomdp.num_actions, pomdp.num_observations
    keys = NUM_KEYS if _is_random(posterior) else 1
    each = lambda depth: shape[0] * math.prod(shape) ** depth * keys
    depths = [depth for depth in (2, 1) if each(depth) <= MOST_HISTORIES]
    if not isinstance(domain.counts, Counts) or not depths:
        return None
    bayes = exact.DirichletTables(np.asarray(domain.counts.T), np.asarray(domain.counts.O))
    ours = exact.Tabulated(posterior, pomdp, keys)
    histories = exact.full_histories(shape, depths[0])
    return exact.update_criterion_gap(ours, bayes.evidence, histories), depths[0]


def _is_random(posterior: Posterior) -> bool:
    """Whether its prior or its draws depend on a key."""
    thetas = [posterior.prior(key) for key in jr.split(prng.key(SEED))]
    return differ(*thetas) or bool(jax.tree.leaves(posterior.draw(prng.key(SEED), thetas[0])))


# --- a planner -----------------------------------------------------------------------------------------

Planning = tuple[Planner, GBAPOMDP]


def _plans(planning: Planning) -> Callable[..., Plan]:
    """The plans of some runs, as a function of their keys and their order. The first half of them have a
    whole episode left, and the others one step."""
    planner, gba = planning
    steps_left = jnp.array([gba.horizon] * (RUNS // 2) + [1] * (RUNS - RUNS // 2), jnp.int32)

    def plans(keys: Key[Array, " runs"], order: Int[Array, " runs"]) -> Plan:
        belief = jax.vmap(lambda key: initial_belief(key, gba, NUM_PARTICLES))(keys)
        keys, belief, left = jax.tree.map(lambda x: x[order], (keys, belief, steps_left))
        return planner.plan(keys, gba, belief, left, jnp.ones(order.shape, bool))

    return plans


IN_ORDER = np.arange(RUNS, dtype=np.int32)


def _plan_values(planning: Planning, domain: Domain) -> Problems:
    """planner: visits are not negative, some action has visits, and the values of visited actions are
    finite"""
    plan = jax.tree.map(np.asarray, jax.jit(_plans(planning))(jr.split(prng.key(SEED), RUNS), IN_ORDER))
    if not np.all(plan.N >= 0):
        yield f"plan.N must not be negative (or NaN): {float(plan.N[~(plan.N >= 0)][0])}"
    elif not np.all(np.any(plan.N > 0, axis=1)):
        yield "plan.N is 0 for all actions: only actions with visits can be chosen, so one must have some"
    elif not np.all(np.isfinite(plan.Q[plan.N > 0])):
        wrong = plan.Q[(plan.N > 0) & ~np.isfinite(plan.Q)][0]
        yield f"plan.Q must be finite for actions with visits, not {float(wrong)}"
    if np.any(plan.num_nodes < 0) or np.any(plan.num_steps < 0):
        yield "plan.num_nodes and plan.num_steps must not be negative"


def _determined_plan(planning: Planning, domain: Domain) -> Problems:
    """planner: a run's plan depends on its key, its belief and the steps left, and on no other run"""
    keys, plans = jr.split(prng.key(SEED), RUNS), _plans(planning)
    yield from undetermined(PLAN, plans, (keys, IN_ORDER))
    program = jax.jit(plans)
    turned = jax.tree.map(lambda x: x[::-1], program(keys, IN_ORDER[::-1]))
    if differ(program(keys, IN_ORDER), turned):
        yield f"{PLAN}: the plan of a run depends on its place in the batch"


# --- a filter ------------------------------------------------------------------------------------------


def _counted_tiger() -> GBAPOMDP:
    domain = tiger.make_domain()
    return GBAPOMDP(domain.pomdp, Dirichlet(domain.counts, *tiger.SIZES))  # type: ignore[arg-type]


def _updated(
    filter: Filter, history: exact.History, active: bool = True
) -> Callable[[Key[Array, ""]], tuple[Particles, Particles]]:
    """A belief before and after a history, as a function of the key."""
    gba, yes = _counted_tiger(), jnp.array(True)

    def updated(key: Key[Array, ""]) -> tuple[Particles, Particles]:
        keys = jr.split(key, 1 + len(history))
        after = before = initial_belief(keys[0], gba, filter.num_particles)
        for i, (a, o) in enumerate(history):  # not a scan, which would trace an update once for all
            seen = jnp.array([o], jnp.int32)
            after, _ = filter.update(keys[1 + i], gba, after, jnp.int32(a), seen, yes, jnp.array(active))
        return before, after

    return updated


def _weights(filter: Filter, domain: Domain) -> Problems:
    """filter: weights sum to one, and a belief that is not active stays as it is"""
    _, after = jax.jit(_updated(filter, HEARD))(prng.key(SEED))
    total = float(jnp.sum(after.weights))
    if not abs(total - 1) <= TOLERANCE:
        yield f"{UPDATE}: the weights of the next belief sum to {total:.6g}, not to 1"
    if differ(*jax.jit(_updated(filter, HEARD + OPENED, active=False))(prng.key(SEED))):
        yield f"{UPDATE} changes a belief that is not active"


def _determined_update(filter: Filter, domain: Domain) -> Problems:
    """filter: its arguments determine the next belief"""
    yield from undetermined(UPDATE, _updated(filter, HEARD + OPENED), (prng.key(SEED),))


def _towards_exact(filter: Filter, domain: Domain) -> Problems:
    """filter: close to the exact belief of tiger, on average over seeds, after three listens"""
    bayes = exact.DirichletTables(*(np.asarray(x) for x in domain.counts))  # type: ignore[union-attr]
    mixture = exact.initial_mixture(bayes, np.full(2, 0.5))
    for a, o in HEARD:
        mixture, _ = exact.mixture_update(bayes, mixture, a, o)
    p = float(exact.state_probabilities(mixture)[0])
    _, after = jax.jit(jax.vmap(_updated(filter, HEARD)))(jr.split(prng.key(SEED), SEEDS))
    left = float(jnp.mean(jnp.sum(jnp.where(after.states.s[..., 0] == 0, after.weights, 0), axis=1)))
    # Four standard errors of so many independent draws, none of which has a deviation above 1/2.
    bound = BIAS + 4 * 0.5 / math.sqrt(SEEDS * filter.num_particles)
    if not abs(left - p) <= bound:
        yield (
            f"{UPDATE}: after hearing left, left and right, the tiger is left with probability {left:.3f} "
            f"(mean over {SEEDS} beliefs of {filter.num_particles} particles); the exact value is {p:.3f}, "
            "and "
            f"the difference may be at most {bound:.3f}"
        )


POSTERIOR_CHECKS: tuple[Check, ...] = (_determined_posterior, _probable_models, _learned_models)
PLANNER_CHECKS: tuple[Check, ...] = (_plan_values, _determined_plan)
FILTER_CHECKS: tuple[Check, ...] = (_weights, _determined_update, _towards_exact)


def checked(group: str) -> list[str]:
    """What is looked at, in words."""
    checks = {"posterior": POSTERIOR_CHECKS, "planner": PLANNER_CHECKS, "filter": FILTER_CHECKS}[group]
    return [inspect.getdoc(check) or "" for check in (STRUCTURE[group], *checks)]
