"""Battleship against a second version: places, fleets, shots."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import battleship
from baddr.domains.battleship.settings import places


def touching(one, other, n):
    return any(max(abs(a // n - b // n), abs(a % n - b % n)) <= 1 for a in one for b in other)


def second_fleets(n, ships, edge, apart):
    """{(place of each ship): probability}."""
    coast = lambda cell: cell // n in (0, n - 1) or cell % n in (0, n - 1)
    weight = lambda at: math.exp(edge * sum(map(coast, at)) / len(at))
    fleets = {(): 1.0}
    for length in ships:
        after = {}
        for fleet, p in fleets.items():
            clash = lambda at, fleet=fleet: any(touching(at, x, n) if apart else {*at} & {*x} for x in fleet)
            free = [at for at in places(n, length) if not clash(at)]
            total = sum(map(weight, free))
            after |= {(*fleet, at): p * weight(at) / total for at in free}
        fleets = after
    return fleets


@pytest.mark.parametrize("rules", ["apart", "free"])
def test_every_fleet_against_the_second_version(rules):
    n, ships, edge = 4, (3, 2), 1.3
    domain = battleship.make_domain(size=n, ships=ships, rules=rules, edge=edge)
    expected = second_fleets(n, ships, edge, rules == "apart")
    assert sum(expected.values()) == pytest.approx(1)
    options = [places(n, length) for length in ships]
    pairs = list(itertools.product(*map(enumerate, options)))
    s = np.zeros((len(pairs), 18), np.int32)
    s[:, :2] = [[1 + i for i, _ in pair] for pair in pairs]
    log_p = eqx.filter_jit(jax.vmap(domain.pomdp.dynamics.transition_log_prob, (None, None, 0)))
    found = np.exp(np.asarray(log_p(jnp.zeros(18, jnp.int32), jnp.int32(5), jnp.asarray(s))))
    wanted = [expected.get(tuple(at for _, at in pair), 0.0) for pair in pairs]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_frequencies_of_the_first_ship():
    """4096 fleets: within 4 standard errors."""
    n, D = 4096, battleship.make_domain(size=3, ships=(2,), edge=1.0).pomdp.dynamics
    keys, nothing = jr.split(prng.key(0), n), jnp.zeros(10, jnp.int32)
    s_next, o = jax.jit(jax.vmap(D.step, (0, None, None)))(keys, nothing, jnp.int32(0))
    expected = second_fleets(3, (2,), 1.0, True)
    p = np.array([0.0, *(expected[(at,)] for at in places(3, 2))])
    count = np.bincount(np.asarray(s_next)[:, 0], minlength=len(p)) / n
    assert np.all(np.abs(count - p) <= 4 * np.sqrt(p * (1 - p) / n) + 1e-9)
    assert np.all(np.asarray(o) == 0) and np.all(np.asarray(s_next)[:, 1:] == 0)


def test_a_game():
    """Shots at a ship on cells 0 and 1 of nine: miss, hit, the same again, and the last one wins."""
    pomdp = battleship.make_domain(size=3, ships=(2,)).pomdp
    s = jnp.zeros(10, jnp.int32).at[0].set(1)  # places(3, 2)[0] is (0, 1)
    story = [(4, 1, -1.0, False), (0, 2, -1.0, False), (0, 2, -10.0, False), (1, 2, 8.0, True)]
    for a, seen, reward, over in story:
        s_next, o = pomdp.step(prng.key(0), s, jnp.int32(a))
        assert int(o[0]) == seen and int(s_next[1 + a]) == 1 and int(s_next[0]) == 1
        assert float(pomdp.reward(s, jnp.int32(a), s_next)) == reward
        assert bool(pomdp.is_terminal(s, jnp.int32(a), s_next)) == over
        s = s_next
    domain = battleship.make_domain(size=3, ships=(2,))
    assert np.flatnonzero(domain.legal(s)).tolist() == [2, 3, 5, 6, 7, 8]
