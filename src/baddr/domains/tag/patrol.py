"""A bound on Tag's values from below: of a robot that patrols, and tags the opponent when it meets it.

The robot walks to a cell, from there to the cell farthest from it, and so on. It needs to know nothing, so
that a belief may take the best first cell. The values are those against an opponent that always runs away:
whoever meets a slower one does better.
"""

from collections import deque

import numpy as np
from jaxtyping import Float, Int

TAG_REWARD, STEP_COST = 10.0, -1.0
SWEEPS = 200


def steps_between(moves: Int[np.ndarray, "cells 4"]) -> Int[np.ndarray, "cells cells"]:
    """The length of the shortest path from each cell to each other, by breadth-first search."""
    n = len(moves)
    d = np.full((n, n), n, np.int32)
    for start in range(n):
        d[start, start], open_cells = 0, deque([start])
        while open_cells:
            here = open_cells.popleft()
            for there in moves[here]:
                if d[start, there] == n and there != start:
                    d[start, there] = d[start, here] + 1
                    open_cells.append(int(there))
    return d


def patrol_values(
    moves: Int[np.ndarray, "cells 4"], opponent: Float[np.ndarray, "robot opponent next"], discount: float
) -> Float[np.ndarray, "target robot opponent"]:
    """The discounted return of patrols with no end, by the cell that the robot walks to first."""
    n = len(moves)
    d = steps_between(moves)
    after = np.argmax(d, axis=1)  # the cell farthest from each
    robot, target = np.meshgrid(np.arange(n), np.arange(n), indexing="xy")  # [target, robot]
    target = np.where(robot == target, after[target], target)
    step = np.argmin(d[moves[robot], target[..., None]], axis=-1)
    robot_next = moves[robot, step]
    V = np.zeros((n, n, n))
    caught = np.eye(n, dtype=bool)[None]
    for _ in range(SWEEPS):
        follow = V[target, robot_next]  # [target, robot, opponent']
        V = np.where(
            caught,
            TAG_REWARD,
            STEP_COST + discount * np.einsum("ron,tron->tro", opponent, follow[:, :, None]),
        )
    return V
