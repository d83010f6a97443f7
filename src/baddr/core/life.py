"""The life of one run: plan, act, update the belief, learn; step after step, episode after episode.

`start` and `step` are all of it. `fast.runs` has the same for thousands of runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.agent import Agent
from baddr.core.belief_update import Info, num_distinct, select
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles, mass_of
from baddr.core.planner import Plan, best_action
from baddr.core.pomdp import POMDP, Scalar
from baddr.core.rejuvenation import Moves


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
    rejuvenations: Int[Array, "*runs"] | None = None  # of an agent that has them
    moved_particles: Int[Array, "*runs"] | None = None
    relabelled_particles: Int[Array, "*runs"] | None = None


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
    distinct_ancestors: Int[Array, "*runs"] | None = None  # that the belief after the step descends from
    sights: dict[str, Int[Array, "*runs _"]] = {}  # noqa: RUF012  # of the run so far


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
    (belief, (history, roots)), moves, left = mind, None, None
    o, terminal, r = outcome.o, outcome.terminal, outcome.r
    belief, info = agent.update(keys.update, belief, outcome.a, o, terminal, active, r)
    failed = ~is_finite(belief)
    model, ended = {}, last & ~failed
    if agent.rejuvenation is not None:
        learned = ~info.impossible & (agent.filter.learn_terminal | ~terminal)
        survivors = info.distinct_ancestors / agent.filter.num_particles
        history = agent.rejuvenation.remember(history, (outcome.a, o), learned, survivors, active)
        key = jr.fold_in(keys.update, 1)
        (belief, history), moves = agent.rejuvenation.rejuvenate(key, belief, history, ended, where)
    if isinstance(roots, Array):
        roots = roots[info.ancestors] if moves is None else since_move(roots[info.ancestors], moves)
        left = num_living(roots, belief)
    if agent.describe is not None:
        describe, posterior = agent.describe, agent.gba.posterior
        about = lambda key, belief: describe(key, posterior, belief)
        model = where(about, ended | agent.trace, keys.model, belief)
    state = state_marginals(belief, agent.gba.state_sizes) if agent.trace else []
    # Moves may sort particles at an episode's start: where none has ended, that is not done for nothing.
    anew, given = lambda *given: agent.next_episode(*given), (keys.next_episode, belief)
    fresh = anew(*given) if agent.rejuvenation is None else where(anew, ended, *given)
    (s, theta), new = belief.states, fresh.states
    if new.theta is not theta:  # models that stay are not selected: that would read all of them again
        theta = select(ended, new.theta, theta)
    s, log_weights = select(ended, (new.s, fresh.log_weights), (s, belief.log_weights))
    after = Particles(AugmentedState(s, theta), log_weights)
    if jax.tree.leaves(prepared):
        prepare = lambda key, belief: agent.prepare(key, belief)  # a method would have to be hashable
        prepared = select(ended, where(prepare, ended, jr.fold_in(keys.plan, 1), after), prepared)
    info = info._replace(ancestors=None)  # nobody reads it from here on
    return (after, Remembered(history, roots)), Seen(info, failed, model, state, prepared, moves, left)


def own_roots(agent: Agent) -> Int[Array, " n"] | tuple[()]:
    """Each particle is its own, where the filter tells whose children they become."""
    tells = getattr(agent.filter, "tells_ancestors", False)
    return jnp.arange(agent.filter.num_particles, dtype=jnp.int32) if tells else ()


def since_move(roots: Int[Array, " n"], moves: Moves) -> Int[Array, " n"]:
    """A move draws particles anew: from there on each descends from itself."""
    return jnp.where(moves.times > 0, jnp.arange(roots.shape[0], dtype=roots.dtype), roots)


def num_living(roots: Int[Array, " n"], belief: Particles) -> Int[Array, ""]:
    """How many different ones the particles that have a weight descend from."""
    n = roots.shape[0]
    return num_distinct(jnp.where(jnp.isneginf(belief.log_weights), n, roots), n)


def no_sights(agent: Agent, world: POMDP) -> dict[str, Int[Array, " _"]]:
    """Before the first step nothing was seen."""
    if agent.shows is None:
        return {}
    s, o = (jnp.zeros((len(sizes),), jnp.int32) for sizes in (world.state_sizes, world.observation_sizes))
    like = jax.eval_shape(agent.shows, s, jnp.int32(0), s, o)
    return {name: jnp.zeros(x.shape, jnp.int32) for name, x in like.items()}


def with_sights(agent: Agent, run: Run, outcome: Outcome) -> dict[str, Int[Array, " _"]]:
    """What the run has seen, after one more step."""
    if agent.shows is None:
        return {}
    shown = agent.shows(run.s, outcome.a, outcome.s_next, outcome.o)
    return {name: run.sights[name] + x.astype(jnp.int32) for name, x in shown.items()}


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
    tally = _add(run.tally, world.discount, run.t, outcome.r, plan, seen)
    ended = last & ~seen.failed
    on = run._replace(
        t=run.t + 1,
        s=outcome.s_next,
        tally=tally,
        failed=run.failed | seen.failed,
        prepared=seen.prepared,
        sights=with_sights(agent, run, outcome),
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


def state_marginals(belief: Particles, sizes: tuple[int, ...]) -> list[Float[Array, " values"]]:
    """p(s_i = .) for each feature i of the state."""
    s = belief.states.s
    return [mass_of(s[:, i], belief.weights, size) for i, size in enumerate(sizes)]


def empty_tally(agent: Agent) -> Tally:
    zero, n = jnp.int32(0), agent.filter.num_particles
    moves = () if agent.rejuvenation is None else (zero, zero, zero)
    return Tally(jnp.float32(0), jnp.float32(0), zero, jnp.float32(n), jnp.int32(n), zero, zero, zero, *moves)


def _add(tally: Tally, discount: float, t: Int[Array, ""], r: Scalar, plan: Plan, seen: Seen) -> Tally:
    info = seen.info
    after = tally._replace(
        return_=tally.return_ + r,
        discounted_return=tally.discounted_return + jnp.float32(discount) ** t.astype(jnp.float32) * r,
        simulated_steps=tally.simulated_steps + plan.num_steps,
        min_effective_sample_size=jnp.minimum(tally.min_effective_sample_size, info.effective_sample_size),
        min_distinct_ancestors=jnp.minimum(tally.min_distinct_ancestors, info.distinct_ancestors),
        resamplings=tally.resamplings + info.resampled.astype(jnp.int32),
        filled_particles=tally.filled_particles + info.num_filled,
        impossible_observations=tally.impossible_observations + info.impossible.astype(jnp.int32),
    )
    if seen.moves is None:
        return after
    return after._replace(  # at the end of the episode, if at all
        rejuvenations=seen.moves.times,
        moved_particles=seen.moves.moved,
        relabelled_particles=seen.moves.relabelled,
    )


def is_finite(belief: Particles) -> Bool[Array, ""]:
    """No NaN or infinity in theta, no NaN in the weights (a weight of zero is fine).

    A product with tiny numbers is finite where all of theta is: one pass, for which nothing is compiled.
    """
    leaves = jax.tree.leaves(belief.states.theta)
    rows = [x.reshape(x.shape[0], -1) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    sums = [x @ jnp.full(x.shape[1:], 1e-30, x.dtype) for x in rows]
    return jnp.all(jnp.isfinite(sum(sums, jnp.exp(belief.log_weights))))
