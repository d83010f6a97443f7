"""A corridor in plain NumPy: find its end, where steps slip and the sensor errs. A black box for agents."""

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from baddr.domains import from_simulators

CELLS, LEFT, RIGHT = 5, 0, 1


def step(rng: np.random.Generator, s: np.ndarray, a: int, slip: float) -> tuple[int, int]:
    """(s', o): where the walker is next, and whether the sensor says that it is in the right half."""
    move = 0 if rng.random() < slip else (1 if a == RIGHT else -1)
    s_next = int(np.clip(s[0] + move, 0, CELLS - 1))
    right = int(s_next > CELLS // 2)
    return s_next, right if rng.random() < 0.9 else 1 - right


class Corridor(gymnasium.Env):
    """The world that the agent is put into. It has never seen it: this floor is wet."""

    def __init__(self, slip: float = 0.6):
        self.action_space, self.observation_space = Discrete(2), Discrete(2)
        self.slip, self.s = slip, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        self.s, o = step(self.np_random, np.array([self.s]), action, self.slip)
        over = self.s == CELLS - 1
        return o, float(over) - 0.05, over, False, {}


def make_domain(slips: tuple[float, ...] = (0.05, 0.2), wet: float = 0.6):
    """A corridor whose floor may be dry or damp, as far as the agent knows."""
    simulators = [lambda rng, s, a, slip=slip: step(rng, s, a, slip) for slip in slips]
    at_the_end = np.arange(CELLS) == CELLS - 1
    return from_simulators(
        simulators,
        reward=np.broadcast_to(at_the_end - 0.05, (CELLS, 2, CELLS)),  # R[s, a, s']
        start=0,
        is_terminal=at_the_end,
        world=Corridor(wet),
        state_sizes=(CELLS,),
        observation_sizes=(2,),
        num_actions=2,
        horizon=20,
    )
