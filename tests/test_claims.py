"""Verdicts know their size: with a known truth, "held" is wrong in at most 5 of 100 cases, at every size
at which it is given; and below the stated sizes, or where a curve is too short, there is no verdict."""

import numpy as np
import pytest
from scipy import stats

from baddr.lab import statistics
from baddr.lab.statistics import Sample
from baddr.paper.claims import FEWEST_ENSEMBLES, FEWEST_RUNS, Claim, Data, what_decides, with_worst
from baddr.paper.figures import FIGURES
from baddr.paper.figures.by_domain import CRASH, TIGER
from baddr.paper.figures.figure import Sizes
from baddr.paper.reached import reached
from baddr.paper.returns import difference, gain, level

CASES = 300  # per size; where "held" is wrong in 1 % of them, 5 % is 7 standard errors more


def table(returns: np.ndarray) -> dict[str, np.ndarray]:
    run, episode = np.indices(returns.shape)
    return {"run": run.ravel(), "episode": episode.ravel(), "discounted_return": returns.ravel()}


def data_of(ensembles: int, runs: int, draw) -> Data:
    """A curve x of runs in ensembles; `draw` gives the returns of one ensemble."""
    return Data({"x": {seed: table(draw(runs)) for seed in range(ensembles)}}, {})


def wrongly_held(claim: Claim, cases) -> float:
    """How often a claim is held that is not true, by a hair."""
    return float(np.mean([claim.verdict(claim.measure(data)) == "held" for data in cases]))


# Worlds of which the mean is known: returns of [run, episode].


def skewed(generator, runs, episodes=8):
    """As skewed as an exponential, run by run: mean -1."""
    return -generator.exponential(size=(runs, 1)) * np.ones(episodes)


def crashing(generator, runs, p, episodes=8):
    """-90 without a crash and -1000 with one: mean -90 - 910 p."""
    crash = generator.random((runs, episodes)) < p
    return np.where(crash, CRASH, generator.normal(-90, 60, (runs, episodes)))


def tigers(generator, runs, p, episodes=8):
    """10 for the right door, -100 for the wrong one: mean 10 - 110 p."""
    return np.where(generator.random((runs, episodes)) < p, TIGER, 10.0)


WORLDS = {
    "skewed": (lambda g, n: skewed(g, n), -1.0, 0.0),
    **{f"crash {p}": (lambda g, n, p=p: crashing(g, n, p), -90 - 910 * p, CRASH) for p in (0.002, 0.02)},
    **{f"tiger {p}": (lambda g, n, p=p: tigers(g, n, p), 10 - 110 * p, TIGER) for p in (0.002, 0.1)},
}


@pytest.mark.parametrize("runs", [FEWEST_RUNS, 24, 100])
@pytest.mark.parametrize("world", WORLDS)
def test_held_is_seldom_wrong_of_runs(world, runs):
    draw, mean, worst = WORLDS[world]
    generator = np.random.default_rng(runs)
    claim = Claim("", level("x", "all"), "", at_least=mean + 1e-6)
    claim = with_worst(claim, worst) if worst else claim
    cases = (data_of(1, runs, lambda n: draw(generator, n)) for _ in range(CASES))
    assert wrongly_held(claim, cases) <= 0.05


@pytest.mark.parametrize("ensembles", [FEWEST_ENSEMBLES, 10])
@pytest.mark.parametrize("runs", [2, 40])
def test_held_is_seldom_wrong_of_ensembles(ensembles, runs):
    """Ensembles differ by as much as an exponential: runs of one tell little about the others."""
    generator = np.random.default_rng(runs)
    shared = lambda n: generator.normal(0, 1, (n, 8)) - 3 * generator.exponential()
    claim = Claim("", level("x", "all"), "", at_least=-3.0 + 1e-6)
    cases = (data_of(ensembles, runs, shared) for _ in range(CASES))
    assert wrongly_held(claim, cases) <= 0.05


@pytest.mark.parametrize("runs", [FEWEST_RUNS, 24])
def test_held_is_seldom_wrong_of_differences_and_gains(runs):
    """Two curves with the same rare crashes, one of them longer; nothing is learned."""
    generator = np.random.default_rng(0)
    draw = lambda n: table(crashing(generator, n, 0.005, 20))
    cases = [Data({"x": {0: draw(runs)}, "y": {0: draw(2 * runs)}}, {}, worst=CRASH) for _ in range(CASES)]
    for measure in (difference("x", "y", "last"), gain("x")):
        for side in ({"at_least": 1e-6}, {"at_most": -1e-6}):
            assert wrongly_held(Claim("", measure, "", **side), cases) <= 0.05


def test_held_is_seldom_wrong_of_episodes_to_equal_return():
    """Learners with speeds of their own climb to 0 by a straight line, which their mean reaches at 200."""
    generator = np.random.default_rng(0)
    goal = table(np.zeros((FEWEST_RUNS, 10)))

    def learners() -> dict[str, np.ndarray]:
        slopes = generator.gamma(4, 0.25, (FEWEST_RUNS, 1))  # of mean 1
        return table(-200 + slopes * np.arange(1, 401) + generator.normal(0, 5, (FEWEST_RUNS, 400)))

    claim = Claim("", reached("slow", "fast", ratio=False), "", at_least=200.0 + 8)
    cases = (Data({"fast": {0: goal}, "slow": {0: learners()}}, {}) for _ in range(40))
    assert wrongly_held(claim, cases) <= 0.05


# Disasters that cluster: a share of runs, or of whole trainings, fails in every episode.

SHARES = 0.01, 0.02, 0.05, 0.1


def of_units(returns: np.ndarray, ensembles: bool = False, **others) -> Data:
    """A curve x of [run, episode], or of [ensemble, episode] with ten runs each."""
    ids = tuple((i,) if ensembles else (0, i) for i in range(len(returns)))
    unit, runs = ("ensembles", 10) if ensembles else ("runs", 1)
    return Data({}, {}, samples={"x": Sample(returns, ids, unit, runs * len(returns))}, **others)


def failing(units: int, failed: int, ensembles: bool, **others) -> Data:
    """Units that return -90 in each of 20 episodes, but for some that crash in every one."""
    fails = np.arange(units)[:, None] < failed
    return of_units(np.where(fails, CRASH, np.full((units, 20), -90.0)), ensembles, **others)


def probability_of_held(share: float, units: int, ensembles: bool, at_least: float) -> float:
    """Exactly: units differ in nothing but whether they fail, so a verdict follows from how many do."""
    claim = with_worst(Claim("", level("x", "all"), "", at_least=at_least), CRASH)
    most = int(stats.binom.isf(1e-6, units, share))
    held = [claim.verdict(claim.measure(failing(units, k, ensembles))) == "held" for k in range(most + 1)]
    return float(stats.binom.pmf(range(most + 1), units, share) @ held)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ensembles", [False, True], ids=["runs", "ensembles"])
def test_held_is_seldom_wrong_where_disasters_cluster(share, ensembles):
    """At sizes all about 3 / share, from which on "held" is given though all units fail as often as claimed
    not to; it is then wrong where none of them failed, in (1 - share)^(3 / share) < 5 of 100 cases."""
    sizes = {FEWEST_RUNS, 24, 100, 400, *(round(x / share) for x in (1, 2, 2.9, 3, 3.1, 4, 6, 8))}
    for units in (n for n in sizes if n >= FEWEST_RUNS):
        wrong = probability_of_held(share, units, ensembles, -90 - 910 * share + 1e-6)
        assert wrong <= 0.05, f"{units} units"


@pytest.mark.parametrize("share", SHARES)
def test_held_is_seldom_wrong_where_disasters_cluster_and_returns_vary(share):
    """As above, with noise: a simulation, in which at most .5 % are wrong (of 1000; standard error .2 %)."""
    generator = np.random.default_rng(0)
    claim = with_worst(Claim("", level("x", "all"), "", at_least=-90 - 910 * share + 1e-6), CRASH)

    def draw(runs: int) -> Data:
        fails = generator.random((runs, 1)) < share
        return of_units(np.where(fails, CRASH, generator.normal(-90, 60, (runs, 8))))

    for runs in (FEWEST_RUNS, 24, 100, 400):
        assert wrongly_held(claim, (draw(runs) for _ in range(200))) <= 0.05


def test_a_claim_that_is_undecided_says_how_many_units_would_decide_it():
    """3 / n of the units may cost 910 each, and 22 would do: 124 runs."""
    claim = with_worst(Claim("", level("x", "all"), "", at_least=-112.0), CRASH)
    for ensembles, unit in ((False, "runs"), (True, "ensembles")):
        few = failing(24, 0, ensembles)
        assert claim.verdict(claim.measure(few)) == "undecided" and claim.only_unseen(claim.measure(few))
        said = what_decides(claim, few)
        assert said == f"About 140 {unit} would decide it, if they were like these."
        assert claim.verdict(claim.measure(failing(124, 0, ensembles))) == "held"
        assert claim.verdict(claim.measure(failing(123, 0, ensembles))) == "undecided"
    assert what_decides(claim, failing(124, 0, False)) == ""


def test_episodes_of_who_learns_nothing_are_units_of_their_own():
    claim = with_worst(Claim("", level("x", "all"), "", at_least=-112.0), CRASH)
    few = failing(24, 0, False), failing(24, 0, False, forgetful=frozenset({"x"}))
    assert [claim.verdict(claim.measure(data)) for data in few] == ["undecided", "held"]


def test_held_is_given_where_it_is_true():
    """The same worlds, a margin away: verdicts that are never given would be no use."""
    generator = np.random.default_rng(0)
    claim = with_worst(Claim("", level("x", "all"), "", at_least=-112.0), CRASH)
    cases = [data_of(1, 400, lambda n: crashing(generator, n, 0.002, 25)) for _ in range(20)]
    assert wrongly_held(claim, cases) > 0.9


# Sizes.


def test_four_units_without_a_crash_are_no_evidence():
    claim = with_worst(Claim("", level("x", "last"), "", at_least=-112.0), CRASH)
    for ensembles, runs, why in ((4, 100, "4 of 5 ensembles"), (1, 7, "7 of 8 runs"), (1, 8, ""), (5, 2, "")):
        found = claim.measure(data_of(ensembles, runs, lambda n: np.full((n, 100), -90.0)))
        assert claim.too_small(found) == why
    alone = claim.measure(data_of(1, 8, lambda n: np.full((n, 100), -90.0)))
    assert alone.estimate == pytest.approx((-90, -90 + np.log(0.05) / 8 * 910, -90))
    assert claim.verdict(alone) == "undecided", "a third of the runs might fail"
    many = claim.measure(data_of(1, 400, lambda n: np.full((n, 100), -90.0)))
    assert claim.verdict(many) == "held"


def test_runs_that_share_their_networks_are_one_ensemble():
    draw = lambda n: np.ones((n, 10))
    claim = Claim("", level("x", "last"), "", at_least=0.0)
    alone = data_of(1, 50, draw)
    assert claim.verdict(claim.measure(alone)) == "held"
    shared = Data(alone.results, {}, networks=frozenset({"x"}))
    assert claim.too_small(claim.measure(shared)) == "1 of 5 ensembles"


def test_what_is_not_seen_is_as_likely_as_it_may_be():
    """With the probability UNSEEN / n, n units show none in .05 of the cases; no more than all can fail."""
    assert stats.binom.pmf(0, 10_000, statistics.UNSEEN / 10_000) == pytest.approx(0.05, rel=0.01)
    assert statistics.unseen(-90.0, -1000.0, 100) == pytest.approx(9.1 * -np.log(0.05))
    assert statistics.unseen(-90.0, -1000.0, 2) == 910


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(preset="paper")], ids=["quick", "paper"])
def test_every_claim_about_returns_says_how_many_episodes_it_needs(sizes):
    for figure in FIGURES.values():
        for claim in figure.claims(sizes):
            assert claim.after or figure.kind == "runtime" or "memory" in claim.what, claim.says
