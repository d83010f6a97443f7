"""The agent and its life: plan, act, update the belief, learn; episode after episode, run beside run."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.belief import Info, importance_sampling, initial_belief, next_episode, rejection_sampling
from baddr.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.particles import Particles
from baddr.planner import LeafValue, Rollout, Root, best_action, over_runs, search
from baddr.pomdp import POMDP, Action, Observation
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
    runs: Run,
    agent: Agent,
    world: POMDP,
    num_episodes: Int[Array, ""],
    num_steps: int,
    stop: Int[Array, ""] | None = None,
) -> tuple[Run, Step]:
    """`num_steps` real steps of every run that has not ended its `num_episodes` episodes.

    With `stop` it takes the first so many of them only (the records of the others are zero): one compiled
    program serves blocks of any length.
    """
    # Compiled on its own it is traced once, though its shapes are asked for before the loop.
    step = eqx.filter_jit(_step)
    shapes = eqx.filter_eval_shape(step, runs, agent, world, num_episodes)[1]
    nothing = jax.tree.map(lambda x: jnp.zeros((num_steps, *x.shape), x.dtype), shapes)

    def one_step(i: Int[Array, ""], carry: tuple[Run, Step]) -> tuple[Run, Step]:
        runs, record = step(carry[0], agent, world, num_episodes)
        return runs, jax.tree.map(lambda all, new: all.at[i].set(new), carry[1], record)

    stop = jnp.int32(num_steps) if stop is None else jnp.minimum(stop, num_steps)
    return jax.lax.fori_loop(jnp.int32(0), stop, one_step, (runs, nothing))


def _step(runs: Run, agent: Agent, world: POMDP, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
    active = (runs.episode < num_episodes) & ~runs.failed
    keys = jax.vmap(_step_keys)(runs.key, runs.episode, runs.t)
    keys_plan, keys_world, keys_update, keys_next, keys_summary = jnp.moveaxis(keys, 1, 0)

    root = agent.plan(keys_plan, runs.belief, world.horizon - runs.t, active)
    a = jax.vmap(best_action)(keys_world, root)

    def act(key: Key[Array, ""], s: PyTree, a: Action) -> Any:
        s_next, o = world.step(jr.fold_in(key, 1), s, a)
        return s_next, o, world.reward(s, a, s_next), world.is_terminal(s, a, s_next)

    s_next, o, r, terminal = jax.vmap(act)(keys_world, runs.s, a)
    belief, info = over_runs(agent.update)(keys_update, runs.belief, a, o, terminal, active)
    tally = _add(runs.tally, world.discount, runs.t, r, root, info)
    failed = ~jax.vmap(_is_finite)(belief)
    ended = active & ~failed & (terminal | (runs.t + 1 >= world.horizon))

    def restart(key: Key[Array, ""], belief: Particles) -> tuple[PyTree, Particles, Tally]:
        key_s, key_belief = jr.split(key)
        s, fresh = world.initial_state(key_s), agent.next_episode(key_belief, belief)
        return s, fresh, _empty_tally(belief.num_particles)

    fresh = jax.vmap(restart)(keys_next, belief)
    s, after, next_tally = _where(ended, fresh, (s_next, belief, tally))
    next_runs = Run(
        key=runs.key,
        episode=runs.episode + ended.astype(jnp.int32),
        t=jnp.where(ended, 0, runs.t + 1),
        s=s,
        belief=after,
        tally=next_tally,
        failed=runs.failed | failed,
    )
    summary = {}
    if agent.summary is not None:
        of_each = over_runs(partial(_if, agent.summary))
        needed = ended | agent.trace
        summary = _if(of_each, jnp.any(needed), needed, keys_summary, belief)
    state = jax.vmap(partial(state_marginals, sizes=world.state_sizes))(belief) if agent.trace else []
    record = Step(
        active=active,
        episode=runs.episode,
        t=runs.t,
        a=a,
        o=o,
        r=r,
        root=root,
        ended=ended,
        failed=active & failed,
        tally=tally,
        summary=summary,
        effective_sample_size=info.effective_sample_size,
        state=state,
        world=(runs.s, s_next) if agent.trace else (),
    )
    # The models of a run that is not active are what they were: selecting them would read all of them again.
    theta = belief.states.theta
    runs, next_runs = (_with_models(x, ()) for x in (runs, next_runs))
    return _with_models(_where(active, next_runs, runs), theta), record


def _if(function: Callable[..., Any], needed: Bool[Array, ""], *arguments: PyTree) -> Any:
    """What the function gives, or zeros where it is not needed."""
    shapes = eqx.filter_eval_shape(function, *arguments)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.cond(needed, function, lambda *_: nothing, *arguments)


def _with_models(runs: Run, theta: PyTree) -> Run:
    states = AugmentedState(runs.belief.states.s, theta)
    return runs._replace(belief=Particles(states, runs.belief.log_weights))


def state_marginals(belief: Particles, sizes: tuple[int, ...]) -> list[Float[Array, " values"]]:
    """p(s_i = .) for each feature i of the state."""
    s = belief.states.s
    return [jnp.zeros((size,)).at[s[:, i]].add(belief.weights) for i, size in enumerate(sizes)]


def _step_keys(key: Key[Array, ""], episode: Int[Array, ""], t: Int[Array, ""]) -> Array:
    return jr.split(jr.fold_in(jr.fold_in(key, 1 + episode), t), 5)


def _empty_tally(num_particles: int) -> Tally:
    zero, n = jnp.int32(0), jnp.int32(num_particles)
    return Tally(jnp.float32(0), jnp.float32(0), zero, jnp.float32(num_particles), n, zero, zero, zero)


def _add(tally: Tally, discount: float, t: Int[Array, " runs"], r: Array, root: Root, info: Info) -> Tally:
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
    """No NaN or infinity in theta, no NaN in the weights (a weight of zero is fine)."""
    leaves = jax.tree.leaves(belief.states.theta)
    fine = [jnp.all(jnp.isfinite(x)) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.array([~jnp.any(jnp.isnan(belief.log_weights)), *fine]))


def _where(condition: Bool[Array, " runs"], yes: PyTree, no: PyTree) -> PyTree:
    def select(x: Array, y: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(select, yes, no)
