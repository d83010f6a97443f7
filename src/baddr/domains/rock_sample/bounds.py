"""Bounds on RockSample's values that hold whatever the sensor is like.

From above: of one who sees which rocks are good. From below: of tours that are chosen now and never look at
the sensor again (go to a few rocks in turn, sample each, leave), of which a belief takes the best.
"""

from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from baddr.core.pomdp import all_vectors
from baddr.domains.rock_sample.settings import Cell

NEVER = 100_000  # the step at which a rock is sampled that is on no tour
EXIT, GOOD, BAD = 10.0, 10.0, -10.0
LARGEST_TOUR = {4: 4, 8: 2}  # rocks of a tour, by the most rocks of a map; 2 on larger ones


def distance(a: Cell, b: Cell) -> int:
    """Moves from one cell to another."""
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def best_values(size: int, rocks: tuple[Cell, ...], discount: float) -> Float[np.ndarray, "cells sets"]:
    """V(x, y, the good rocks) of one who sees them, with no end to the episode: the best tour.

    A set is a number with a bit for each rock, rock 0 the most significant, as in a state's rank.
    """
    k = len(rocks)
    bit = [1 << (k - 1 - i) for i in range(k)]
    leave = lambda cell: EXIT * discount ** (size - 1 - cell[0])
    after = np.zeros((k, 2**k))  # right after sampling rock i, by the good ones that are left
    cells = [(x, y) for x in range(size) for y in range(size)]
    V = np.zeros((len(cells), 2**k))

    def value(cell: Cell, good: int) -> float:
        on = [i for i in range(k) if good & bit[i]]
        tours = [
            discount ** distance(cell, rocks[i]) * (GOOD + discount * after[i, good ^ bit[i]]) for i in on
        ]
        return max([leave(cell), *tours])

    for good in range(2**k):  # a set comes after all of its subsets
        for i in range(k):
            after[i, good] = value(rocks[i], good)
        V[:, good] = [value(cell, good) for cell in cells]
    return V


class Tours(NamedTuple):
    """Of every cell and tour: when the rover leaves, and what it earns, by the good rocks."""

    left: Int[np.ndarray, "cells tours"]
    value: Float[np.ndarray, "cells sets tours"]
    least: float  # that any of them can earn, cut short or not


def tours(size: int, rocks: tuple[Cell, ...], discount: float) -> Tours:
    """For each small set of rocks, the order in which the rover has left soonest."""
    k = len(rocks)
    most = next((n for few, n in LARGEST_TOUR.items() if k <= few), 2)
    sets = [chosen for n in range(most + 1) for chosen in combinations(range(k), n)]
    cells = [(x, y) for x in range(size) for y in range(size)]
    found = [[min(_orders(cell, chosen, size, rocks)) for chosen in sets] for cell in cells]
    left = np.array([[end for end, _ in row] for row in found], np.int32)
    sampled = np.array([[when for _, when in row] for row in found])
    earned = np.where(all_vectors((2,) * k) == 1, GOOD, BAD)  # of each rock, by set
    value = np.einsum("ctk,sk->cst", np.where(sampled < NEVER, discount**sampled, 0.0), earned)
    return Tours(left, value + EXIT * (discount**left)[:, None], most * BAD)


def _orders(cell: Cell, chosen: tuple[int, ...], size: int, rocks: tuple[Cell, ...]):
    """When the rover leaves, and when it samples each rock, in every order of the chosen ones."""
    for order in permutations(chosen):
        here, t, when = cell, 0, [NEVER] * len(rocks)
        for i in order:
            t += distance(here, rocks[i])
            when[i], here = t, rocks[i]
            t += 1
        yield t + size - 1 - here[0], when
