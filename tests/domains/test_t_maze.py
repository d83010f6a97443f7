"""T-maze against a second version, frequencies and a closed form."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import t_maze
from baddr.domains.tables import observation_table, transition_table
from baddr.solve.listing import sparse_model

NORTH, EAST, SOUTH, WEST = range(4)


def second_version(n, s, a, reliability=0.9):
    """s', {o: probability}, reward, whether it ends."""
    position, side = s
    if position == n + 1 and a in (NORTH, SOUTH):
        right = side == (0 if a == NORTH else 1)
        return s, {4 if right else 5: 1.0}, 4.0 if right else -0.1, True
    if position == 0:
        there = 1
    elif a in (EAST, WEST):
        there = min(max(position + (1 if a == EAST else -1), 1), n + 1)
    else:
        there = position
    cue = {side: reliability, 1 - side: 1 - reliability}
    o = cue if there == 1 else {3 if there == n + 1 else 2: 1.0}
    return (there, side), o, -0.1 if there == position else 0.0, False


@pytest.mark.parametrize("n", [2, 4])
def test_every_step_against_the_second_version(n):
    pomdp = t_maze.make_domain(length=n).pomdp
    T, O = transition_table(pomdp.dynamics, pomdp), observation_table(pomdp.dynamics, pomdp)
    for (position, side), a in itertools.product(itertools.product(range(n + 2), range(2)), range(4)):
        s_next, o, r, ends = second_version(n, (position, side), a)
        i, j = position * 2 + side, s_next[0] * 2 + s_next[1]
        assert T[i, a, j] == 1
        np.testing.assert_allclose(O[a, j], [o.get(z, 0.0) for z in range(6)], atol=1e-6)
        given = jnp.array([position, side], jnp.int32), jnp.int32(a), jnp.array(s_next, jnp.int32)
        assert float(pomdp.reward(*given)) == pytest.approx(r)
        assert bool(pomdp.is_terminal(*given)) == ends


def test_frequencies_of_the_cue():
    """4096 looks: within 4 standard errors of the reliability."""
    D, n = t_maze.make_domain(reliability=0.7).pomdp.dynamics, 4096
    _, o = jax.jit(jax.vmap(D.step, (0, None, None)))(
        jr.split(prng.key(0), n), jnp.array([0, 1], jnp.int32), jnp.int32(EAST)
    )
    assert abs(np.mean(np.asarray(o)[:, 0] == 1) - 0.7) < 4 * (0.21 / n) ** 0.5


def test_counts_and_graph_expect_the_same():
    """Hearing the cue in counts, graph and simulators: .4, on both sides."""
    domain = t_maze.make_domain(length=2)
    row = np.asarray(domain.counts.O[EAST, 1 * 2 + 1])
    assert row == pytest.approx([3.0, 2.0, 0, 0, 0, 0])
    seen = domain.graphs["default"].O[0][EAST]
    assert seen.row(1, 1) == pytest.approx(row) and seen.row(2, 1)[2] == 10_000
    draws = jax.vmap(lambda key: domain.sample_simulator(key).reliability)(jr.split(prng.key(1), 4000))
    assert abs(float(draws.mean()) - 0.4) < 4 * float(draws.std()) / 4000**0.5 and draws.std() > 0.15


def test_the_active_variant_starts_beyond_the_cue():
    for variant, begin in (("passive", 0), ("active", 2)):
        pomdp = t_maze.make_domain(variant=variant).pomdp
        assert pomdp.initial_state(prng.key(0))[0] == begin
        assert np.flatnonzero(pomdp.start).tolist() == [2 * begin, 2 * begin + 1]
        assert sparse_model(pomdp).start.sum() == pytest.approx(1)


def expectimax(n, belief, steps, reliability, gamma=0.98):
    """V of a belief {(position, side): p}, in the second version."""
    if steps == 0:
        return 0.0
    best = -np.inf
    for a in range(4):
        total, children = 0.0, {}
        for s, p in belief.items():
            s_next, seen, r, ends = second_version(n, s, a, reliability)
            total += p * r
            for o, q in seen.items():
                if not ends and p * q > 0:
                    child = children.setdefault(o, {})
                    child[s_next] = child.get(s_next, 0.0) + p * q
        for child in children.values():
            mass = sum(child.values())
            after = {s: p / mass for s, p in child.items()}
            total += gamma * mass * expectimax(n, after, steps - 1, reliability, gamma)
        best = max(best, total)
    return best


def test_bounds_enclose_the_optimum():
    """From every cell, with a treat that is likely in the north: expectimax of the second version."""
    n, h = 2, 6
    domain = t_maze.make_domain(length=n, horizon=h, reliability=0.8)
    for position, p in itertools.product(range(n + 2), (0.5, 0.8, 1.0)):
        b = {(position, 0): p, (position, 1): 1 - p}
        vectors = lambda f, position=position: np.stack(
            [f(jnp.array([position, side], jnp.int32), jnp.int32(h)) for side in range(2)]
        )
        lower, upper = (float(np.max([p, 1 - p] @ vectors(f))) for f in (domain.lower, domain.upper))
        V = expectimax(n, b, h, 0.8)
        assert lower - 1e-5 <= V <= upper + 1e-5


def test_a_reliable_cue_is_worth_the_treat():
    """With reliability 1 one walks n + 1 steps and turns: 4 * .98^(n + 1), by exact recursion over
    beliefs."""
    n = 3
    assert expectimax(n, {(0, 0): 0.5, (0, 1): 0.5}, n + 3, 1.0) == pytest.approx(4 * 0.98 ** (n + 1))
