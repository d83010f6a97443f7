"""Section 3 as a program: exact beliefs, planning and the history-MDPs of Theorem 1, for small problems.

Everything is NumPy in float64, and dynamics are whole tables D[s, a, s', o]. What is unknown about D is
a `TabularPosterior`, whose theta is hashable; the belief over (s, theta) is then a finite `Mixture`.
A known D, a finite family of them, Dirichlet counts and any `Posterior` of the library are four such
posteriors, and the beliefs and the planning below serve all of them.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int32, Key, PyTree

from baddr.core.pomdp import POMDP, Dynamics, all_vectors
from baddr.core.posterior import Posterior, sample
from baddr.prng import key as prng_key

Theta = Any  # hashable
Weights = Float64[np.ndarray, " S"]  # of the states
Tables = Float64[np.ndarray, "S A S Z"]  # of D(s', o | s, a)
ActionValues = Float64[np.ndarray, " A"]
Mixture = dict[Theta, Weights]  # p(s, theta | h): theta -> its weight for every state
History = tuple[tuple[int, int], ...]  # h_t = ((a_0, o_1), (a_1, o_2), ...)
FullHistory = tuple[int, tuple[tuple[int, int, int], ...]]  # H_t = (s_0, ((a_0, s_1, o_1), ...))
Policy = Callable[[Mixture, int], ActionValues]  # belief, steps left -> p(a)
Evidence = Callable[[FullHistory], float]  # H_t -> integral of p(D) prod_i D(s_i+1, o_i+1 | s_i, a_i)


@dataclass(frozen=True, eq=False)
class TabularPOMDP:
    """The tuple of Section 2 as tables over flat states, actions and observations."""

    D: Tables
    R: Float64[np.ndarray, "S A S"]
    terminal: Bool[np.ndarray, "S A S"]
    p0: Weights
    discount: float
    horizon: int


def tabulate(pomdp: POMDP, p0: Weights) -> TabularPOMDP:
    """A small POMDP of the library as tables; `p0` is the distribution its `initial_state` draws from."""
    with jax.enable_x64(True):
        pomdp = _float64(pomdp)
        D = np.asarray(_dynamics_table(pomdp.dynamics, pomdp))  # pyright: ignore[reportAttributeAccessIssue]
        R = np.asarray(_over_transitions(pomdp.reward, pomdp), np.float64)
        terminal = np.asarray(_over_transitions(pomdp.is_terminal, pomdp))
    return TabularPOMDP(D, R, terminal, p0, pomdp.discount, pomdp.horizon)


def belief_update(pomdp: TabularPOMDP, b: Weights, a: int, o: int) -> tuple[Weights, float]:
    """Eq. 1: the belief over states after (a, o), and p(o | b, a)."""
    joint = b @ pomdp.D[:, a, :, o]
    p_o = float(joint.sum())
    _require_possible(p_o, a, o)
    return joint / p_o, p_o


# --- posteriors over D with a hashable theta ---------------------------------------------------------


class TabularPosterior(ABC):
    """p(D; theta) and its update U (Section 3.3), as far as exact inference needs them."""

    @abstractmethod
    def prior(self) -> dict[Theta, float]:
        """The theta_0 and their probabilities."""

    @abstractmethod
    def predictive(self, theta: Theta) -> Tables:
        """Eq. 7: p(s', o | theta, s, a), the expectation of D(s', o | s, a) over p(D; theta)."""

    @abstractmethod
    def update(self, theta: Theta, s: int, a: int, s_next: int, o: int) -> Theta:
        """U: the parameters after the transition (s, a, s', o)."""


class Family(TabularPosterior):
    """Finitely many D (Def. 1) with prior probabilities (Def. 2); theta is an index and U the identity."""

    def __init__(self, Ds: Float64[np.ndarray, "n S A S Z"], p: Float64[np.ndarray, " n"]) -> None:
        self.Ds, self.p = Ds, p

    def prior(self) -> dict[Theta, float]:
        return dict(enumerate(self.p.tolist()))

    def predictive(self, theta: Theta) -> Tables:
        return self.Ds[theta]

    def update(self, theta: Theta, s: int, a: int, s_next: int, o: int) -> Theta:
        return theta

    def evidence(self, H: FullHistory) -> float:
        """sum_D p(D) prod_i D(s_{i+1}, o_{i+1} | s_i, a_i): the products of Eq. 4."""
        likelihood = [self.Ds[:, *x] for x in transitions(H)]
        return float(self.p @ np.prod(likelihood, axis=0)) if likelihood else 1.0


def known(D: Tables) -> Family:
    """The point mass at D: a plain POMDP."""
    return Family(D[None], np.ones(1))


class DirichletTables(TabularPosterior):
    """The tabular BA-POMDP: theta is the transitions counted so far, on top of the prior's counts.

    Rows that are not `learned` (by default all are) stay at the prior's mean: they are known.
    """

    def __init__(
        self,
        T: Float[np.ndarray, "S A S"],
        O: Float[np.ndarray, "A S Z"],
        learned_T: Bool[np.ndarray, "S A"] | None = None,
        learned_O: Bool[np.ndarray, "A S"] | None = None,
    ) -> None:
        self.T, self.O = T.astype(np.float64), O.astype(np.float64)
        self.learned_T = np.ones(T.shape[:-1], bool) if learned_T is None else learned_T
        self.learned_O = np.ones(O.shape[:-1], bool) if learned_O is None else learned_O

    def prior(self) -> dict[Theta, float]:
        return {(0,) * (self.T.size + self.O.size): 1.0}

    def counts(self, theta: Theta) -> tuple[Float64[np.ndarray, "S A S"], Float64[np.ndarray, "A S Z"]]:
        """The Dirichlets' parameters: the prior's counts and theta's."""
        n_T, n_O = np.split(np.array(theta, np.float64), [self.T.size])
        return self.T + n_T.reshape(self.T.shape), self.O + n_O.reshape(self.O.shape)

    def predictive(self, theta: Theta) -> Tables:
        T, O = (counts / counts.sum(-1, keepdims=True) for counts in self.counts(theta))
        return T[..., None] * O[None]

    def update(self, theta: Theta, s: int, a: int, s_next: int, o: int) -> Theta:
        n = list(theta)
        if self.learned_T[s, a]:
            n[np.ravel_multi_index((s, a, s_next), self.T.shape)] += 1
        if self.learned_O[a, s_next]:
            n[self.T.size + np.ravel_multi_index((a, s_next, o), self.O.shape)] += 1
        return tuple(n)

    def evidence(self, H: FullHistory) -> float:
        """The Dirichlet-multinomial probability of H's transitions, in closed form from their counts."""
        seen = transitions(H)
        seen_T = [((s, a), s_next) for s, a, s_next, _ in seen]
        seen_O = [((a, s_next), o) for _, a, s_next, o in seen]
        return _rows_evidence(self.T, self.learned_T, seen_T) * _rows_evidence(self.O, self.learned_O, seen_O)

    def observation_moments(self, b: Mixture, a: int, s_next: int, o: int) -> tuple[float, float]:
        """Mean and variance of p(o | a, s'; D) over the whole mixture."""
        first = second = 0.0
        for theta, w in b.items():
            row = self.counts(theta)[1][a, s_next]
            mean = row[o] / row.sum()
            variance = mean * (1 - mean) / (row.sum() + 1) if self.learned_O[a, s_next] else 0.0
            first += w.sum() * mean
            second += w.sum() * (variance + mean**2)
        return float(first), float(second - first**2)


def _rows_evidence(alpha: np.ndarray, learned: np.ndarray, seen: list) -> float:
    """prod over rows of B(alpha + n) / B(alpha) as rising factorials; as powers where not learned."""
    p = 1.0
    for (row, x), n in Counter(seen).items():
        p *= math.prod(float(alpha[row][x]) + i * bool(learned[row]) for i in range(n))
    for row, n in Counter(row for row, _ in seen).items():
        p /= math.prod(float(alpha[row].sum()) + i * bool(learned[row]) for i in range(n))
    return p


class Tabulated(TabularPosterior):
    """Any `Posterior` of the library, run in float64.

    Where its prior, its draws or U are random, expectations are averages over `num_keys` keys: theta_0
    is one for each of them, and every theta keeps its key for the D and the U that it draws.
    """

    def __init__(self, posterior: Posterior, pomdp: POMDP, num_keys: int = 1, seed: int = 0) -> None:
        self.states, self.observations = all_vectors(pomdp.state_sizes), all_vectors(pomdp.observation_sizes)
        self._values: dict[Theta, PyTree] = {}
        self._cache: dict[Hashable, Any] = {}
        with jax.enable_x64(True):
            posterior = _float64(posterior)
            keys = jr.split(prng_key(seed), num_keys)
            theta_0 = [self._name(k, 0, posterior.prior(keys[k])) for k in range(num_keys)]
        self._prior = dict.fromkeys(theta_0, 1 / num_keys)

        def key_at(k: Int32[Array, ""], t: Int32[Array, ""]) -> Key[Array, "2"]:
            return jr.split(jr.fold_in(keys[k], t))  # one for D, one for U

        @jax.jit
        def table(k: Array, t: Array, value: PyTree) -> Float[Array, "S A S Z"]:
            return _dynamics_table(sample(posterior, key_at(k, t)[0], value), pomdp)

        @jax.jit
        def update(k: Array, t: Array, value: PyTree, x: tuple[Array, Array, Array, Array]) -> PyTree:
            return posterior.update(key_at(k, t)[1], value, *x)

        self._table, self._update = table, update

    def prior(self) -> dict[Theta, float]:
        return self._prior

    def predictive(self, theta: Theta) -> Tables:
        if theta not in self._cache:
            self._cache[theta] = np.asarray(self._run(self._table, theta))
        return self._cache[theta]

    def update(self, theta: Theta, s: int, a: int, s_next: int, o: int) -> Theta:
        name = theta, s, a, s_next, o
        if name not in self._cache:
            x = self.states[s], np.int32(a), self.states[s_next], self.observations[o]
            k, t, *_ = theta
            self._cache[name] = self._name(k, t + 1, self._run(self._update, theta, x))
        return self._cache[name]

    def _run(self, f: Callable, theta: Theta, *x: Any) -> Any:
        """f(k, t, value, *x) in float64."""
        k, t, *_ = theta
        with jax.enable_x64(True):
            return f(np.int32(k), np.int32(t), self._values[theta], *x)

    def _name(self, k: int, t: int, value: PyTree) -> Theta:
        """The hashable theta that stands for this value, reached with key k after t updates."""
        theta = (k, t, *(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(value)))
        self._values[theta] = value
        return theta


# --- the belief over (s, theta) ----------------------------------------------------------------------


def initial_mixture(posterior: TabularPosterior, p0: Weights) -> Mixture:
    """p(s_0, theta_0) = p_s0(s_0) p(theta_0)."""
    return {theta: p * p0 for theta, p in posterior.prior().items()}


def mixture_update(
    posterior: TabularPosterior,
    b: Mixture,
    a: int,
    o: int,
    given: Bool[np.ndarray, "S S"] | None = None,
) -> tuple[Mixture, float]:
    """Eq. 5-7: the belief over (s, theta) after (a, o), equal components merged, and p(o | h, a).

    Every component's weight is its prior weight times its transition likelihood, and U gives its theta.
    `given` says which (s, s') are possible, where more than o is known: that the episode goes on.
    """
    after: Mixture = {}
    for theta, w in b.items():
        joint = w[:, None] * posterior.predictive(theta)[:, a, :, o]
        joint = joint if given is None else joint * given
        for s, s_next in np.argwhere(joint).tolist():
            theta_next = posterior.update(theta, s, a, s_next, o)
            after.setdefault(theta_next, np.zeros(len(w)))[s_next] += joint[s, s_next]
    p_o = float(sum(w.sum() for w in after.values()))
    _require_possible(p_o, a, o)
    return {theta: w / p_o for theta, w in after.items()}, p_o


def next_episode(b: Mixture, p0: Weights) -> Mixture:
    """The next episode's prior: states redrawn from p_s0, models and their weights kept."""
    return {theta: w.sum() * p0 for theta, w in b.items()}


def state_probabilities(b: Mixture) -> Weights:
    """p(s | h)."""
    return sum(b.values(), np.zeros_like(next(iter(b.values()))))


def predictive(posterior: TabularPosterior, b: Mixture, a: int) -> Float64[np.ndarray, "S S Z"]:
    """p(s, s', o | h, a); summed over both states it is p(o | h, a)."""
    return np.sum([w[:, None, None] * posterior.predictive(theta)[:, a] for theta, w in b.items()], axis=0)


def log_evidence(posterior: TabularPosterior, p0: Weights, episodes: Iterable[History]) -> float:
    """log p(o_1, o_2, ... | a_0, a_1, ...) over whole episodes."""
    b, total = initial_mixture(posterior, p0), 0.0
    for h in episodes:
        b = next_episode(b, p0)
        for a, o in h:
            b, p_o = mixture_update(posterior, b, a, o)
            total += math.log(p_o)
    return total


def _canonical(b: Mixture) -> Hashable:
    """The same for beliefs that differ by rounding alone."""
    return frozenset((theta, *np.round(w, 12).tolist()) for theta, w in b.items())


def _require_possible(p_o: float, a: int, o: int) -> None:
    if not p_o > 0:
        raise ValueError(f"observation {o} is impossible after action {a} in this belief")


# --- planning ----------------------------------------------------------------------------------------


def optimal_Q(
    pomdp: TabularPOMDP, posterior: TabularPosterior | None = None
) -> Callable[[Mixture, int], ActionValues]:
    """Q*(b, steps) by dynamic programming over reachable beliefs; Bayes-adaptive where theta is learned.

    The reward, the discount and the ends of episodes are the POMDP's; its D counts only where no
    posterior is given.
    """
    posterior = posterior or known(pomdp.D)
    memo: dict[Hashable, np.ndarray] = {}

    def Q(b: Mixture, steps: int) -> ActionValues:
        name = steps, _canonical(b)
        if name not in memo:
            memo[name] = np.array([one_action(b, a, steps) for a in range(pomdp.R.shape[1])])
        return memo[name]

    def one_action(b: Mixture, a: int, steps: int) -> float:
        joint = predictive(posterior, b, a)
        value = np.sum(joint * pomdp.R[:, a, :, None])
        goes_on = ~pomdp.terminal[:, a]
        outcomes = np.flatnonzero(np.sum(joint * goes_on[..., None], (0, 1))) if steps > 1 else ()
        for o in map(int, outcomes):
            b_next, p_o = mixture_update(posterior, b, a, o, goes_on)
            value += pomdp.discount * p_o * Q(b_next, steps - 1).max()
        return float(value)

    return Q


def expectimax(
    pomdp: TabularPOMDP, steps: int | None = None, posterior: TabularPosterior | None = None
) -> tuple[float, ActionValues]:
    """The optimal value of an episode's first `steps` steps (default: all) from the prior, and its Q."""
    b = initial_mixture(posterior or known(pomdp.D), pomdp.p0)
    Q = optimal_Q(pomdp, posterior)(b, pomdp.horizon if steps is None else steps)
    return float(Q.max()), Q


def greedy(Q: Callable[[Mixture, int], ActionValues]) -> Policy:
    """The policy that takes the best action (of equals, the first)."""

    def policy(b: Mixture, steps: int) -> ActionValues:
        q = Q(b, steps)
        return np.eye(len(q))[q.argmax()]

    return policy


def policy_value(pomdp: TabularPOMDP, policy: Policy, posterior: TabularPosterior | None = None) -> float:
    """The expected return of an episode in `pomdp`, for an agent that believes in `posterior`.

    The agent acts on its own belief; the default is one that knows D. Forward over all its beliefs.
    """
    posterior = posterior or known(pomdp.D)
    b = initial_mixture(posterior, pomdp.p0)
    reached = {_canonical(b): (b, pomdp.p0)}  # the agent's belief, and p(it, s) in truth
    value = 0.0
    for t in range(pomdp.horizon):
        before, reached = reached, {}
        for b, w in before.values():
            for a, p_a in enumerate(policy(b, pomdp.horizon - t)):
                joint = p_a * w[:, None, None] * pomdp.D[:, a]
                value += pomdp.discount**t * float(np.sum(joint * pomdp.R[:, a, :, None]))
                goes_on = ~pomdp.terminal[:, a]
                p_next = np.sum(joint * goes_on[..., None], 0)
                for o in np.flatnonzero(p_next.sum(0)).tolist():
                    b_next, _ = mixture_update(posterior, b, a, o, goes_on)
                    name = _canonical(b_next)
                    _, w_next = reached.get(name, (b_next, 0.0))
                    reached[name] = b_next, w_next + p_next[:, o]
    return value


# --- Theorem 1 and the parameter update criterion ----------------------------------------------------


def transitions(H: FullHistory) -> list[tuple[int, int, int, int]]:
    """(s_i, a_i, s_{i+1}, o_{i+1}) for every step of H."""
    s, steps = H
    before = [s, *(s_next for _, s_next, _ in steps)]
    return [(s, *step) for s, step in zip(before, steps, strict=False)]


def state_sequences(pomdp: TabularPOMDP, evidence: Evidence, h: History) -> dict[FullHistory, float]:
    """p(s_0 ... s_t, o_1 ... o_t | a_0 ... a_{t-1}) for every state sequence: brute force, no recursion."""
    S, weights = len(pomdp.p0), {}
    for s, *rest in itertools.product(range(S), repeat=len(h) + 1):
        H = s, tuple((a, s_next, o) for (a, o), s_next in zip(h, rest, strict=True))
        weights[H] = float(pomdp.p0[s]) * evidence(H)
    return weights


HistoryStep = tuple[float, Float64[np.ndarray, " Z"]]  # R(h, a) and p(o | h, a)


def bporl_step(pomdp: TabularPOMDP, evidence: Evidence, h: History, a: int) -> HistoryStep:
    """The BPORL problem's history-MDP, R(h, a) and p(o | h, a), by brute force over state sequences."""
    p_h = sum(state_sequences(pomdp, evidence, h).values())
    p_o, reward = np.zeros(pomdp.D.shape[-1]), 0.0
    for o in range(len(p_o)):
        for H, p in state_sequences(pomdp, evidence, (*h, (a, o))).items():
            s, _, s_next, _ = transitions(H)[-1]
            p_o[o] += p / p_h
            reward += p / p_h * float(pomdp.R[s, a, s_next])
    return reward, p_o


def gba_step(pomdp: TabularPOMDP, posterior: TabularPosterior, h: History, a: int) -> HistoryStep:
    """The GBA-POMDP's history-MDP, R(h, a) and p(o | h, a), from its belief over (s, theta)."""
    b = initial_mixture(posterior, pomdp.p0)
    for a_i, o in h:
        b, _ = mixture_update(posterior, b, a_i, o)
    joint = predictive(posterior, b, a)
    return float(np.sum(joint * pomdp.R[:, a, :, None])), joint.sum((0, 1))


def full_histories(shape: tuple[int, int, int], depth: int) -> Iterator[FullHistory]:
    """Every H_t with t <= depth, for (S, A, Z) = shape."""
    S, A, Z = map(range, shape)
    for t in range(depth + 1):
        yield from itertools.product(S, itertools.product(itertools.product(A, S, Z), repeat=t))


def update_criterion_gap(
    posterior: TabularPosterior, evidence: Evidence, histories: Iterable[FullHistory]
) -> float:
    """Def. 3, Lemma 1: the largest |p(s', o | H_t, a) - p(s', o | theta_{H_t}, s_t, a)| over `histories`.

    The first is evidence(H_t, a, s', o) / evidence(H_t): with the evidence of the true prior, an exact
    Bayesian prediction. H_t of no evidence are passed over.
    """
    gap = 0.0
    for s_0, steps in histories:
        p_H = evidence((s_0, steps))
        if p_H == 0:
            continue
        s = steps[-1][1] if steps else s_0
        ours = sum(p * posterior.predictive(theta)[s] for theta, p in _after(posterior, (s_0, steps)))
        for x, p in np.ndenumerate(ours):
            gap = max(gap, abs(float(p) - evidence((s_0, (*steps, x))) / p_H))
    return gap


def _after(posterior: TabularPosterior, H: FullHistory) -> Iterator[tuple[Theta, float]]:
    """theta_{H_t}, from every theta_0 with its probability."""
    for theta, p in posterior.prior().items():
        for x in transitions(H):
            theta = posterior.update(theta, *x)
        yield theta, p


# --- the library's values as tables ------------------------------------------------------------------


def _float64(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, tree)


def _over_transitions(f: Callable, pomdp: POMDP) -> Array:
    """f(s, a, s') for all of them."""
    s, a = jnp.asarray(all_vectors(pomdp.state_sizes)), jnp.arange(pomdp.num_actions, dtype=jnp.int32)
    f = jax.vmap(f, (None, None, 0))
    return jax.vmap(jax.vmap(f, (None, 0, None)), (0, None, None))(s, a, s)


def _dynamics_table(D: Dynamics, pomdp: POMDP) -> Float[Array, "S A S Z"]:
    """D(s', o | s, a) for all of them."""
    o = jnp.asarray(all_vectors(pomdp.observation_sizes))
    log_prob = jax.vmap(D.log_prob, (None, None, None, 0))
    return jnp.exp(_over_transitions(lambda s, a, s_next: log_prob(s, a, s_next, o), pomdp))
