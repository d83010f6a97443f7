"""The life of learners: DPFRL, and A2C with a GRU."""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Int, Key

from baddr.agents.learners.a2c import A2C, Learner, advance, start
from baddr.agents.learners.actors import Episodes
from baddr.agents.life import Arrays, Failure, Life, bytes_of, plain

LEVEL = 3  # of LLVM: updates gain 5 % by the highest
UPDATES_PER_BLOCK = 8


class LearningLife(Life):
    """Learners of a batch go on together until the last of them has its episodes, and what the others have
    too many is kept for an extension."""

    agent: A2C

    def start(self, keys: Key[Array, " runs"]) -> Learner:
        return start(keys, self.agent)

    def advance(self, runs: Learner, num_episodes: Int[Array, ""]) -> tuple[Learner, Episodes]:
        return advance(runs, self.agent, UPDATES_PER_BLOCK)

    def rows(self, steps: Episodes, first: int) -> Arrays:
        ended = np.asarray(steps.ended)
        names = ("episode", "return", "discounted_return", "length")
        columns = {name: np.asarray(value)[ended] for name, value in zip(names, steps[1:], strict=True)}
        return {name: plain(x) for name, x in ({"run": first + np.nonzero(ended)[0]} | columns).items()}

    def failures(
        self, before: Bool[np.ndarray, " runs"], after: Learner, steps: Episodes, first: int
    ) -> list[Failure]:
        places = np.flatnonzero(np.asarray(after.failed) & ~before)
        return [Failure(first + int(i), int(after.episode[i]), 0) for i in places]

    def trace(self, steps: Episodes, place: int) -> list[dict[str, Any]]:
        return []

    @property
    def effort(self) -> tuple[int, bool]:
        return LEVEL, False

    @property
    def blocks_are_short(self) -> bool:
        return False

    @property
    def method(self) -> dict[str, str]:
        return {}

    def bytes_of_state(self) -> int:
        return bytes_of(self.like())

    def bytes_per_run(self) -> int:
        """And what back-propagation keeps: about 12 h + 3 F numbers a particle."""
        how = self.agent.settings
        steps = how.actors * how.sample_length * how.back_segments
        numbers = how.num_particles * (12 * how.hidden + 3 * how.features) if self.agent.particles else 0
        return 2 * self.bytes_of_state() + 4 * steps * (numbers + 12 * how.hidden)
