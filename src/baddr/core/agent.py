"""The agent and its life: plan, act, update the belief, learn; step after step, episode after episode.

`start` and `step` are the life of one run. `fast.runs` has the same for thousands of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.belief_update import Info, initial_belief, next_episode, select
from baddr.core.filters import Filter
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, mass_of
from baddr.core.planner import Plan, Planner, PreparedPlanner, best_action
from baddr.core.pomdp import POMDP, Action, Observation, Scalar
from baddr.core.posterior import Posterior

# Columns about the belief over models.
Describe = Callable[[Key[Array, ""], Posterior, Particles], dict[str, Array]]


class Agent(eqx.Module):
    """A GBA-POMDP, a belief update and a planner. What is chosen about a planner (`PoUct()`) will do for
    one."""

    gba: GBAPOMDP
    filter: Filter = eqx.field(static=True)
    planner: Planner
    describe: Describe | None = eqx.field(static=True)
    trace: bool = eqx.field(static=True)  # keep the belief after every step

    def __init__(
        self,
        gba: GBAPOMDP,
        filter: Filter,
        planner: Any,
        describe: Describe | None = None,
        trace: bool = False,
    ):
        self.gba, self.filter, self.describe, self.trace = gba, filter, describe, trace
        self.planner = planner if isinstance(planner, Planner) else planner.build()

    def initial_belief(self, key: Key[Array, ""]) -> Particles:
        own = getattr(self.filter, "initial_belief", None)  # of a filter without particles
        return own(key, self.gba) if own else initial_belief(key, self.gba, self.filter.num_particles)

    def next_episode(self, key: Key[Array, ""], belief: Particles) -> Particles:
        return getattr(self.filter, "next_episode", next_episode)(key, self.gba, belief)

    def prepare(self, key: Key[Array, ""], belief: Particles) -> PyTree:
        """What the planner works out before an episode; most have nothing to."""
        planner = self.planner
        return planner.prepare(key, self.gba, belief) if isinstance(planner, PreparedPlanner) else ()

    def plan(
        self,
        keys: Key[Array, " runs"],
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
        prepared: PyTree = None,
    ) -> Plan:
        """The plan of each run from its belief; what was not `prepared` is worked out now."""
        active = jnp.ones(keys.shape, bool) if active is None else active
        planner, given = self.planner, (keys, self.gba, belief, steps_left, active)
        if prepared is not None and isinstance(planner, PreparedPlanner):
            return planner.plan_prepared(*given, prepared)
        return planner.plan(*given)

    def update(
        self,
        key: Key[Array, ""],
        belief: Particles,
        a: Action,
        o: Observation,
        terminal: Bool[Array, ""] | bool = False,
        active: Bool[Array, ""] | bool = True,
    ) -> tuple[Particles, Info]:
        """tau(b, a, o), learning included; where not `active`, b."""
        learn = jnp.asarray(self.filter.learn_terminal) | ~jnp.asarray(terminal)
        return self.filter.update(key, self.gba, belief, a, o, learn, active)


class Tally(NamedTuple):
    """What an episode adds up to: its returns, and how its beliefs and plans fared."""

    return_: Float[Array, "*runs"]
    discounted_return: Float[Array, "*runs"]
    simulated_steps: Int[Array, "*runs"]
    min_effective_sample_size: Float[Array, "*runs"]
    min_distinct_ancestors: Int[Array, "*runs"]
    resamplings: Int[Array, "*runs"]
    filled_particles: Int[Array, "*runs"]
    impossible_observations: Int[Array, "*runs"]


class Run(NamedTuple):
    """Where a run stands: all that its next step needs."""

    key: Key[Array, "*runs"]
    episode: Int[Array, "*runs"]
    t: Int[Array, "*runs"]
    s: PyTree  # of the world
    belief: Particles
    tally: Tally
    failed: Bool[Array, "*runs"]  # its belief holds a NaN: the run stops here
    prepared: PyTree = ()  # by the planner, for this episode


class Step(NamedTuple):
    """What one real step of each run leaves for readers; `tally` is whole where `ended`."""

    active: Bool[Array, "*runs"]
    episode: Int[Array, "*runs"]
    t: Int[Array, "*runs"]
    a: Int[Array, "*runs"]
    o: Int[Array, "*runs observation_features"]
    r: Float[Array, "*runs"]
    plan: Plan
    ended: Bool[Array, "*runs"]
    failed: Bool[Array, "*runs"]
    tally: Tally
    model: dict[str, Array]  # of the belief after the step; zeros where the episode goes on
    effective_sample_size: Float[Array, "*runs"]
    state: list[Float[Array, "*runs _"]]  # with `trace`: the marginals of the state's features
    world: tuple[PyTree, ...]  # with `trace`: the world's s and s'


class StepKeys(NamedTuple):
    """Of one real step, for all that is random in it."""

    plan: Key[Array, "*runs"]
    action: Key[Array, "*runs"]
    world: Key[Array, "*runs"]
    first: Key[Array, "*runs"]  # state of the next episode
    update: Key[Array, "*runs"]
    next_episode: Key[Array, "*runs"]  # its belief
    model: Key[Array, "*runs"]


def step_keys(key: Key[Array, ""], episode: Int[Array, ""], t: Int[Array, ""]) -> StepKeys:
    key = jr.fold_in(jr.fold_in(key, 1 + episode), t)
    return StepKeys(*jr.split(key, len(StepKeys._fields)))


# The life of one run.


def start(key: Key[Array, ""], agent: Agent, world: POMDP) -> Run:
    """A run before its first step. Its stream of random numbers depends on its key alone."""
    key_belief, key_s = jr.split(jr.fold_in(key, 0))
    zero = jnp.int32(0)
    belief = agent.initial_belief(key_belief)
    s, tally = world.initial_state(key_s), empty_tally(belief.num_particles)
    prepared = agent.prepare(jr.fold_in(key_belief, 1), belief)
    return Run(key, zero, zero, s, belief, tally, jnp.array(False), prepared)


def step(run: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
    """A real step, unless the run has failed or has ended its `num_episodes` episodes."""
    active = (run.episode < num_episodes) & ~run.failed
    keys = step_keys(run.key, run.episode, run.t)
    alone = lambda tree: jax.tree.map(lambda x: x[None], tree)
    given = alone((keys.plan, run.belief, world.horizon - run.t, active, run.prepared))
    plan = jax.tree.map(lambda x: x[0], agent.plan(*given))
    outcome = act(world, keys, run.s, plan)
    last = active & (outcome.terminal | (run.t + 1 >= world.horizon))
    belief, seen = learn(agent, run.belief, keys, outcome, last, active, run.prepared)
    after, record = move(agent, world, run._replace(belief=belief), outcome, plan, seen, last, active)
    return after, record


class Outcome(NamedTuple):
    """An action and what comes of it."""

    a: Int[Array, "*runs"]
    s_next: PyTree
    o: Int[Array, "*runs observation_features"]
    r: Float[Array, "*runs"]
    terminal: Bool[Array, "*runs"]
    first: PyTree  # where the next episode would start


def act(world: POMDP, keys: StepKeys, s: PyTree, plan: Plan) -> Outcome:
    """The best action, and the world's step."""
    a = best_action(keys.action, plan)
    s_next, o = world.step(keys.world, s, a)
    outcome = a, s_next, o, world.reward(s, a, s_next), world.is_terminal(s, a, s_next)
    return Outcome(*outcome, world.initial_state(keys.first))


class Seen(NamedTuple):
    """What one run's belief after a step tells."""

    info: Info
    failed: Bool[Array, ""]
    model: dict[str, Array]
    state: list[Float[Array, " values"]]  # with `trace`
    prepared: PyTree  # for the episode that this step is in, or that comes next


def masked(function: Callable[..., Any], needed: Bool[Array, ""], *arguments: PyTree) -> Any:
    """What the function gives, or zeros where it is not needed."""
    return jax.tree.map(lambda x: jnp.where(needed, x, 0), function(*arguments))


def learn(
    agent: Agent,
    belief: Particles,
    keys: StepKeys,
    outcome: Outcome,
    last: Bool[Array, ""],
    active: Bool[Array, ""],
    prepared: PyTree,
    where: Callable[..., Any] = masked,
) -> tuple[Particles, Seen]:
    """One run's belief after a step; the next episode's prior after the `last` one."""
    belief, info = agent.update(keys.update, belief, outcome.a, outcome.o, outcome.terminal, active)
    failed = ~is_finite(belief)
    model, ended = {}, last & ~failed
    if agent.describe is not None:
        describe, posterior = agent.describe, agent.gba.posterior
        about = lambda key, belief: describe(key, posterior, belief)
        model = where(about, ended | agent.trace, keys.model, belief)
    state = state_marginals(belief, agent.gba.state_sizes) if agent.trace else []
    fresh = agent.next_episode(keys.next_episode, belief)
    (s, theta), new = belief.states, fresh.states
    if new.theta is not theta:  # models that stay are not selected: that would read all of them again
        theta = select(ended, new.theta, theta)
    s, log_weights = select(ended, (new.s, fresh.log_weights), (s, belief.log_weights))
    after = Particles(AugmentedState(s, theta), log_weights)
    if jax.tree.leaves(prepared):
        prepare = lambda key, belief: agent.prepare(key, belief)  # a method would have to be hashable
        prepared = select(ended, where(prepare, ended, jr.fold_in(keys.plan, 1), after), prepared)
    return after, Seen(info, failed, model, state, prepared)


def move(
    agent: Agent,
    world: POMDP,
    run: Run,
    outcome: Outcome,
    plan: Plan,
    seen: Seen,
    last: Bool[Array, ""],
    active: Bool[Array, ""],
) -> tuple[Run, Step]:
    """Where one run stands after a step, and the step's record."""
    tally = _add(run.tally, world.discount, run.t, outcome.r, plan, seen.info)
    ended = last & ~seen.failed
    on = run._replace(
        t=run.t + 1,
        s=outcome.s_next,
        tally=tally,
        failed=run.failed | seen.failed,
        prepared=seen.prepared,
    )
    empty = empty_tally(agent.filter.num_particles)
    next_ = on._replace(episode=run.episode + 1, t=jnp.int32(0), s=outcome.first, tally=empty)
    belief, rest = run.belief, lambda run: run._replace(belief=())
    after = select(active, select(ended, rest(next_), rest(on)), rest(run))._replace(belief=belief)
    record = Step(
        active=active,
        episode=run.episode,
        t=run.t,
        a=outcome.a,
        o=outcome.o,
        r=outcome.r,
        plan=plan,
        ended=ended,
        failed=active & seen.failed,
        tally=tally,
        model=seen.model,
        effective_sample_size=seen.info.effective_sample_size,
        state=seen.state,
        world=(run.s, outcome.s_next) if agent.trace else (),
    )
    return after, record


def state_marginals(belief: Particles, sizes: tuple[int, ...]) -> list[Float[Array, " values"]]:
    """p(s_i = .) for each feature i of the state."""
    s = belief.states.s
    return [mass_of(s[:, i], belief.weights, size) for i, size in enumerate(sizes)]


def empty_tally(num_particles: int) -> Tally:
    zero, n = jnp.int32(0), jnp.int32(num_particles)
    return Tally(jnp.float32(0), jnp.float32(0), zero, jnp.float32(num_particles), n, zero, zero, zero)


def _add(tally: Tally, discount: float, t: Int[Array, ""], r: Scalar, plan: Plan, info: Info) -> Tally:
    return Tally(
        return_=tally.return_ + r,
        discounted_return=tally.discounted_return + jnp.float32(discount) ** t.astype(jnp.float32) * r,
        simulated_steps=tally.simulated_steps + plan.num_steps,
        min_effective_sample_size=jnp.minimum(tally.min_effective_sample_size, info.effective_sample_size),
        min_distinct_ancestors=jnp.minimum(tally.min_distinct_ancestors, info.distinct_ancestors),
        resamplings=tally.resamplings + info.resampled.astype(jnp.int32),
        filled_particles=tally.filled_particles + info.num_filled,
        impossible_observations=tally.impossible_observations + info.impossible.astype(jnp.int32),
    )


def is_finite(belief: Particles) -> Bool[Array, ""]:
    """No NaN or infinity in theta, no NaN in the weights (a weight of zero is fine).

    A product with tiny numbers is finite where all of theta is: one pass, for which nothing is compiled.
    """
    leaves = jax.tree.leaves(belief.states.theta)
    rows = [x.reshape(x.shape[0], -1) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    sums = [x @ jnp.full(x.shape[1:], 1e-30, x.dtype) for x in rows]
    return jnp.all(jnp.isfinite(sum(sums, jnp.exp(belief.log_weights))))
