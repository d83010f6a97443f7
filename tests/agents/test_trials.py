"""`baddr check` of a posterior, a planner and a filter: good ones pass, and each broken promise is named."""

from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from baddr import Counts, Dirichlet, Importance, Plan, Planner, Posterior, PoUct, Rejection, Table
from baddr.agents import trials
from baddr.cli import main
from baddr.core.filters import Filter
from baddr.domains import tiger
from baddr.posteriors import Factored, Frozen, Known

TOYS = Path(__file__).parent / "toys"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DOMAIN = tiger.make_domain()
COUNTS = Dirichlet(DOMAIN.counts, *tiger.SIZES)


# --- posteriors ----------------------------------------------------------------------------------------


class Wrapped(Posterior):
    """Counts, of which the classes below break something."""

    counts: Counts

    def prior(self, key):
        return self.counts

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return COUNTS.dynamics(theta, epsilon)

    def update(self, key, theta, s, a, s_next, o):
        return COUNTS.update(key, theta, s, a, s_next, o)


class Moody(Wrapped):
    def prior(self, key):
        return jax.tree.map(lambda x: x * np.random.default_rng().uniform(1, 2), self.counts)


class MoodyUpdate(Wrapped):
    def update(self, key, theta, s, a, s_next, o):
        return jax.tree.map(lambda x: x + np.float32(np.random.default_rng().uniform()), theta)


class Deaf(Table):
    """Draws other observations than it says."""

    def sample_observation(self, key, s, a, s_next):
        return jnp.minimum(super().sample_observation(key, s, a, s_next), 1)


class Deafened(Wrapped):
    def dynamics(self, theta, epsilon):
        return Deaf(theta.T, theta.O, *tiger.SIZES)


class Loud(Table):
    """Probabilities that do not sum to one."""

    def transition_log_prob(self, s, a, s_next):
        return super().transition_log_prob(s, a, s_next) + 0.5


class TooLoud(Wrapped):
    def dynamics(self, theta, epsilon):
        return Loud(theta.T, theta.O, *tiger.SIZES)


class Exploding(Wrapped):
    def update(self, key, theta, s, a, s_next, o):
        return jax.tree.map(lambda x: x * 1e6, theta)


class Wearing(Wrapped):
    """Fine at first; after some updates its tables are empty."""

    def update(self, key, theta, s, a, s_next, o):
        return jax.tree.map(lambda x: jnp.maximum(x - 1e3, 0.0), theta)


GOOD = [COUNTS, Frozen(COUNTS), Known(DOMAIN.pomdp.dynamics), Factored(DOMAIN.graphs["default"])]
GOOD += [Dirichlet(DOMAIN.counts, *tiger.SIZES, expected=False), Wrapped(DOMAIN.counts)]


slow = lambda value: pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("posterior", [*GOOD[:4], *map(slow, GOOD[4:])], ids=lambda x: type(x).__name__)
def test_a_good_posterior_passes(posterior):
    assert trials.posterior_problems(posterior, DOMAIN) == []


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Moody, "prior(key) returns different values for the same arguments; all randomness must come"),
        (MoodyUpdate, "update(key, theta, s, a, s', o) returns different values for the same arguments"),
        (Deafened, "dynamics(theta_0, epsilon).step draws"),
        (TooLoud, "dynamics(theta_0, epsilon).log_prob: the probabilities for"),
        (Exploding, "leaves a NaN or an infinity in theta within 64 steps"),
        (Wearing, "dynamics(theta, epsilon) after 64 updates"),
    ],
)
def test_a_broken_posterior_is_told_by_a_sentence(kind, sentence):
    wrong = trials.posterior_problems(kind(DOMAIN.counts), DOMAIN)
    assert wrong and sentence in wrong[0]


def test_the_criterion_gap_is_that_of_the_update():
    """Exact for counts; without an update, and with half a one, predictions are off."""
    gap, depth = trials.criterion_gap(COUNTS, DOMAIN)
    assert depth == 2 and gap < 1e-12
    gap, _ = trials.criterion_gap(Frozen(COUNTS), DOMAIN)
    assert gap == pytest.approx(5 / 8 - 5 / 10, abs=1e-3)  # after two wrong sounds: (5, 5), not (5, 3)


def test_a_random_posterior_is_averaged_over_keys():
    gap, depth = trials.criterion_gap(Dirichlet(DOMAIN.counts, *tiger.SIZES, expected=False), DOMAIN)
    assert depth == 1 and 1e-3 < gap < 0.3  # the error of 16 draws


# --- planners ------------------------------------------------------------------------------------------


class Fixed(Planner):
    """A plan that is given; what is wrong with it is what it is given for."""

    Q: float = eqx.field(static=True, default=0.0)
    N: float = eqx.field(static=True, default=1.0)
    steps: int = eqx.field(static=True, default=1)

    def plan(self, keys, pomdp, belief, steps_left, active):
        runs, A = len(keys), pomdp.num_actions
        steps = jnp.full((runs,), self.steps, jnp.int32)
        return Plan(jnp.full((runs, A), self.Q), jnp.full((runs, A), self.N), steps, steps)


class Whimsical(Fixed):
    def plan(self, keys, pomdp, belief, steps_left, active):
        plan = super().plan(keys, pomdp, belief, steps_left, active)
        return plan._replace(Q=plan.Q + np.float32(np.random.default_rng().uniform()))


class Nosy(Fixed):
    """Plans by its place in the batch."""

    def plan(self, keys, pomdp, belief, steps_left, active):
        plan = super().plan(keys, pomdp, belief, steps_left, active)
        return plan._replace(Q=plan.Q + jnp.arange(len(keys), dtype=jnp.float32)[:, None])


@pytest.mark.parametrize(
    "planner", [PoUct(num_simulations=16).build(DOMAIN), Fixed()], ids=["po-uct", "fixed"]
)
def test_a_good_planner_passes(planner):
    assert trials.planner_problems(planner, DOMAIN) == []


@pytest.mark.parametrize(
    ("planner", "sentence"),
    [
        (Fixed(N=-1.0), "plan.N must not be negative (or NaN): -1.0"),
        (Fixed(N=float("nan")), "plan.N must not be negative (or NaN): nan"),
        (Fixed(N=0.0), "plan.N is 0 for all actions"),
        (Fixed(Q=float("inf")), "plan.Q must be finite for actions with visits, not inf"),
        (Fixed(steps=-1), "plan.num_nodes and plan.num_steps must not be negative"),
        (Whimsical(), "returns different values for the same arguments"),
        (Nosy(), "the plan of a run depends on its place in the batch"),
    ],
)
def test_a_broken_planner_is_told_by_a_sentence(planner, sentence):
    (wrong,) = trials.planner_problems(planner, DOMAIN)
    assert sentence in wrong


def test_the_value_of_an_untried_action_does_not_matter():
    class Half(Fixed):
        def plan(self, keys, pomdp, belief, steps_left, active):
            plan = super().plan(keys, pomdp, belief, steps_left, active)
            return plan._replace(N=plan.N.at[:, 0].set(0.0), Q=plan.Q.at[:, 0].set(jnp.nan))

    assert trials.planner_problems(Half(), DOMAIN) == []


# --- filters -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Around:
    """A filter around another, of which the classes below break something."""

    num_particles: int = 256
    learn_terminal: bool = True

    def update(self, key, gba, belief, a, o, learn=True, active=True):
        return Importance(self.num_particles).update(key, gba, belief, a, o, learn, active)


class Unweighted(Around):
    def update(self, key, gba, belief, a, o, learn=True, active=True):
        after, info = super().update(key, gba, belief, a, o, learn, active)
        return eqx.tree_at(lambda b: b.log_weights, after, after.log_weights + 0.1), info


class Restless(Around):
    def update(self, key, gba, belief, a, o, learn=True, active=True):
        return super().update(key, gba, belief, a, o, learn, True)


class Random(Around):
    def update(self, key, gba, belief, a, o, learn=True, active=True):
        key = jax.random.fold_in(key, np.random.default_rng().integers(1000))
        return super().update(key, gba, belief, a, o, learn, active)


class Blind(Around):
    """Weighs nothing."""

    def update(self, key, gba, belief, a, o, learn=True, active=True):
        after, info = super().update(key, gba, belief, a, o, learn, active)
        return eqx.tree_at(lambda b: b.log_weights, after, belief.log_weights), info


FINE: list[Filter] = [Importance(256), Importance(256, resample_below=1e6), Rejection(256), Around()]


@pytest.mark.parametrize("filter", [*FINE[:1], *FINE[2:3], *map(slow, (FINE[1], FINE[3]))], ids=str)
def test_a_good_filter_passes(filter):
    assert trials.filter_problems(filter) == []


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Unweighted, "the weights of the next belief sum to 1.1"),
        pytest.param(Restless, "changes a belief that is not active", marks=pytest.mark.slow),
        pytest.param(Random, "returns different values for the same arguments", marks=pytest.mark.slow),
        (Blind, "after hearing left, left and right, the tiger is left with probability 0."),
    ],
)
def test_a_broken_filter_is_told_by_a_sentence(kind, sentence):
    assert any(sentence in wrong for wrong in trials.filter_problems(kind()))


# --- the command ---------------------------------------------------------------------------------------


def checked(capsys, *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["check", *map(str, arguments)])
    return int(end.value.code or 0), capsys.readouterr().out


def test_the_command_checks_what_it_is_given(capsys):
    own = ["--posterior", f"{EXAMPLES}/forgetting.py:make_posterior", "--posterior.keep", "0.9"]
    own += [
        "--planner.kind",
        f"{TOYS}/toy_planner.py:OneStep",
        "--filter.kind",
        f"{TOYS}/toy_filter.py:Bootstrap",
    ]
    code, said = checked(capsys, "tiger", *own)
    assert code == 0 and said.count("is fine. Checked:") == 3
    assert "measured: the update criterion (Def. 3). On tiger" in said
    # Likelihoods to the power of 0 weigh nothing.
    code, said = checked(
        capsys, "tiger", "--filter.kind", f"{TOYS}/toy_filter.py:Bootstrap", "--filter.patience", 0
    )
    assert (
        code == 1 and "toy_filter.py:Bootstrap: update(key, gba, belief, a, o, learn, active): after" in said
    )


def test_a_large_domain_leaves_the_criterion_to_tiger(capsys):
    own = ["--posterior", f"{TOYS}/toy_posterior.py:weighted"]
    code, said = checked(capsys, "collision-avoidance", "--domain.size", "3", *own)
    assert code == 0 and "On tiger, with its counts as the prior, predictions differ from Bayes' rule" in said
