"""The agent and its life: plan, act, update the belief, learn; episode after episode, run beside run."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.filters import Info, importance_sampling, initial_belief, next_episode, rejection_sampling
from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles, mass_of, one_by_one, one_by_one_in_place
from baddr.core.pomdp import POMDP, Action, Observation, Scalar
from baddr.planners.po_uct import LeafValue, Rollout, Root, best_action, search
from baddr.settings import Filter, Planner

Summary = Callable[[Key[Array, ""], Particles], dict[str, Array]]


class Agent(eqx.Module):
    """A GBA-POMDP with a belief update and a planner; without a planner it acts at random."""

    gba: GBAPOMDP
    filter: Filter = eqx.field(static=True)
    planner: Planner | None = eqx.field(static=True)
    rollout: Rollout | None = eqx.field(static=True, default=None)
    leaf_value: LeafValue | None = eqx.field(static=True, default=None)
    summary: Summary | None = eqx.field(static=True, default=None)  # columns about the model belief
    trace: bool = eqx.field(static=True, default=False)  # keep the belief after every step

    def initial_belief(self, key: Key[Array, ""]) -> Particles:
        return initial_belief(key, self.gba, self.filter.num_particles)

    def next_episode(self, key: Key[Array, ""], belief: Particles) -> Particles:
        return next_episode(key, self.gba, belief)

    def plan(
        self,
        keys: Key[Array, " runs"],
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
    ) -> Root:
        """The root of a search from each run's belief."""
        if self.planner is None:
            nothing = jnp.zeros((keys.shape[0], self.gba.num_actions))
            return Root(nothing, nothing + 1, *([jnp.zeros(keys.shape, jnp.int32)] * 2))
        return search(
            keys,
            self.gba,
            belief,
            num_simulations=self.planner.num_simulations,
            exploration=self.planner.exploration,
            depth=self.planner.depth or self.gba.horizon,
            steps_left=steps_left,
            active=active,
            rollout=self.rollout,
            leaf_value=self.leaf_value,
            lanes=max(1, self.planner.lanes),
        )

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
        if self.filter.kind == "rejection":
            options = {"max_tries": self.filter.max_tries, "learn": learn, "active": active}
            return rejection_sampling(key, self.gba, belief, a, o, **options)
        return importance_sampling(
            key,
            self.gba,
            belief,
            a,
            o,
            resample_below=self.filter.resample_below,
            resampling=self.filter.resampling,
            weight_after_update=self.filter.weight_after_update,
            learn=learn,
            active=active,
        )


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


class Step(NamedTuple):
    """What one real step of each run leaves for readers; `tally` is whole where `ended`."""

    active: Bool[Array, "*runs"]
    episode: Int[Array, "*runs"]
    t: Int[Array, "*runs"]
    a: Int[Array, "*runs"]
    o: Int[Array, "*runs observation_features"]
    r: Float[Array, "*runs"]
    root: Root
    ended: Bool[Array, "*runs"]
    failed: Bool[Array, "*runs"]
    tally: Tally
    summary: dict[str, Array]  # of the belief after the step; zeros where the episode goes on
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
    summary: Key[Array, "*runs"]


def step_keys(key: Key[Array, ""], episode: Int[Array, ""], t: Int[Array, ""]) -> StepKeys:
    key = jr.fold_in(jr.fold_in(key, 1 + episode), t)
    return StepKeys(*jr.split(key, len(StepKeys._fields)))


@eqx.filter_jit
def start(keys: Key[Array, " runs"], agent: Agent, world: POMDP) -> Run:
    """Runs before their first step. A run's stream of random numbers depends on its key alone."""

    def one(key: Key[Array, ""]) -> Run:
        key_belief, key_s = jr.split(jr.fold_in(key, 0))
        zero = jnp.int32(0)
        belief = agent.initial_belief(key_belief)
        s, tally = world.initial_state(key_s), _empty_tally(belief.num_particles)
        return Run(key, zero, zero, s, belief, tally, jnp.array(False))

    return jax.vmap(one)(keys)


@eqx.filter_jit
def advance(
    runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""], num_steps: int
) -> tuple[Run, Step]:
    """`num_steps` real steps of every run that has not ended its `num_episodes` episodes."""
    return jax.lax.scan(lambda runs, _: one_step(runs, agent, world, num_episodes), runs, length=num_steps)


def one_step(runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
    """A real step of every run that has not ended its `num_episodes` episodes.

    On a CPU all of it goes from run to run; loops over few bytes are each compiled into one function.
    """
    active = (runs.episode < num_episodes) & ~runs.failed

    keys = one_by_one(step_keys)(runs.key, runs.episode, runs.t)
    root = agent.plan(keys.plan, runs.belief, world.horizon - runs.t, active)
    a, s_next, o, r, terminal, first = one_by_one(partial(_act, world))(keys, runs.s, root)
    last = active & (terminal | (runs.t + 1 >= world.horizon))
    belief, seen = one_by_one_in_place(partial(_learn, agent, world.state_sizes))(
        runs.belief, keys, a, o, terminal, last, active
    )
    runs = runs._replace(belief=())
    move = one_by_one(partial(_move, agent, world))
    runs, record = move(runs, first, s_next, a, o, r, last, active, root, seen)
    return runs._replace(belief=belief), record


def _act(world: POMDP, keys: StepKeys, s: PyTree, root: Root) -> Any:
    """The action and what comes of it, and where the next episode would begin."""
    a = best_action(keys.action, root)
    s_next, o = world.step(keys.world, s, a)
    outcome = a, s_next, o, world.reward(s, a, s_next), world.is_terminal(s, a, s_next)
    return *outcome, world.initial_state(keys.first)


class Packed(eqx.Module):
    """A few small arrays as one of 32-bit words: each array less is a kernel less to compile.

    Types of another size pass through single precision.
    """

    words: Int[Array, "*runs words"]
    structure: Any = eqx.field(static=True)
    like: tuple[tuple[tuple[int, ...], Any], ...] = eqx.field(static=True)  # shapes and types

    def unpack(self) -> Any:
        leaves, start = [], 0
        for shape, dtype in self.like:
            end = start + math.prod(shape)
            words, start = self.words[start:end].reshape(shape), end
            leaves.append(jax.lax.bitcast_convert_type(words, _of_a_word(dtype)).astype(dtype))
        return jax.tree.unflatten(self.structure, leaves)


def pack(tree: PyTree) -> Packed:
    leaves, structure = jax.tree.flatten(tree)
    word = lambda x: jax.lax.bitcast_convert_type(x.astype(_of_a_word(x.dtype)), jnp.int32)
    words = jnp.concatenate([word(x).reshape(-1) for x in leaves])
    return Packed(words, structure, tuple((x.shape, x.dtype) for x in leaves))


def _of_a_word(dtype: Any) -> Any:
    return dtype if dtype.itemsize == 4 else jnp.float32


class Seen(NamedTuple):
    """What one run's belief after a step tells."""

    info: Info
    failed: Bool[Array, ""]
    summary: dict[str, Array]
    state: list[Float[Array, " values"]]  # with `trace`


def _learn(
    agent: Agent,
    state_sizes: tuple[int, ...],
    belief: Particles,
    keys: StepKeys,
    a: Action,
    o: Observation,
    terminal: Bool[Array, ""],
    last: Bool[Array, ""],
    active: Bool[Array, ""],
) -> tuple[Particles, Packed]:
    """One run's belief after a step; the next episode's prior after the `last` one."""
    belief, info = agent.update(keys.update, belief, a, o, terminal, active)
    failed = ~_is_finite(belief)
    summary, ended = {}, last & ~failed
    if agent.summary is not None:
        summary = _if(agent.summary, ended | agent.trace, keys.summary, belief)
    state = state_marginals(belief, state_sizes) if agent.trace else []
    fresh = agent.next_episode(keys.next_episode, belief)
    # The models stay: selecting them, too, would read all of them again.
    s, log_weights = _where(ended, (fresh.states.s, fresh.log_weights), (belief.states.s, belief.log_weights))
    after = Particles(AugmentedState(s, belief.states.theta), log_weights)
    return after, pack(Seen(info, failed, summary, state))


def _move(
    agent: Agent,
    world: POMDP,
    run: Run,
    first: PyTree,
    s_next: PyTree,
    a: Action,
    o: Observation,
    r: Scalar,
    last: Bool[Array, ""],
    active: Bool[Array, ""],
    root: Root,
    packed: Packed,
) -> tuple[Run, Step]:
    """Where one run stands after a step, but for its belief, and the step's record."""
    seen: Seen = packed.unpack()
    tally, ended = _add(run.tally, world.discount, run.t, r, root, seen.info), last & ~seen.failed
    empty = _empty_tally(agent.filter.num_particles)
    goes_on = run._replace(t=run.t + 1, s=s_next, tally=tally, failed=run.failed | seen.failed)
    begins = goes_on._replace(episode=run.episode + 1, t=jnp.int32(0), s=first, tally=empty)
    after = _where(active, _where(ended, begins, goes_on), run)
    record = Step(
        active=active,
        episode=run.episode,
        t=run.t,
        a=a,
        o=o,
        r=r,
        root=root,
        ended=ended,
        failed=active & seen.failed,
        tally=tally,
        summary=seen.summary,
        effective_sample_size=seen.info.effective_sample_size,
        state=seen.state,
        world=(run.s, s_next) if agent.trace else (),
    )
    return after, record


def _if(function: Callable[..., Any], needed: Bool[Array, ""], *arguments: PyTree) -> Any:
    """What the function gives, or zeros where it is not needed. Under `vmap` it runs if anybody needs it."""

    def either(function: Callable[..., Any], needed: Bool[Array, ""], arguments: PyTree) -> Any:
        function = jax.jit(function)  # so that it is traced once
        shapes = jax.eval_shape(function, *arguments)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.lax.cond(needed, function, lambda *_: nothing, *arguments)

    one = custom_vmap(lambda needed, arguments: either(function, needed, arguments))

    @one.def_vmap
    def many(n: int, batched: PyTree, needed: Bool[Array, "*n"], arguments: PyTree) -> tuple[PyTree, PyTree]:
        in_axes = tuple(jax.tree.map(lambda has_axis: 0 if has_axis else None, batched[1]))
        # A select would compute it for all runs at every step.
        found = either(jax.vmap(function, in_axes), jnp.any(needed), arguments)
        mine = jnp.broadcast_to(needed, (n,))
        found = jax.vmap(lambda mine, x: jax.tree.map(lambda x: jnp.where(mine, x, 0), x))(mine, found)
        return found, jax.tree.map(lambda _: True, found)

    return one(needed, arguments)


def state_marginals(belief: Particles, sizes: tuple[int, ...]) -> list[Float[Array, " values"]]:
    """p(s_i = .) for each feature i of the state."""
    s = belief.states.s
    return [mass_of(s[:, i], belief.weights, size) for i, size in enumerate(sizes)]


def _empty_tally(num_particles: int) -> Tally:
    zero, n = jnp.int32(0), jnp.int32(num_particles)
    return Tally(jnp.float32(0), jnp.float32(0), zero, jnp.float32(num_particles), n, zero, zero, zero)


def _add(tally: Tally, discount: float, t: Int[Array, ""], r: Scalar, root: Root, info: Info) -> Tally:
    return Tally(
        return_=tally.return_ + r,
        discounted_return=tally.discounted_return + jnp.float32(discount) ** t.astype(jnp.float32) * r,
        simulated_steps=tally.simulated_steps + root.num_steps,
        min_effective_sample_size=jnp.minimum(tally.min_effective_sample_size, info.effective_sample_size),
        min_distinct_ancestors=jnp.minimum(tally.min_distinct_ancestors, info.distinct_ancestors),
        resamplings=tally.resamplings + info.resampled.astype(jnp.int32),
        filled_particles=tally.filled_particles + info.num_filled,
        impossible_observations=tally.impossible_observations + info.impossible.astype(jnp.int32),
    )


def _is_finite(belief: Particles) -> Bool[Array, ""]:
    """No NaN or infinity in theta, no NaN in the weights (a weight of zero is fine).

    A product with tiny numbers is finite where all of theta is: one pass, for which nothing is compiled.
    """
    leaves = jax.tree.leaves(belief.states.theta)
    rows = [x.reshape(x.shape[0], -1) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    sums = [x @ jnp.full(x.shape[1:], 1e-30, x.dtype) for x in rows]
    return jnp.all(jnp.isfinite(sum(sums, jnp.exp(belief.log_weights))))


def _where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)
