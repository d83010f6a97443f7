"""What a chunk of an experiment runs: the lives of some runs of an agent, whatever the agent is."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.pomdp import POMDP
from baddr.errors import UserError
from baddr.fast.belief_tree import FastTree
from baddr.fast.runs import one_step, start
from baddr.fast.search import FastSearch
from baddr.files.settings import LARGEST_INT
from baddr.life.record import Step
from baddr.life.run import Run
from baddr.planners.children import no_children
from baddr.prng import LONGEST_SUM

Arrays = dict[str, np.ndarray]
# Bytes of what is at hand besides, measured on tiger: of a particle while a belief is updated, of a
# simulation, and of two simulations in flight, whose places are compared.
WORK_OF_PARTICLE, WORK_OF_SIMULATION, WORK_IN_FLIGHT = 75, 100, 32
# Of LLVM: real steps are as fast as with higher levels, which take a fifth longer to compile. Moves of
# particles take a third of the time with vector units, which it uses only at its highest.
STEP_LEVEL, MOVE_LEVEL = 1, 3


@dataclass(frozen=True)
class Failure:
    """A run whose belief became NaN: its rows end before this step."""

    run: int
    episode: int
    step: int


class Life(eqx.Module):
    """Of a batch of runs, whose number i has the key of its number. Runs have the fields key, episode,
    failed."""

    @abstractmethod
    def start(self, keys: Key[Array, " runs"]) -> Any:
        """Runs before their first step. What a run does depends on its key alone."""

    @abstractmethod
    def advance(self, runs: Any, num_episodes: Int[Array, ""]) -> tuple[Any, Any]:
        """A block of steps of every run that has not ended its episodes, and their records, whose first axis
        may be joined with that of the next block."""

    @abstractmethod
    def rows(self, steps: Any, first: int) -> Arrays:
        """The episodes that ended in these blocks, as columns; runs are numbered from `first` on."""

    @abstractmethod
    def failures(
        self, before: Bool[np.ndarray, " runs"], after: Any, steps: Any, first: int
    ) -> list[Failure]:
        """The runs that failed in these blocks; `before` says which had failed by then."""

    @abstractmethod
    def trace(self, steps: Any, place: int) -> list[dict[str, Any]]:
        """The steps of the run at a place in the batch, as plain values."""

    @property
    @abstractmethod
    def effort(self) -> tuple[int, bool]:
        """LLVM's level for `advance`, and whether that is a small program."""

    @property
    @abstractmethod
    def blocks_are_short(self) -> bool:
        """Whether several blocks in a row had best be computed before anybody looks at them."""

    @property
    @abstractmethod
    def method(self) -> dict[str, str]:
        """What else than the settings random streams depend on: recorded, and checked when resumed."""

    @abstractmethod
    def bytes_of_state(self) -> int:
        """What is kept of a run between two steps."""

    @abstractmethod
    def bytes_per_run(self) -> int:
        """Of the device's memory, that a run needs."""

    def like(self) -> PyTree:
        """The shapes of one run."""
        keys = jax.eval_shape(lambda: prng.key(0)[None])
        return eqx.filter_eval_shape(lambda life, keys: life.start(keys), self, keys)


class BayesianLife(Life):
    """Of an agent with a belief."""

    agent: Agent
    world: POMDP

    def start(self, keys: Key[Array, " runs"]) -> Run:
        return start(keys, self.agent, self.world)

    def advance(self, runs: Run, num_episodes: Int[Array, ""]) -> tuple[Run, Step]:
        runs, step = one_step(runs, self.agent, self.world, num_episodes)
        return runs, jax.tree.map(lambda x: x[None], step)

    def rows(self, steps: Step, first: int) -> Arrays:
        ended, values = np.asarray(steps.ended), steps.tally._asdict()
        columns = {
            "run": first + np.nonzero(ended)[1],
            "episode": steps.episode[ended],
            "return": values.pop("return_")[ended],
            "discounted_return": values.pop("discounted_return")[ended],
            "length": steps.t[ended] + 1,
        }
        columns |= {name: value[ended] for name, value in values.items() if value is not None}
        if steps.distinct_ancestors is not None:
            columns["distinct_ancestors"] = steps.distinct_ancestors[ended]
        sights = {f"{name}_seen": value for name, value in steps.sights.items()}
        for name, value in (steps.model | sights).items():
            value = value[ended]
            if value.ndim == 1:
                columns[name] = value
            else:
                columns |= {f"{name}_{i}": value[:, i] for i in range(value.shape[1])}
        return {name: plain(np.asarray(value)) for name, value in columns.items()}

    def failures(
        self, before: Bool[np.ndarray, " runs"], after: Run, steps: Step, first: int
    ) -> list[Failure]:
        when, place = np.nonzero(np.asarray(steps.failed))
        episode, t = np.asarray(steps.episode)[when, place], np.asarray(steps.t)[when, place]
        return [Failure(first + int(i), int(e), int(t)) for i, e, t in zip(place, episode, t, strict=True)]

    def trace(self, steps: Step, place: int) -> list[dict[str, Any]]:
        return [_traced(steps, int(i), place) for i in np.flatnonzero(steps.active[:, place])]

    @property
    def effort(self) -> tuple[int, bool]:
        """They go from one part to the next that fits the cache, and cores have other chunks."""
        level = STEP_LEVEL if self.agent.rejuvenation is None else MOVE_LEVEL
        return level, self.agent.filter.num_particles <= LONGEST_SUM

    @property
    def blocks_are_short(self) -> bool:
        return True

    @property
    def method(self) -> dict[str, str]:
        planner = self.agent.planner
        return {"search": planner.stream} if isinstance(planner, FastSearch | FastTree) else {}

    def bytes_of_state(self) -> int:
        like = self.like()
        return bytes_of((like.belief, like.memory))

    def bytes_per_run(self) -> int:
        """Its belief and its memory (twice: before and after a step), its search tree, and what all are made
        with."""
        like = self.like()
        belief = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), like.belief)
        planner = self.agent.planner
        search = 0
        if isinstance(planner, FastSearch):
            search = _bytes_of_search(planner, self.agent.gba, belief)
        elif isinstance(planner, FastTree):
            search = _bytes_of_tree(planner, self.agent, belief)
        kept = 2 * (bytes_of(belief) + bytes_of(like.memory))
        return kept + WORK_OF_PARTICLE * self.agent.filter.num_particles + search


def _traced(steps: Step, i: int, place: int) -> dict[str, Any]:
    return {
        "episode": int(steps.episode[i, place]),
        "step": int(steps.t[i, place]),
        "Q": steps.plan.Q[i, place].tolist(),
        "visits": steps.plan.N[i, place].astype(int).tolist(),
        "state": steps.world[0][i, place].tolist(),
        "next_state": steps.world[1][i, place].tolist(),
        "action": int(steps.a[i, place]),
        "observation": steps.o[i, place].tolist(),
        "reward": float(steps.r[i, place]),
        "ended": bool(steps.ended[i, place]),
        "belief": {
            "effective_sample_size": float(steps.effective_sample_size[i, place]),
            "state": {"features": [p[i, place].tolist() for p in steps.state]},
            "model": {name: value[i, place].tolist() for name, value in steps.model.items()},
        },
    }


def _bytes_of_search(planner: FastSearch, gba: GBAPOMDP, belief: PyTree) -> int:
    """Of a run's tree, and of where its simulations start."""
    nodes, A = planner.how.num_simulations + 1, gba.num_actions
    children = jax.eval_shape(lambda: no_children(nodes, A, gba.observation_sizes))
    largest = max([nodes * A, *(x.size for x in jax.tree.leaves(children))])
    if largest > LARGEST_INT:
        fit = planner.how.num_simulations * LARGEST_INT // largest
        raise UserError(
            f"planner.num-simulations must be at most {fit:,} here: a tree of {nodes - 1:,} has {largest:,} "
            "entries, more than 32 bits can number."
        )

    def roots(planner: FastSearch, gba: GBAPOMDP, belief: Any, key: Key[Array, ""]) -> PyTree:
        _, (s, draws) = planner.how.roots(gba, key, belief)
        return s, planner.prepare(gba, *jax.tree.map(lambda x: x[None], (belief, draws)))

    key = jax.eval_shape(lambda: prng.key(0))
    starts = bytes_of(eqx.filter_eval_shape(roots, planner, gba, belief, key))
    in_flight = min(planner.how.in_flight, planner.how.num_simulations)
    work = WORK_OF_SIMULATION * nodes + WORK_IN_FLIGHT * in_flight**2
    return 8 * nodes * A + bytes_of(children) + starts + work


def _bytes_of_tree(planner: FastTree, agent: Agent, belief: PyTree) -> int:
    """Of a run's tree of beliefs, and of its bounds."""

    def start(planner: FastTree, agent: Agent, belief: Any, key: Key[Array, ""]) -> PyTree:
        prepared = agent.prepare(key, belief)
        return planner.start(agent.gba, key, belief, jnp.int32(1), jnp.array(True), prepared).tree, prepared

    key = jax.eval_shape(lambda: prng.key(0))
    return bytes_of(eqx.filter_eval_shape(start, planner, agent, belief, key))


def bytes_of(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def plain(column: np.ndarray) -> np.ndarray:
    return column.astype(np.int64 if np.issubdtype(column.dtype, np.integer) else np.float64)


def run_keys(first: Int[Array, ""], seed: int, size: int) -> Key[Array, " runs"]:
    """Of runs number `first`, ... A run's stream of random numbers depends on the seed and its own number."""
    runs = first + jnp.arange(size, dtype=jnp.int32)
    return jax.vmap(jr.fold_in, in_axes=(None, 0))(prng.key(seed), runs)
