"""Small POMDPs and their exact values, by brute force."""

import numpy as np

from baddr.solve.model import SparseModel, from_tables


def random_model(seed: int, discount: float = 0.9, sizes=(3, 2, 2), ends: float = 0.0) -> SparseModel:
    """Rows are Dirichlet with some zeros; a share of the transitions ends the episode."""
    rng, (S, A, Z) = np.random.default_rng(seed), sizes
    T, O = (rng.dirichlet(np.full(n, 0.6), (A, S)) for n in (S, Z))
    T[rng.random(T.shape) < 0.3] = 0
    T[..., 0] += 1e-3
    T /= T.sum(axis=-1, keepdims=True)
    R = rng.normal(size=(A, S, S)) * 3
    terminal = rng.random((A, S, S)) < ends if ends else None
    return from_tables(T, O, R, rng.dirichlet(np.ones(S)), discount, terminal)


def exact_value(model: SparseModel, b: np.ndarray, steps: int) -> float:
    """max_a R_a b + gamma sum_o V(p(s', o | b, a)): V scales with b, which need not sum to one."""
    if steps == 0 or not b.any():
        return 0.0
    return max(action_value(model, b, steps, a) for a in range(model.num_actions))


def action_value(model: SparseModel, b: np.ndarray, steps: int, a: int) -> float:
    T, O = model.T[a].toarray(), model.O[a].toarray()
    ahead = sum(exact_value(model, (b @ T) * O[:, o], steps - 1) for o in range(model.num_observations))
    return float(model.R[a] @ b) + model.discount * ahead


def policy_value(model: SparseModel, solution, b: np.ndarray, steps: int) -> float:
    """Of acting by the best vector for the steps left, exactly."""
    if steps == 0 or not b.any():
        return 0.0
    mine = np.flatnonzero((solution.steps_left == steps) | (solution.steps_left == 0))
    a = int(solution.actions[mine[np.argmax(solution.alphas[mine] @ b)]])
    T, O = model.T[a].toarray(), model.O[a].toarray()
    after = [(b @ T) * O[:, o] for o in range(model.num_observations)]
    ahead = sum(policy_value(model, solution, w, steps - 1) for w in after)
    return float(model.R[a] @ b) + model.discount * ahead
