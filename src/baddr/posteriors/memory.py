"""h, all that a run has done and seen, in few bytes; and when a belief is renewed by it: at the end of an
episode, where few of its particles' ancestors are left."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from baddr.core.belief_update import resampled, select
from baddr.core.gba_pomdp import AugmentedState
from baddr.core.particles import Particles
from baddr.core.pomdp import Action, Observation, flat_index
from baddr.core.rejuvenation import Moves, Rejuvenation

EPISODES_PER_ROW = 4  # at least; rows are independent of each other
FEW = 0.25  # of the ancestors since the last move
LOW = 0.125  # the effective sample size, of the particles
LONGER = 5  # by a fifth, than at the last move: all moves of a run then cost as much as six at its end


class Memory(NamedTuple):
    """h, in rows of whole episodes, and when the particles were last moved."""

    codes: UInt[Array, "*runs rows steps"]  # 0: nothing
    row: Int[Array, "*runs"]  # where the next step goes
    column: Int[Array, "*runs"]
    steps: Int[Array, "*runs"]  # in all
    steps_at_move: Int[Array, "*runs"]
    survivors: Float[Array, "*runs"]  # the share of the ancestors at the last move that have descendants
    first: Bool[Array, "*runs"]  # whether the next step is an episode's first


class Step(NamedTuple):
    """What a code stands for."""

    used: Bool[Array, "*n"]
    first: Bool[Array, "*n"]  # of its episode
    learned: Bool[Array, "*n"]  # otherwise the state moves unseen, and nothing is counted
    ended: Bool[Array, "*n"]  # its episode, and not because there was no time left
    a: Int[Array, "*n"]
    o: Int[Array, "*n"]


class Codes(NamedTuple):
    """How (a, o) is written as a number."""

    num_actions: int
    observation_sizes: tuple[int, ...]
    num_observations: int
    horizon: int

    @property
    def dtype(self) -> Any:
        return jnp.uint16 if 4 * self.num_actions * (self.num_observations + 1) < 2**16 else jnp.uint32

    def code(
        self, given: tuple[Action, Observation, Array], learned: Bool[Array, ""], first: Bool[Array, ""]
    ) -> Array:
        a, o, ended = given
        z = jnp.where(learned, flat_index(o, self.observation_sizes), self.num_observations)
        flags = 2 * ended.astype(jnp.int32) + first.astype(jnp.int32)
        return (1 + 4 * (a * (self.num_observations + 1) + z) + flags).astype(self.dtype)

    def step(self, code: UInt[Array, "*n"]) -> Step:
        number = jnp.maximum(code.astype(jnp.int32) - 1, 0)
        a, o = number // 4 // (self.num_observations + 1), number // 4 % (self.num_observations + 1)
        return Step(code > 0, number % 2 == 1, o < self.num_observations, number % 4 >= 2, a, o)

    def empty(self, capacity: int) -> Memory:
        """Of at least so many steps."""
        length = EPISODES_PER_ROW * self.horizon
        codes, zero = jnp.zeros((-(-capacity // length), length), self.dtype), jnp.int32(0)
        return Memory(codes, zero, zero, zero, zero, jnp.float32(1), jnp.array(True))


def remember(
    codes: Codes,
    memory: Memory,
    given: tuple[Action, Observation, Bool[Array, ""]],
    learned: Bool[Array, ""],
    active: Bool[Array, ""],
) -> Memory:
    """One step more. An episode that might not fit into what is left of a row starts another."""
    next_row = active & memory.first & (memory.column + codes.horizon > memory.codes.shape[-1])
    row, one = memory.row + next_row.astype(jnp.int32), jnp.asarray(active).astype(jnp.int32)
    column = jnp.where(next_row, 0, memory.column)
    code, out = codes.code(given, learned, memory.first), memory.codes.shape[0]
    return memory._replace(
        codes=memory.codes.at[jnp.where(active, row, out), column].set(code, mode="drop"),
        row=row,
        column=column + one,
        steps=memory.steps + one,
        first=memory.first & ~active,
    )


def is_due(memory: Memory, ess: Float[Array, ""], n: int, low: float = LOW) -> Bool[Array, ""]:
    """Whether few ancestors are left, or few particles count, and much was seen since the last move. A run
    whose memory is full moves no more."""
    few = (memory.survivors < FEW) | (ess < low * n)
    return (
        few
        & (LONGER * (memory.steps - memory.steps_at_move) > memory.steps_at_move)
        & (memory.row < memory.codes.shape[0])
    )


class Renewal(Rejuvenation):
    """What makes a belief that descends from few spread out again, by a run's history."""

    codes: eqx.AbstractVar[Codes]
    capacity: eqx.AbstractVar[int]
    low: ClassVar[float] = LOW  # fewer than this share that count are few

    def empty(self) -> Memory:
        return self.codes.empty(self.capacity)

    def remember(
        self,
        memory: Memory,
        given: tuple[Action, Observation, Bool[Array, ""]],
        learned: Bool[Array, ""],
        survivors: Float[Array, ""],
        active: Bool[Array, ""],
    ) -> Memory:
        memory = remember(self.codes, memory, given, learned, active)
        return memory._replace(survivors=jnp.where(active, memory.survivors * survivors, memory.survivors))

    def rejuvenate(
        self,
        key: Key[Array, ""],
        belief: Particles,
        memory: Memory,
        ended: Bool[Array, ""],
        where: Callable[..., Any],
    ) -> tuple[tuple[Particles, Memory], Moves]:
        due = ended & is_due(memory, *self.size(belief), self.low)
        renew = lambda key, belief, memory: self.renew(
            key, belief, memory
        )  # a method would have to be hashable
        after, moved = where(renew, due, key, belief, memory, few=True)
        memory = memory._replace(
            first=memory.first | ended,
            survivors=jnp.where(due, 1, memory.survivors),
            steps_at_move=jnp.where(due, memory.steps, memory.steps_at_move),
        )
        return (select(due, after, belief), memory), moved

    @abstractmethod
    def size(self, belief: Particles) -> tuple[Float[Array, ""], int]:
        """How many count, of how many."""

    @abstractmethod
    def renew(self, key: Key[Array, ""], belief: Particles, memory: Memory) -> tuple[Particles, Moves]:
        """The belief after a kernel that leaves p(s, D | h) as it is."""


class ParticleMoves(Renewal):
    """Moves of all particles of a run, after they were resampled."""

    def size(self, belief: Particles) -> tuple[Float[Array, ""], int]:
        return belief.effective_sample_size(), belief.num_particles

    def renew(self, key: Key[Array, ""], belief: Particles, memory: Memory) -> tuple[Particles, Moves]:
        key_resample, key_move = jr.split(key)
        equal = resampled(key_resample, belief)
        states, moved = self.move(key_move, equal.states, memory)
        return Particles(states, equal.log_weights), moved

    @abstractmethod
    def move(
        self, key: Key[Array, ""], states: AugmentedState, memory: Memory
    ) -> tuple[AugmentedState, Moves]:
        """Each particle (s, theta) after a kernel that leaves p(s, theta | h) as it is."""
