"""`from_tables`: a domain of arrays is the one that it was taken from, and each mistake has its sentence."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from baddr import prng
from baddr.domains import check, from_tables, tiger
from baddr.domains.finite import Prior
from baddr.errors import UserError
from baddr.exact import DirichletTables, expectimax, tabulate

P0 = np.array([0.5, 0.5])
OPENS = np.tile([True, True, False], (2, 1))  # [s, a]
T = np.stack([np.full((2, 2), 0.5), np.full((2, 2), 0.5), np.eye(2)], axis=1)
O = np.array([[[0, 0, 1]] * 2, [[0, 0, 1]] * 2, [[0.85, 0.15, 0], [0.15, 0.85, 0]]])
R = np.array([[10.0, -100.0, -1.0], [-100.0, 10.0, -1.0]])  # [s, a]
NAMES = ("left", "right"), ("open-left", "open-right", "listen"), ("left", "right", "null")


def tables(**options):
    return from_tables(T, O, R, P0, 0.95, **{"horizon": 30, "terminal": OPENS, **options})


def test_tiger_by_tables_is_tiger():
    """Dynamics, rewards and ends by table; and the optimal values to a depth of 4, known and learned."""
    ours, theirs = tabulate(tables().pomdp, P0), tabulate(tiger.make_domain().pomdp, P0)
    np.testing.assert_allclose(ours.D, theirs.D, atol=1e-7)
    np.testing.assert_array_equal(ours.R, theirs.R)
    np.testing.assert_array_equal(ours.terminal, theirs.terminal)
    for steps in range(1, 5):
        np.testing.assert_allclose(expectimax(ours, steps)[1], expectimax(theirs, steps)[1], atol=1e-5)
    counts = tiger.make_domain().counts
    learner = DirichletTables(np.asarray(counts.T), np.asarray(counts.O))
    Q, expected = (expectimax(pomdp, 2, learner)[1] for pomdp in (ours, theirs))
    np.testing.assert_allclose(Q, expected, atol=1e-5)


def test_tables_of_jax_lists_and_floats_are_the_same():
    lists = from_tables(T.tolist(), jnp.asarray(O), R.astype(np.float32), [0.5, 0.5], 0.95, terminal=OPENS)
    for ours, theirs in zip(jax.tree.leaves(lists.pomdp), jax.tree.leaves(tables().pomdp), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.filterwarnings("error")
def test_a_domain_of_tables_keeps_its_promises():
    assert check.problems(tables(names=NAMES)) == []
    assert check.problems(from_tables(T, O, R, [1, 0], 1.0, prior=Prior(noise=0.0, learned="O"))) == []


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 3, 2)])
def test_rewards_of_states_of_actions_and_of_transitions(shape):
    rewards = np.arange(np.prod(shape), dtype=float).reshape(shape)
    pomdp = from_tables(T, O, rewards, P0, 0.95).pomdp
    for s, a, s_next in np.ndindex(2, 3, 2):
        r = pomdp.reward(jnp.array([s], jnp.int32), jnp.int32(a), jnp.array([s_next], jnp.int32))
        assert float(r) == rewards[(s, a, s_next)[: len(shape)]]


@pytest.mark.parametrize(
    ("terminal", "ends"),
    [
        (None, lambda s, a, s_next: False),
        ([1], lambda s, a, s_next: s_next == 1),
        (np.array([False, True]), lambda s, a, s_next: s_next == 1),
        (OPENS, lambda s, a, s_next: a != 2),
        (np.arange(12).reshape(2, 3, 2) == 7, lambda s, a, s_next: (s, a, s_next) == (1, 0, 1)),
    ],
    ids=["none", "numbers", "states", "actions", "transitions"],
)
def test_an_episode_ends_where_it_should(terminal, ends):
    found = tabulate(tables(terminal=terminal).pomdp, P0).terminal
    for index in np.ndindex(2, 3, 2):
        assert found[index] == ends(*index)


def test_the_first_state_is_drawn_from_start():
    """10,000 draws, 5 standard errors."""
    pomdp = from_tables(T, O, R, [0.2, 0.8], 0.95).pomdp
    s = np.asarray(jax.vmap(pomdp.initial_state)(jr.split(prng.key(0), 10_000)))
    assert abs(s.mean() - 0.8) < 5 * np.sqrt(0.16 / 10_000)


def test_the_prior_is_as_stated():
    """total * ((1 - noise) * truth + noise * uniform), by hand for a row of each table."""
    two_actions = T[:, 1:], O[1:], R[:, 1:]  # fewer than observations: a row's length is its own
    domain = from_tables(*two_actions, P0, 0.95, prior=Prior(total=6.0, noise=0.5))
    np.testing.assert_allclose(domain.counts.T[0, 1], [3 + 1.5, 1.5], rtol=1e-6)
    np.testing.assert_allclose(domain.counts.O[1, 1], [0.45 + 1, 2.55 + 1, 1], rtol=1e-6)
    np.testing.assert_allclose(domain.expected_simulator.O, domain.counts.O / 6, rtol=1e-6)
    half = tables(prior=Prior(total=6.0, learned="O"))
    np.testing.assert_allclose(half.counts.T, 10_000 * T, rtol=1e-6)
    assert half.learned == "O" and np.array_equal(half.sample_simulator(prng.key(0)).T, T.astype(np.float32))


def test_other_tables_are_another_domain():
    """The cache of trained priors goes by the domain's name."""
    other = np.array([[[0, 0, 1]] * 2, [[0, 0, 1]] * 2, [[0.75, 0.25, 0], [0.15, 0.85, 0]]])
    names = {tables().name, from_tables(T, other, R, P0, 0.95).name}
    assert len(names) == 2 and all(name.startswith("tables-") for name in names)
    assert tables(names=NAMES).names.observation == (("observation", NAMES[2]),)


BAD = {
    "T must be an array T[s, a, s'], not of shape (2, 2).": {"T": np.eye(2)},
    "T[s, a, s'] must have as many s' as s, not 1 and 2.": {"T": np.ones((2, 3, 1))},
    "T holds probabilities; T[1, 0, 0] is -0.5.": {"T": T - np.eye(12)[6].reshape(2, 3, 2)},
    "The probabilities of O[2, 0] sum to 0.9, not to 1.": {"O": O - 0.1 * np.eye(18)[13].reshape(3, 2, 3)},
    "T has 3 actions and 2 states, so O[a, s', o] needs shape (3, 2, _), not (2, 2, 3).": {"O": O[:2]},
    "O must be an array of numbers.": {"O": "many"},
    "R must be finite; R[0, 1] is nan.": {"R": np.where(R == -100, np.nan, R)},
    "R must be an array R[s, a, s'], R[s, a] or R[s], of shape (2, 3, 2), (2, 3) or (2,), not (3,).": {
        "R": [1, 2, 3]
    },
    "T has 2 states, so start needs 2 probabilities, not 3.": {"start": [0.5, 0.5, 0.0]},
    "The probabilities of start sum to 2, not to 1.": {"start": [1, 1]},
    "discount must lie in [0, 1].": {"discount": 1.5},
    "horizon must be at least 1.": {"horizon": 0},
    "prior.noise must lie in [0, 1].": {"prior": Prior(noise=2.0)},
    "terminal must list states, 0 to 1, or be an array of True and False.": {"terminal": [2]},
    "terminal must have shape (2,), (2, 3) or (2, 3, 2), not (3,).": {"terminal": [True, False, True]},
    "names must be those of 2 states, 3 actions and 3 observations.": {"names": (NAMES[0], NAMES[1], "ab")},
}


@pytest.mark.parametrize("sentence", BAD)
def test_what_is_wrong_with_the_tables_is_said_in_a_sentence(sentence):
    given = {"T": T, "O": O, "R": R, "start": P0, "discount": 0.95}
    with pytest.raises(UserError) as error:
        from_tables(**{**given, **BAD[sentence]})
    assert str(error.value) == sentence
