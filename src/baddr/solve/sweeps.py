"""What was found anywhere, carried through all beliefs at once, where there is no horizon. Needs no JAX.

Where each belief refers to others, for its best action and each observation, their values are the solution
of an equation, which a few repeated backups approach. Trials alone would take a walk for each of them.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from baddr.solve.bounds import NOWHERE, Bounds
from baddr.solve.graph import Graph, Node, backed_up

MOST_BACKUPS = 200
SMALLEST_CHANGE = 1e-3  # of a repeated backup, in proportion to the first one's

Array = Float64[np.ndarray, "..."]
Vectors = Float64[np.ndarray, "n S"]


def sweep(graph: Graph, deadline: float) -> None:
    """Tighten both bounds at all beliefs, or at some where time is up before."""
    if graph.horizon is None:
        sweep_vectors(graph, deadline)
        sweep_points(graph, deadline)
    else:
        sweep_layers(graph, deadline)


def in_time(nodes: list[Node], deadline: float) -> Iterator[Node]:
    """Bounds that are not brought up to date are true, too."""
    return itertools.takewhile(lambda _: time.perf_counter() < deadline, nodes)


def sweep_layers(graph: Graph, deadline: float) -> None:
    """From the last step up, so that each belief finds what was found below it."""
    nodes = sorted(graph.nodes.values(), key=lambda node: node.left)
    for node in in_time(nodes, deadline):
        node.backup()
    for left, bounds in enumerate(graph.layers, start=1):
        own = [node.own.best for node in nodes if node.left == left]
        next = [node.next.best for node in nodes if node.next_left == left and node.next is not None]
        bounds.settle(np.unique(np.concatenate([*own, *next, np.arange(graph.model.num_actions)])))


def sweep_points(graph: Graph, deadline: float) -> None:
    """Above: an MDP whose states are the points (Lovejoy, 1991). What follows a point is a point too, with
    weight lambda, and a rest that the initial bound has settled. Its value bounds that of the POMDP."""
    bounds = graph.layers[0]
    nodes: list[Node] = bounds.owners
    if not nodes:
        return
    tables = [node.own for node in nodes]
    for node in in_time(nodes, deadline):
        node.own.update_upper()
    r = np.stack([node.r for node in nodes])
    cells = np.concatenate([i * r.shape[1] + node.actions for i, node in enumerate(nodes)])
    column = lambda name: np.concatenate([getattr(table, name)[:-1] for table in tables])
    point, portion, rest = (column(name) for name in ("point", "portion", "rest"))

    def backup(v: Array) -> Array:
        ahead = np.where(point == NOWHERE, 0, portion * v[point]) + rest
        Q = r + graph.model.discount * np.bincount(cells, ahead, r.size).reshape(r.shape)
        return np.minimum(v, Q.max(axis=1))

    before = bounds.values.rows[:, 0].copy()
    for node, old, new in zip(nodes, before, _repeated(backup, before, deadline), strict=True):
        node.lower_point(float(new), float(old))


class Controller(NamedTuple):
    """Each belief's best action, and what it refers to after each observation: the vector of another belief,
    or one of those that stay."""

    actions: Int[np.ndarray, " n"]
    refers: Int[np.ndarray, "n Z"]  # the number of a belief, or n + that of a vector that stays
    stay: Int[np.ndarray, " m"]  # their numbers among all vectors


def sweep_vectors(graph: Graph, deadline: float) -> None:
    """Below: the beliefs as a controller. The vector of a belief is the value of starting there; it is at
    first what it was so far."""
    bounds, model = graph.layers[0], graph.model
    nodes = list(graph.nodes.values())  # whose tables have all that follows, and last themselves
    for node in in_time(nodes, deadline):
        node.own.update_lower()
    bounds.settle(np.unique([node.best for node in nodes]))
    actions, refers, stay = controller = _controller(bounds, nodes)
    staying = bounds.alphas.rows[stay]

    def backup(X: Vectors) -> Vectors:
        Y, alphas = np.empty_like(X), np.concatenate([X, staying])
        for a in range(model.num_actions):
            mine = np.flatnonzero(actions == a)
            if len(mine):
                Y[mine] = backed_up(model, a, alphas, refers[mine])
        return Y

    start = bounds.alphas.rows[[node.best for node in nodes]]
    _keep(graph, nodes, controller, _repeated(backup, start, deadline))


def _controller(bounds: Bounds, nodes: list[Node]) -> Controller:
    actions = np.array([np.argmax(node.Q(node.own.lower[:-1])) for node in nodes])
    choices = np.stack([node.choice(a) for node, a in zip(nodes, actions.tolist(), strict=True)])
    place = {id(node): i for i, node in enumerate(nodes)}
    used, which = np.unique(choices, return_inverse=True)
    # A vector that a belief has made stands for what that belief comes to.
    stands = np.array([place.get(id(bounds.makers[i]), len(nodes) + k) for k, i in enumerate(used)])
    return Controller(actions, stands[which.reshape(choices.shape)], used)


def _keep(graph: Graph, nodes: list[Node], controller: Controller, X: Vectors) -> None:
    """Add the vectors that are a gain where they were made."""
    bounds = graph.layers[0]
    values = np.array([x[node.support] @ node.p for node, x in zip(nodes, X, strict=True)])
    gains = values > np.array([node.own.lower[-1] for node in nodes]) + graph.gain
    added = bounds.alphas.size - 1 + np.cumsum(gains)
    numbers = np.where(gains, added, [node.best for node in nodes])
    after = np.concatenate([numbers, controller.stay])
    for i in np.flatnonzero(gains):
        referred = after[np.unique(controller.refers[i])]
        bounds.add_alpha(X[i], int(controller.actions[i]), referred, nodes[i])


def _repeated(backup: Callable[[Array], Array], x: Array, deadline: float) -> Array:
    """Backups until they change little, or time is up."""
    first = None
    for _ in range(MOST_BACKUPS):
        before, x = x, backup(x)
        change = float(np.max(np.abs(x - before)))
        first = change if first is None else first
        if change <= SMALLEST_CHANGE * first or time.perf_counter() >= deadline:
            break
    return x
