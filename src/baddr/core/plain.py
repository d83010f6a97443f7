"""The paper's algorithms once more, in plain Python: lists, dicts and recursion. The reading copy.

Slow, for one run, and as close to the page as code can be. The tests compare what is fast with it. A world is
here a function `step(random, model, s, a) -> (s', o, r, terminal)`, and a model is whatever that function
takes.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

Random = np.random.Generator
Step = Callable[[Random, Any, Any, int], tuple[Any, Hashable, float, bool]]


# Alg. 1: the belief is a list of particles (s, theta).


class Particle(NamedTuple):
    s: Any
    theta: Any


class Family(NamedTuple):
    """A posterior family (Section 3.3): how D is drawn from theta, how D steps, and U."""

    draw: Callable[[Random, Any], Any]  # theta -> D
    step: Step  # of D
    likelihood: Callable[[Any, Any, int, Any, Hashable], float]  # p(o | s, a, s'; D)
    update: Callable[[Random, Any, Any, int, Any, Hashable], Any]  # U: theta, s, a, s', o -> theta


def rejection_sampling(
    random: Random, family: Family, belief: Sequence[Particle], a: int, o: Hashable
) -> list[Particle]:
    """Alg. 1: propose from random particles, keep what gives o and learn from it, until there are n."""
    kept: list[Particle] = []
    while len(kept) < len(belief):
        s, theta = belief[int(random.integers(len(belief)))]
        D = family.draw(random, theta)
        s_next, o_proposed, _, _ = family.step(random, D, s, a)
        if o_proposed == o:
            kept.append(Particle(s_next, family.update(random, theta, s, a, s_next, o)))
    return kept


def importance_sampling(
    random: Random,
    family: Family,
    belief: Sequence[Particle],
    weights: Sequence[float],
    a: int,
    o: Hashable,
) -> tuple[list[Particle], list[float]]:
    """Step every particle, learn, and weigh it by p(o | s, a, s'; D) of the D that it stepped with."""
    after, log = [], []
    for (s, theta), w in zip(belief, weights, strict=True):
        D = family.draw(random, theta)
        s_next, _, _, _ = family.step(random, D, s, a)
        after.append(Particle(s_next, family.update(random, theta, s, a, s_next, o)))
        log.append(w * family.likelihood(D, s, a, s_next, o))
    return after, [w / sum(log) for w in log]


# Alg. 2: the tree is a dict from histories to statistics.


class Node(NamedTuple):
    N: list[int]
    Q: list[float]


class Search(NamedTuple):
    step: Step
    num_actions: int
    exploration: float
    depth: int
    discount: float


def po_uct(
    random: Random, search: Search, root: Callable[[Random], tuple[Any, Any]], num_simulations: int
) -> tuple[Node, dict[tuple, Node]]:
    """Alg. 2: `root` draws a simulation's (s, D); it keeps D to its end. The root's node, and the tree."""
    tree = {(): _empty(search)}
    for _ in range(num_simulations):
        s, D = root(random)
        simulate(random, search, tree, D, s, ())
    return tree[()], tree


def simulate(random: Random, search: Search, tree: dict[tuple, Node], D: Any, s: Any, h: tuple) -> float:
    """The return of a simulation from s at the node h, which it backs up."""
    level = len(h) // 2
    if level == search.depth:
        return 0.0
    N, Q = tree[h]
    a = ucb(random, N, Q, search.exploration)
    s_next, o, R, terminal = search.step(random, D, s, a)
    child = (*h, a, o)
    if not terminal and level + 1 < search.depth:
        if child in tree:
            R += search.discount * simulate(random, search, tree, D, s_next, child)
        else:
            tree[child] = _empty(search)
            R += search.discount * rollout(random, search, D, s_next, level + 1)
    N[a] += 1
    Q[a] += (R - Q[a]) / N[a]
    return R


def rollout(random: Random, search: Search, D: Any, s: Any, level: int) -> float:
    """The return of uniformly random actions."""
    if level == search.depth:
        return 0.0
    s_next, _, r, terminal = search.step(random, D, s, int(random.integers(search.num_actions)))
    return r if terminal else r + search.discount * rollout(random, search, D, s_next, level + 1)


def ucb(random: Random, N: Sequence[int], Q: Sequence[float], u: float) -> int:
    """argmax Q + u sqrt(ln(1 + N(h)) / N(h, a)); unvisited actions first, ties at random."""
    bonus = lambda n: u * math.sqrt(math.log(1 + sum(N)) / n)
    score = [q + bonus(n) if n else math.inf for n, q in zip(N, Q, strict=True)]
    return int(random.choice([a for a, x in enumerate(score) if x == max(score)]))


def _empty(search: Search) -> Node:
    return Node([0] * search.num_actions, [0.0] * search.num_actions)


# Eq. 14: one step of gradient descent through a network with dropout after its first hidden layer.


class Weights(NamedTuple):
    """Linear, tanh, dropout, linear, tanh, linear: matrices are (inputs x outputs)."""

    W1: np.ndarray
    b1: np.ndarray
    W2: np.ndarray
    b2: np.ndarray
    W3: np.ndarray
    b3: np.ndarray


def loss_gradient(w: Weights, x: np.ndarray, z: np.ndarray, p: float, value: int) -> tuple[float, Weights]:
    """L = -log softmax(f_w~(x))[value] under the mask z, and dL/dw, by hand."""
    scale = z / (1 - p)
    h1 = np.tanh(x @ w.W1 + w.b1)
    d1 = scale * h1
    h2 = np.tanh(d1 @ w.W2 + w.b2)
    y = h2 @ w.W3 + w.b3
    probabilities = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
    dy = probabilities - np.eye(len(y))[value]
    dz2 = (w.W3 @ dy) * (1 - h2**2)
    dz1 = (w.W2 @ dz2) * scale * (1 - h1**2)
    gradient = Weights(np.outer(x, dz1), dz1, np.outer(d1, dz2), dz2, np.outer(h2, dy), dy)
    return -math.log(probabilities[value]), gradient


def descend(w: Weights, gradient: Weights, learning_rate: float) -> Weights:
    """U: w - alpha dL/dw. (Eq. 14 prints +; L is a cross-entropy, so it descends.)"""
    return Weights(*(x - learning_rate * g for x, g in zip(w, gradient, strict=True)))
