"""The life of one run: plan, act, update the belief, learn; step after step, episode after episode.

`start` and `step` are all of it; `record` has what they leave for readers. `fast.runs` has the same for
thousands of runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.agent import Agent
from baddr.core.belief_update import Info, select
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.planner import Plan, best_action
from baddr.core.pomdp import POMDP
from baddr.core.rejuvenation import Moves
from baddr.life.record import (
    Step,
    Tally,
    empty_tally,
    no_sights,
    num_living,
    own_roots,
    since_move,
    state_marginals,
    tallied,
    with_sights,
)


class Remembered(NamedTuple):
    """What a run remembers beside its belief."""

    history: PyTree = ()  # for rejuvenation
    # Of each particle: which of those that the run started with, or moved last, it descends from. Nothing
    # where the filter does not tell.
    roots: Int[Array, "*runs n"] | tuple[()] = ()


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
    memory: Remembered = Remembered()
    sights: dict[str, Int[Array, "*runs _"]] = {}  # noqa: RUF012  # steps so far that showed each entry


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


def start(key: Key[Array, ""], agent: Agent, world: POMDP) -> Run:
    """A run before its first step. Its stream of random numbers depends on its key alone."""
    key_belief, key_s = jr.split(jr.fold_in(key, 0))
    zero = jnp.int32(0)
    belief = agent.initial_belief(key_belief)
    s, tally = world.initial_state(key_s), empty_tally(agent)
    prepared = agent.prepare(jr.fold_in(key_belief, 1), belief)
    moves = agent.rejuvenation
    history = () if moves is None else moves.empty()
    memory = Remembered(history, own_roots(agent))
    return Run(key, zero, zero, s, belief, tally, jnp.array(False), prepared, memory, no_sights(agent, world))


def step(run: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
    """A real step, unless the run has failed or has ended its `num_episodes` episodes."""
    active = (run.episode < num_episodes) & ~run.failed
    keys = step_keys(run.key, run.episode, run.t)
    alone = lambda tree: jax.tree.map(lambda x: x[None], tree)
    given = alone((keys.plan, run.belief, world.horizon - run.t, active, run.prepared))
    plan = jax.tree.map(lambda x: x[0], agent.plan(*given))
    outcome = act(world, keys, run.s, plan)
    last = active & (outcome.terminal | (run.t + 1 >= world.horizon))
    mind, seen = learn(agent, (run.belief, run.memory), keys, outcome, last, active, run.prepared)
    run = run._replace(belief=mind[0], memory=mind[1])
    after, record = move(agent, world, run, outcome, plan, seen, last, active)
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
    moves: Moves | None = None
    distinct_ancestors: Int[Array, ""] | None = None


def masked(
    function: Callable[..., Any], needed: Bool[Array, ""], *arguments: PyTree, few: bool = False
) -> Any:
    """What the function gives, or zeros where it is not needed; `few` runs at a time need it, or all."""
    return jax.tree.map(lambda x: jnp.where(needed, x, 0), function(*arguments))


Mind = tuple[Particles, Remembered]  # what a run believes, and what it remembers


def learn(
    agent: Agent,
    mind: Mind,
    keys: StepKeys,
    outcome: Outcome,
    last: Bool[Array, ""],
    active: Bool[Array, ""],
    prepared: PyTree,
    where: Callable[..., Any] = masked,
) -> tuple[Mind, Seen]:
    """One run's belief after a step; the next episode's prior after the `last` one."""
    belief, memory = mind
    a, o, terminal, r = outcome.a, outcome.o, outcome.terminal, outcome.r
    belief, info = agent.update(keys.update, belief, a, o, terminal, active, r)
    failed = ~is_finite(belief)
    ended = last & ~failed
    moves, left = None, None
    if agent.rejuvenation is not None:
        history = remembered(agent, memory.history, outcome, info, active)
        key = jr.fold_in(keys.update, 1)
        (belief, history), moves = agent.rejuvenation.rejuvenate(key, belief, history, ended, where)
        memory = memory._replace(history=history)
    if isinstance(memory.roots, Array):
        roots = memory.roots[info.ancestors]
        roots = roots if moves is None else since_move(roots, moves)
        memory, left = memory._replace(roots=roots), num_living(roots, belief)
    model = {}
    if agent.describe is not None:
        describe, posterior = agent.describe, agent.gba.posterior
        about = lambda key, belief: describe(key, posterior, belief)
        model = where(about, ended | agent.trace, keys.model, belief)
    state = state_marginals(belief, agent.gba.state_sizes) if agent.trace else []
    belief = next_if(ended, agent, keys.next_episode, belief, where)
    if jax.tree.leaves(prepared):
        prepare = lambda key, belief: agent.prepare(key, belief)  # a method would have to be hashable
        prepared = select(ended, where(prepare, ended, jr.fold_in(keys.plan, 1), belief), prepared)
    info = info._replace(ancestors=None)  # nobody reads it from here on
    return (belief, memory), Seen(info, failed, model, state, prepared, moves, left)


def remembered(
    agent: Agent, history: PyTree, outcome: Outcome, info: Info, active: Bool[Array, ""]
) -> PyTree:
    """What the run remembers for its moves, after a step."""
    assert agent.rejuvenation is not None
    learned = ~info.impossible & (agent.filter.learn_terminal | ~outcome.terminal)
    survivors = info.distinct_ancestors / agent.filter.num_particles
    given = outcome.a, outcome.o, outcome.terminal
    return agent.rejuvenation.remember(history, given, learned, survivors, active)


def next_if(
    ended: Bool[Array, ""], agent: Agent, key: Key[Array, ""], belief: Particles, where: Callable[..., Any]
) -> Particles:
    """The next episode's prior where the episode has `ended`, otherwise the belief."""
    # Moves may sort particles at an episode's start: where none has ended, that is not done for nothing.
    anew = lambda *given: agent.next_episode(*given)
    fresh = anew(key, belief) if agent.rejuvenation is None else where(anew, ended, key, belief)
    (s, theta), new = belief.states, fresh.states
    if new.theta is not theta:  # models that stay are not selected: that would read all of them again
        theta = select(ended, new.theta, theta)
    s, log_weights = select(ended, (new.s, fresh.log_weights), (s, belief.log_weights))
    return Particles(AugmentedState(s, theta), log_weights)


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
    tally = tallied(run.tally, world.discount, run.t, outcome.r, plan, seen.info, seen.moves)
    ended = last & ~seen.failed
    on = run._replace(
        t=run.t + 1,
        s=outcome.s_next,
        tally=tally,
        failed=run.failed | seen.failed,
        prepared=seen.prepared,
        sights=with_sights(agent, run.sights, (run.s, outcome.a, outcome.s_next, outcome.o)),
    )
    empty = empty_tally(agent)
    next_ = on._replace(episode=run.episode + 1, t=jnp.int32(0), s=outcome.first, tally=empty)
    belief, memory, rest = run.belief, run.memory, lambda run: run._replace(belief=(), memory=())
    after = select(active, select(ended, rest(next_), rest(on)), rest(run))
    after = after._replace(belief=belief, memory=memory)
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
        distinct_ancestors=seen.distinct_ancestors,
        sights=on.sights,
    )
    return after, record


def is_finite(belief: Particles) -> Bool[Array, ""]:
    """No NaN or infinity in theta, no NaN in the weights (a weight of zero is fine).

    A product with tiny numbers is finite where all of theta is: one pass, for which nothing is compiled.
    """
    leaves = jax.tree.leaves(belief.states.theta)
    rows = [x.reshape(x.shape[0], -1) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    sums = [x @ jnp.full(x.shape[1:], 1e-30, x.dtype) for x in rows]
    return jnp.all(jnp.isfinite(sum(sums, jnp.exp(belief.log_weights))))
