"""A point-based solver with both bounds (HSVI2: Smith and Simmons, 2005). Needs no JAX.

A trial walks from the start belief to where the bounds are loosest: by the action that looks best from above
and the observation whose bounds are too far apart. On its way back it tightens both bounds at each belief by
a backup. With a horizon there is a value function for every number of steps left. Without one there is a
single one, and now and then a sweep (`sweeps`) carries what was found through all beliefs at once.

The bounds enclose the optimal value at every moment.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from baddr.solve.graph import Graph, Node
from baddr.solve.model import SparseModel, check
from baddr.solve.sweeps import sweep

DEEPEST = 1000  # steps of a trial
MOST_NUMBERS = 2 * 10**8  # in all vectors; beyond it the solver stops, too
ALL_HOPEFUL = 32  # trials before the first cautious one; small problems are solved by then
CAUTIOUS = 3  # every third trial follows the policy so far: it finds what the upper bound still hides
NARROWING = 0.7  # a trial asks for the root's gap times this, until that is the precision
BACKUPS_PER_SWEEP = 1, 2  # for each belief; the second where there is a horizon, and trials are worth more

Progress = Callable[[int, float, float, float], None]  # trials, lower, upper, seconds


@dataclass(frozen=True, eq=False)
class Solution:
    """Bounds on the optimal value at the start, and the policy that earns the lower one.

    Act by the best vector among those for the steps that are left: `actions[argmax alphas @ b]`.
    """

    lower: float
    upper: float
    alphas: Float64[np.ndarray, "N S"]
    actions: Int[np.ndarray, " N"]
    steps_left: Int[np.ndarray, " N"]  # for which a vector is meant; 0: for all times
    seconds: float
    trials: int

    @property
    def gap(self) -> float:
        return self.upper - self.lower


@dataclass(frozen=True)
class Budget:
    """When to stop: at the precision, or after so many seconds or trials, whatever comes first."""

    precision: float = 1e-3
    seconds: float = float("inf")
    trials: int = 10**9
    vectors: int = 0  # of the policy for each number of steps left, at most; 0: all that it needs


def solve(
    model: SparseModel, budget: Budget, horizon: int | None = None, progress: Progress | None = None
) -> Solution:
    """Tighten both bounds until the budget is used up. The same trials give the same solution."""
    check(model, horizon)
    start = time.perf_counter()
    deadline = start + budget.seconds
    graph = Graph(model, horizon)
    trials = backups = 0
    while True:
        lower, upper = graph.root.bounds()
        seconds = time.perf_counter() - start
        if progress is not None:
            progress(trials, lower, upper, seconds)
        over = seconds >= budget.seconds or trials >= budget.trials or graph.size > MOST_NUMBERS
        if over or upper - lower <= budget.precision:
            break
        wanted = max(0.9 * budget.precision, NARROWING * (upper - lower))
        graph.ask_for(wanted)
        hopeful = trials < ALL_HOPEFUL or trials % CAUTIOUS > 0
        backups += trial(graph, wanted, hopeful, deadline)
        trials += 1
        if backups >= BACKUPS_PER_SWEEP[horizon is not None] * len(graph.nodes):
            sweep(graph, deadline)
            backups = 0
    return _solution(graph, trials, start, budget)


def trial(graph: Graph, precision: float, hopeful: bool, deadline: float = float("inf")) -> int:
    """Walk down to where the gap is small for its depth, and back up. How many backups that took.

    A hopeful trial takes the actions that are best by the upper bound, a cautious one by the lower.
    """
    discount, wanted = graph.model.discount, precision
    path: list[Node] = []
    node: Node | None = graph.root
    while node is not None and len(path) < DEEPEST and (not path or time.perf_counter() < deadline):
        path.append(node)
        wanted = wanted / discount if discount > 0 else float("inf")
        node = node.loosest(wanted, hopeful)
    for node in reversed(path):
        node.backup()
    return len(path)


def _solution(graph: Graph, trials: int, start: float, budget: Budget) -> Solution:
    lower, upper = graph.root.bounds()
    alphas, actions, steps = [], [], []
    policy = graph.policy(start + budget.seconds, budget.vectors)
    for left, (bounds, used) in enumerate(zip(graph.layers, policy, strict=True), start=1):
        alphas.append(bounds.alphas.rows[used])
        actions += [bounds.actions[i] for i in used]
        steps += [left if graph.horizon is not None else 0] * len(used)
    seconds = time.perf_counter() - start
    return Solution(lower, upper, np.concatenate(alphas), np.array(actions), np.array(steps), seconds, trials)
