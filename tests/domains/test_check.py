"""`baddr.domains.check`: every domain of the package keeps its promises, and each broken promise is named."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest

from baddr.core.pomdp import POMDP, Dynamics, SplitDynamics, Table
from baddr.domains import catalog, check, hooks
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.posteriors import Counts

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = {
    "tiger": {},
    "road-racing": {"lanes": 2},
    "collision-avoidance": {"size": 3},
    "gridverse": {"size": 4},
    "factored-tiger": {"irrelevant": 1},
    "sysadmin": {"computers": 2},
    "rock-sample": {"size": 2, "rocks": 1},
    "tag": {"width": 2},
    "t-maze": {"length": 2},
    "light-dark": {"reach": 2, "light": 1},
    "battleship": {"size": 2, "ships": (2,)},
    "maintenance": {},
    str(EXAMPLES / "tiger.pomdp"): {},
    str(EXAMPLES / "machine.pomdp"): {},
    str(EXAMPLES / "maintenance.py"): {},
}


LATER = ("factored-tiger", "sysadmin", str(EXAMPLES / "machine.pomdp"))  # the slowest: `make slow`
BY_NAME = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in LATER), id=Path(name).name) for name in SMALL
]


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.filterwarnings("ignore:.*rewards depend on the observation")
def test_every_domain_keeps_its_promises(name):
    entry = catalog.entry(name)
    domain = entry.make_domain(replace(entry.settings, **SMALL[name]))
    assert check.problems(domain) == []


def test_every_domain_of_the_catalogue_is_among_them():
    assert set(catalog.DOMAINS) <= set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.DOMAINS)
def test_domains_of_their_usual_size(name):
    entry = catalog.entry(name)
    assert check.problems(entry.make_domain(entry.settings)) == []


# --- one small domain, and all that can be wrong with it ----------------------------------------------


class Coin(POMDP):
    """Two coins; action 1 flips the first. The second is seen."""

    dynamics: Dynamics
    state_sizes: tuple = eqx.field(static=True, default=(2, 2))
    observation_sizes: tuple = eqx.field(static=True, default=(2,))
    num_actions: int = eqx.field(static=True, default=2)
    discount: float = eqx.field(static=True, default=0.9)
    horizon: int = eqx.field(static=True, default=5)

    def initial_state(self, key):
        return jr.bernoulli(key, shape=(2,)).astype(jnp.int32)

    def initial_observation(self, key, s):
        return s[1:]

    def step(self, key, s, a):
        return self.dynamics.step(key, s, a)

    def reward(self, s, a, s_next):
        return s_next[0].astype(float)

    def is_terminal(self, s, a, s_next):
        return jnp.all(s_next == 1)


class Flip(SplitDynamics):
    """The first coin flips with probability p if a is 1; the second is redrawn, heads with probability q."""

    p: jnp.ndarray
    q: jnp.ndarray

    def sample_state(self, key, s, a):
        u = jr.uniform(key, (2,))
        first = jnp.where((a == 1) & (u[0] < self.p), 1 - s[0], s[0])
        return jnp.stack([first, (u[1] < self.q).astype(jnp.int32)])

    def sample_observation(self, key, s, a, s_next):
        return s_next[1:]

    def transition_log_prob(self, s, a, s_next):
        p = jnp.where(a == 1, self.p, 0.0)
        first = jnp.where(s_next[0] == s[0], 1 - p, p)
        return jnp.log(first) + jnp.log(jnp.where(s_next[1] == 1, self.q, 1 - self.q))

    def observation_log_prob(self, s, a, s_next, o):
        return jnp.where(o[0] == s_next[1], 0.0, -jnp.inf)


FLIP = Flip(jnp.array(0.5), jnp.array(0.3))
POINT = Counts(jnp.ones((4, 2, 4)), jnp.ones((2, 4, 2)))


def coin(kind=Coin, D=FLIP, **members) -> Domain:
    given = {
        "sample_simulator": lambda key: Flip(jr.uniform(key), jnp.array(0.3)),
        "expected_simulator": FLIP,
    }
    return Domain("coin", kind(D), **{**given, "counts": POINT, **members})


def test_a_sound_domain_has_no_problems_and_says_what_was_checked():
    domain = coin(
        is_legal=lambda s: s[0] < 2, leaf_value=lambda s: s[0].astype(float), describe=lambda *_: {}
    )
    assert check.structure_problems(domain) == [] == check.problems(domain)
    lines = check.checked(domain)
    assert any(line.startswith("counts:") for line in lines) and any("is_legal:" in line for line in lines)
    assert not any("is_legal:" in line for line in check.checked(coin()))


def with_method(base, **methods):
    """A subclass with other methods."""
    return type(base)(base.__name__ + "X", (base,), methods)


def coin_with(**methods) -> Domain:
    return coin(with_method(Coin, **methods))


def flip_with(**methods) -> Domain:
    return coin(D=with_method(Flip, **methods)(FLIP.p, FLIP.q))


def forced(**members) -> Domain:
    """Members that the tests' own type checks would refuse; a user has none."""
    domain = coin()
    for name, value in members.items():
        object.__setattr__(domain, name, value)
    return domain


STRUCTURE = {  # seen from shapes and types alone: `baddr run` refuses these
    "pomdp is of type": lambda: forced(pomdp=None),
    r"pomdp.state_sizes .* \(2, 0\)": lambda: coin(lambda D: Coin(D, state_sizes=(2, 0))),
    r"pomdp.observation_sizes .* \[2\]": lambda: coin(lambda D: Coin(D, observation_sizes=[2])),
    "pomdp.num_actions .* 0": lambda: coin(lambda D: Coin(D, num_actions=0)),
    "pomdp.horizon .* 0": lambda: coin(lambda D: Coin(D, horizon=0)),
    "pomdp.discount .* 1.5": lambda: coin(lambda D: Coin(D, discount=1.5)),
    "pomdp.dynamics must be": lambda: coin(D=None),
    r"pomdp.initial_state.* int32 of shape \(2,\).* shape \(\)": lambda: coin_with(
        initial_state=lambda self, key: jnp.int32(0)
    ),
    r"pomdp.initial_observation.* not of float32": lambda: coin_with(
        initial_observation=lambda self, key, s: jnp.zeros((1,))
    ),
    r"pomdp.step.*, output 0, .* shape \(2,\).* shape \(1,\)": lambda: coin_with(
        step=lambda self, key, s, a: (s[:1], s[1:])
    ),
    "pomdp.step.* must return 2 arrays": lambda: coin_with(step=lambda self, key, s, a: s),
    "pomdp.step.* raised TypeError": lambda: coin_with(step=lambda self, key, s: s),
    r"pomdp.reward.* shape \(\) .* shape \(2,\)": lambda: coin_with(
        reward=lambda self, s, a, s_next: s.astype(float)
    ),
    "pomdp.reward.* not of int32": lambda: coin_with(reward=lambda self, s, a, s_next: s[0]),
    "pomdp.is_terminal.* not of type bool": lambda: coin_with(is_terminal=lambda self, s, a, s_next: False),
    r"pomdp.dynamics.transition_log_prob.* shape \(2,\)": lambda: flip_with(
        transition_log_prob=lambda self, s, a, s_next: jnp.zeros((2,))
    ),
    r"pomdp.dynamics.sample_observation.* shape \(2,\)": lambda: flip_with(
        sample_observation=lambda self, key, s, a, s_next: s_next
    ),
    "expected_simulator must be": lambda: forced(expected_simulator=0.5),
    "sample_simulator.* must be": lambda: coin(sample_simulator=lambda key: 0.5),
    "sample_simulator.* raised": lambda: coin(sample_simulator=lambda: FLIP),
    r"counts.T .* \(4, 2, 4\).* \(2, 4, 4\)": lambda: coin(
        counts=Counts(jnp.ones((2, 4, 4)), jnp.ones((2, 4, 2)))
    ),
    r"counts.O .* \(2, 4, 2\).* \(4, 2, 2\)": lambda: coin(
        counts=Counts(jnp.ones((4, 2, 4)), jnp.ones((4, 2, 2)))
    ),
    "is_legal.* bool": lambda: coin(is_legal=lambda s: s[0]),
    r"leaf_value.* shape \(2,\)": lambda: coin(leaf_value=lambda s: s.astype(float)),
    r"rollout.* int32 of shape \(\)": lambda: coin(rollout=lambda key, s: s),
    "rollout.* raised TypeError": lambda: coin(rollout=lambda s: jnp.int32(0)),
    r"legal\(s\) .* bool of shape \(2,\)": lambda: coin(legal=lambda s: s[0] < 1),
    r"preferred\(s\) .* not of int32": lambda: coin(preferred=lambda s: s),
    "learned must be": lambda: coin(learned="OT"),
}


@pytest.mark.parametrize("sentence", STRUCTURE)
def test_a_malformed_domain_is_refused_with_the_member_named(sentence):
    wrong = check.structure_problems(STRUCTURE[sentence]())
    assert len(wrong) >= 1
    with pytest.raises(UserError, match=sentence):
        check.refuse_malformed(STRUCTURE[sentence]())


CALLS = itertools.count()


def noise(*_):
    """Not from the key."""
    return jnp.array([next(CALLS) // 2 % 2, 0], jnp.int32)  # 0, 0, 1, 1, ...: differs from trace to trace


class Whole(Dynamics):
    """Flip without its factors apart, whose log_prob is `log_prob`'s plus something."""

    D: Flip
    observation_too_much: float = eqx.field(static=True, default=0.0)

    def step(self, key, s, a):
        return self.D.step(key, s, a)

    def log_prob(self, s, a, s_next, o):
        return self.D.log_prob(s, a, s_next, o)

    def observation_log_prob(self, s, a, s_next, o):
        return self.D.observation_log_prob(s, a, s_next, o) + self.observation_too_much


VALUES = {  # seen from values: `baddr check` says these
    "pomdp.initial_state: feature 1 takes the value 2, outside 0 to 1": lambda: coin_with(
        initial_state=lambda self, key: jnp.array([0, 2], jnp.int32)
    ),
    "pomdp.initial_observation: feature 0 takes the value -1": lambda: coin_with(
        initial_observation=lambda self, key, s: jnp.array([-1], jnp.int32)
    ),
    "pomdp.step, s': feature 0 takes the value 3": lambda: coin_with(
        step=lambda self, key, s, a: (jnp.array([3, 0], jnp.int32), s[1:])
    ),
    "pomdp.step, o: feature 0 takes the value 9": lambda: coin_with(
        step=lambda self, key, s, a: (s, jnp.array([9], jnp.int32))
    ),
    "pomdp.reward is not finite": lambda: coin_with(
        reward=lambda self, s, a, s_next: jnp.log(s_next[0].astype(float))
    ),
    "pomdp.step returns different values for the same arguments": lambda: coin_with(
        step=lambda self, key, s, a: (noise(), noise()[:1])
    ),
    "pomdp.dynamics.log_prob: the probabilities for .* sum to 0.5": lambda: flip_with(
        transition_log_prob=lambda self, s, a, s_next: (
            Flip.transition_log_prob(self, s, a, s_next) - jnp.log(2.0)
        )
    ),
    "pomdp.dynamics.observation_log_prob: the probabilities for .* sum to 2": lambda: flip_with(
        observation_log_prob=lambda self, s, a, s_next, o: jnp.array(0.0)
    ),
    "pomdp.dynamics.observation_log_prob does not agree with log_prob": lambda: coin(D=Whole(FLIP, 0.5)),
    r"pomdp.dynamics.step draws .* of 4096 draws .* probability is 0.\d": lambda: flip_with(
        sample_state=lambda self, key, s, a: Flip.sample_state(Flip(self.p + 0.1, self.q), key, s, a)
    ),
    "pomdp.dynamics.step draws .* probability is 0.0000": lambda: flip_with(
        sample_observation=lambda self, key, s, a, s_next: 1 - s_next[1:]
    ),
    "pomdp.with_dynamics.sample_simulator.*.step draws": lambda: coin_with(  # the truth, whatever D is
        step=lambda self, key, s, a: FLIP.step(key, s, a)
    ),
    "expected_simulator.log_prob: the probabilities": lambda: coin(
        expected_simulator=with_method(
            Flip, transition_log_prob=lambda self, s, a, s_next: jnp.log(jnp.array(0.3))
        )(FLIP.p, FLIP.q)
    ),
    r"counts.T: row \[0, 1\] is all zero": lambda: coin(counts=POINT._replace(T=POINT.T.at[0, 1].set(0.0))),
    "counts.O must be finite and not negative": lambda: coin(counts=POINT._replace(O=-POINT.O)),
    r"is_legal rejects \[0, 0\]": lambda: coin(is_legal=lambda s: s[0] > 0),
    "leaf_value is not finite": lambda: coin(leaf_value=lambda s: jnp.log(s[0].astype(float))),
    r"legal allows no action in \[1, 0\]": lambda: coin(legal=lambda s: jnp.full((2,), s[0] < 1)),
    "rollout chose action 2, outside 0 to 1": lambda: coin(rollout=lambda key, s: jnp.int32(2)),
    r"rollout chose action 0 in \[0, 0\], where legal": lambda: coin(
        rollout=lambda key, s: jnp.int32(0), legal=lambda s: jnp.array([False, True])
    ),
    "describe.* raised ValueError: no": lambda: coin(
        describe=lambda *_: (_ for _ in ()).throw(ValueError("no"))
    ),
    "describe.* must return a dict": lambda: coin(describe=lambda *_: {"x": jnp.zeros((2, 2))}),
}


CHECK_OF = {"pomdp.initial": "_values", "pomdp.reward": "_values", "counts": "_rows", "is_legal": "_legal"}
CHECK_OF |= {"leaf_value": "leaf_is_finite", "legal": "some_action_is_legal"}
CHECK_OF |= {
    "rollout": "rollout_is_an_action",
    "describe": "_describes",
    "expected": "_simulator_probabilities",
}
CHECK_OF |= {"pomdp.with_dynamics": "_simulator_probabilities", "pomdp.dynamics": "_true_probabilities"}
CHECK_OF |= {"pomdp.step, ": "_values", "pomdp.step returns": "_determined"}


@pytest.mark.parametrize("sentence", VALUES)
def test_a_broken_promise_is_named(sentence, monkeypatch):
    """Only the check that should see it is run: the others take seconds to compile."""
    chosen = next(check for start, check in CHECK_OF.items() if sentence.startswith(start))
    monkeypatch.setattr(check, "CHECKS", (getattr(check, chosen, None) or getattr(hooks, chosen),))
    domain = VALUES[sentence]()
    assert check.structure_problems(domain) == []
    wrong = check.problems(domain)
    assert any(re.search(sentence, said) for said in wrong), wrong


def test_small_errors_of_a_probability_are_seen():
    """4096 draws: a p of .3 has a standard error of .0072, and .05 more is found."""
    off = flip_with(
        sample_state=lambda self, key, s, a: Flip.sample_state(Flip(self.p, self.q + 0.05), key, s, a)
    )
    assert any("draws" in said for said in check._true_probabilities(off))


def test_rows_of_a_table_with_many_outcomes_are_not_blamed():
    """36 outcomes a row, many with probabilities far below 1 / 4096: rare draws are no mistake."""
    T = jr.dirichlet(jr.key(0), jnp.full((36,), 0.1), (36, 2))
    D = Table(T, jnp.ones((2, 36, 2)), (6, 6), (2,))
    assert list(check._true_probabilities(Domain("many", Coin(D, state_sizes=(6, 6))))) == []
