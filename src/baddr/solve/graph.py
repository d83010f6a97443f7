"""The beliefs that a solver has met, as a graph: each knows what may follow it. Needs no JAX."""

import time

import numpy as np
from jaxtyping import Bool, Float64, Int

from baddr.solve.bounds import NOWHERE, Bounds, Rows, Support
from baddr.solve.initial import blind_backup, informed_backup, layers
from baddr.solve.model import SparseModel

SAME_BITS = 36  # beliefs whose probabilities agree in so many bits are one node: 11 digits
MOST_EXACT = 500  # vectors of a layer; of more, a policy has those that are best at one of so many beliefs
MOST_WITNESSES = 2000
SMALLEST_GAIN = 1e-10  # of a backup, in proportion to the values, that is worth an entry


class Graph:
    """The beliefs, and the bounds for each number of steps left; without a horizon, for all times."""

    def __init__(self, model: SparseModel, horizon: int | None):
        self.model, self.horizon = model, horizon
        below = list(layers(model, blind_backup(model), horizon, -1))
        above = list(layers(model, informed_backup(model), horizon, 1))
        self.layers = [Bounds(*pair) for pair in zip(below, above, strict=True)]
        scale = max(float(np.max(np.abs(Q))) for Q in (below[-1], above[-1]))
        self.smallest_gain = self.gain = SMALLEST_GAIN * max(1e-30, scale)
        self.nodes: dict[tuple[int, bytes, bytes], Node] = {}
        support = np.flatnonzero(model.start)
        self.root = self.node(len(self.layers), support, model.start[support])

    def node(self, left: int, support: Support, p: Float64[np.ndarray, " U"]) -> "Node":
        """The node of a belief with so many steps left."""
        key = left, support.tobytes(), (p.view(np.int64) >> (52 - SAME_BITS)).tobytes()
        if key not in self.nodes:
            self.nodes[key] = Node(self, left, support, p)
        return self.nodes[key]

    def ask_for(self, gap: float) -> None:
        """With a horizon a vector is one for every layer, so that a gain must be worth it: all steps together
        may miss a twentieth of the gap that is asked for."""
        if self.horizon is not None:
            self.gain = max(self.smallest_gain, 0.05 * gap / self.horizon)

    def add_vector(self, a: int, choice: Int[np.ndarray, " Z"], maker: "Node") -> None:
        """Action a, and then the policy of vector number choice[o] after each observation o.

        This is a policy for any number of steps, so that every layer gets its vector: a number stands for the
        same policy in all of them. What was found for one number of steps is of use for others.
        """
        after = np.unique(choice)
        for left, bounds in enumerate(self.layers, start=1):
            before = self.layers[left - 2 if self.horizon is not None else 0].alphas.rows
            last = self.horizon is not None and left == 1
            alpha = self.model.R[a] if last else backed_up(self.model, a, before, choice[None])[0]
            bounds.add_alpha(alpha, a, after, maker)

    @property
    def size(self) -> int:
        """Numbers in all vectors."""
        return sum(bounds.alphas.rows.size for bounds in self.layers)

    def policy(self, deadline: float = float("inf"), most: int = 0) -> list[Int[np.ndarray, " n"]]:
        """Of each layer, the vectors that a policy needs: what is best at some belief, and all that these
        refer to. So a step by the best of them is worth what its vector says. Blind policies are there for
        other actions' values. When time is up, the best is what a belief has seen so far. With `most`, so
        many of those that are best at some belief."""
        wanted: list[set[int]] = [set(range(self.model.num_actions)) for _ in self.layers]
        best: list[list[int]] = [[] for _ in self.layers]
        for node in self.nodes.values():
            if time.perf_counter() < deadline:
                node.own.update_lower()
            best[node.left - 1].append(node.best)
        if most:
            return [common(numbers, most, self.model.num_actions) for numbers in best]
        for mine, numbers in zip(wanted, best, strict=True):
            mine.update(numbers)
        for left in reversed(range(len(self.layers))):
            found, new = wanted[left], list(wanted[left])
            while new:
                after = {int(i) for i in self.layers[left].after[new.pop()]}
                if self.horizon is None:
                    new += after - found
                    found |= after
                elif left > 0:
                    wanted[left - 1] |= after
        return [
            self._reduced(bounds, np.array(sorted(found)))
            for bounds, found in zip(self.layers, wanted, strict=True)
        ]

    def _reduced(self, bounds: Bounds, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
        """Without the vectors that others exceed; of very many, those that are best at some belief met."""
        alphas = bounds.alphas.rows[numbers]
        if len(numbers) <= MOST_EXACT:
            keep = undominated(alphas)
        else:
            nodes = list(self.nodes.values())
            some = nodes[:: -(-len(nodes) // MOST_WITNESSES)]
            keep = np.isin(np.arange(len(numbers)), [np.argmax(alphas[:, n.support] @ n.p) for n in some])
        return numbers[keep | (numbers < self.model.num_actions)]


def common(numbers: list[int], most: int, first: int) -> Int[np.ndarray, " n"]:
    """The `first` ones, and `most` others: half of them come soonest (where an episode starts), the rest most
    often."""
    found, soonest, times = np.unique(np.array(numbers, int), return_index=True, return_counts=True)
    soon = found[np.argsort(soonest, kind="stable")[: most // 2]]
    often = found[np.argsort(-times, kind="stable")]
    often = often[~np.isin(often, soon)][: most - len(soon)]
    return np.union1d(np.arange(first), np.concatenate([soon, often]))


class Node:
    """A belief, what may follow it, and the bounds of both.

    What follows is p(s', o | b, a), a row for each action and each observation that may come after it. The
    belief itself is the last row of `own`. Without a horizon all of them are rows of one table.
    """

    def __init__(self, graph: Graph, left: int, support: Support, p: Float64[np.ndarray, " U"]):
        self.graph, self.model, self.layer = graph, graph.model, graph.layers[left - 1]
        self.support, self.p, self.point = support, p, NOWHERE
        self.left, self.next_left = left, left - (graph.horizon is not None)
        self.r = self.model.R[:, support] @ p
        groups, next_support, W = followed(self.model, support, p)
        self.actions, self.observations = np.divmod(groups, self.model.num_observations)
        self.num, self.total = len(groups), W.sum(axis=1)
        self.nodes: list[Node | None] = [None] * self.num
        if graph.horizon is None:
            self.own = Rows(*joined(next_support, W, support, p), self.layer)
            self.next = self.own
        else:
            self.own = Rows(support, p[None], self.layer)
            some = self.next_left > 0 and self.num > 0
            self.next = Rows(next_support, W, graph.layers[self.next_left - 1]) if some else None

    def bounds(self) -> tuple[float, float]:
        """Of the belief itself."""
        self.own.update()
        return float(self.own.lower[-1]), float(self.own.upper[-1])

    @property
    def best(self) -> int:
        """The vector that is best here, as far as it was looked at."""
        return int(self.own.best[-1])

    def following(self) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
        """The bounds of what follows, up to date."""
        if self.next is None:
            return np.zeros(self.num), np.zeros(self.num)
        self.next.update()
        return self.next.lower[: self.num], self.next.upper[: self.num]

    def Q(self, values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " A"]:
        """r + gamma sum_o of what follows."""
        return self.r + self.model.discount * np.bincount(self.actions, values, len(self.r))

    def loosest(self, wanted: float, hopeful: bool) -> "Node | None":
        """What follows the best action, by the upper bound where `hopeful` and else by the lower, and is
        furthest from the wanted gap; None where nothing is."""
        lower, upper = self.following()
        if self.next is None or not self.num:
            return None
        chosen = np.argmax(self.Q(upper if hopeful else lower))
        excess = np.where(self.actions == chosen, upper - lower - wanted * self.total, -np.inf)
        i = int(np.argmax(excess))
        if not excess[i] > 0:
            return None
        if self.nodes[i] is None:
            row = self.next.W[i]
            some = np.flatnonzero(row)
            self.nodes[i] = self.graph.node(
                self.next_left, self.next.support[some], row[some] / self.total[i]
            )
        return self.nodes[i]

    def backup(self) -> None:
        """Tighten both bounds here, where that is a gain."""
        (next_lower, next_upper), (lower, upper) = self.following(), self.bounds()
        value = self.Q(next_lower)
        a = int(np.argmax(value))
        if value[a] > lower + self.graph.gain:
            choice = self.choice(a)
            self.graph.add_vector(a, choice, self)
        self.lower_point(float(np.max(self.Q(next_upper))), upper)

    def lower_point(self, value: float, upper: float) -> None:
        """Bound the value here, if that is less than the bound so far."""
        if value < upper - self.graph.gain:
            if self.point == NOWHERE:
                self.point = self.layer.add_point(self, self.support, self.p)
            self.layer.set_point(self.point, value)

    def choice(self, a: int) -> Int[np.ndarray, " Z"]:
        """The best vector after action a and each observation; after one that cannot follow, the best of
        these without it."""
        mine = np.flatnonzero(self.actions == a)
        if self.next is None or not len(mine):
            return np.zeros(self.model.num_observations, int)
        best = self.next.best[mine]
        used = np.unique(best)
        if len(used) > 1:
            columns = self.next.columns(self.next.bounds.alphas.rows[used])
            used = used[np.argmax(columns @ self.next.W[mine].sum(axis=0))][None]
        choice = np.full(self.model.num_observations, used[0])
        choice[self.observations[mine]] = best
        return choice


def undominated(alphas: Float64[np.ndarray, "N S"]) -> Bool[np.ndarray, " N"]:
    """The vectors that no other one exceeds everywhere; of equal ones one."""
    keep = np.ones(len(alphas), bool)
    for i, alpha in enumerate(alphas):
        keep[i] = False
        keep[i] = not np.any(np.all(alphas[keep] >= alpha, axis=1))
    return keep


def joined(
    one: Support, W: Float64[np.ndarray, "n U"], other: Int[np.ndarray, " V"], p: Float64[np.ndarray, " V"]
) -> tuple[Int[np.ndarray, " X"], Float64[np.ndarray, "m X"]]:
    """The rows W over one support and the row p over another, as a table over both."""
    both = np.union1d(one, other)
    table = np.zeros((len(W) + 1, len(both)))
    table[:-1, np.searchsorted(both, one)] = W
    table[-1, np.searchsorted(both, other)] = p
    return both, table


def followed(
    model: SparseModel, support: Support, p: Float64[np.ndarray, " U"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " V"], Float64[np.ndarray, "n V"]]:
    """p(s', o | b, a): which (a, o) may follow a belief, which s', and the table of both."""
    b, seen = np.zeros(model.num_states), model.seen
    b[support] = p
    w = (model.predict @ b)[seen.places] * seen.p
    some = np.flatnonzero(w)
    groups, rows = np.unique(seen.groups[some], return_inverse=True)
    next_support, columns = np.unique(seen.states[some], return_inverse=True)
    W = np.zeros((len(groups), len(next_support)))
    W[rows, columns] = w[some]
    return groups, next_support, W


def backed_up(
    model: SparseModel, a: int, alphas: Float64[np.ndarray, "N S"], choices: Int[np.ndarray, "n Z"]
) -> Float64[np.ndarray, "n S"]:
    """R_a + gamma T_a sum_o O_a(o) alpha_o, where alpha_o is number choices[i, o]."""
    O = model.O[a]
    entries = O.data * alphas[choices[:, O.indices], model.shown[a]]
    ahead = np.add.reduceat(entries, O.indptr[:-1], axis=1)  # each s' shows something: its row is not empty
    return model.R[a] + model.discount * (model.T[a] @ ahead.T).T
