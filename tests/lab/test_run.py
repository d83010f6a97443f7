"""`baddr.run`: an experiment from Python."""

import os

import numpy as np
import pytest

import baddr
from baddr.cli import main
from baddr.domains import catalog, tiger
from baddr.errors import UserError
from baddr.files import cache
from baddr.posteriors import Dirichlet, Known

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

SMALL = {"planner.num_simulations": 64, "filter.num_particles": 64, "filter.rejuvenate": False}
SMALL |= {"chunk_size": 2}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def table() -> dict:
    return baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **SMALL)


def test_it_returns_the_rows_that_the_command_line_leaves(table, tmp_path, capsys):
    flags = ["--planner.num-simulations", "64", "--filter.num-particles", "64", "--chunk-size", "2"]
    flags += ["--filter.no-rejuvenate"]
    sizes = ["--runs", "2", "--episodes", "3", "--seed", "5", "--out", str(tmp_path / "cli")]
    with pytest.raises(SystemExit):
        main(["run", "tiger", "--agent", "ba-pomcp", *sizes, *flags])
    assert same(table, baddr.load_results(tmp_path / "cli"))
    assert list(table["run"]) == [0, 0, 0, 1, 1, 1] and list(table["episode"]) == [0, 1, 2] * 2


def test_settings_are_dotted_names_tables_or_values(table):
    filter = {"num_particles": 64, "rejuvenate": False}
    nested = {"planner": baddr.PoUct(num_simulations=64), "filter": filter, "chunk-size": 2}
    assert same(baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **nested), table)
    other = baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **SMALL | {"domain.accuracy": 1.0})
    assert not same(other, table)


def test_a_folder_that_is_named_stays_and_another_does_not(table, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    os.mkdir(tmp_path / "temporary")
    out = tmp_path / "kept"
    assert same(baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, out=out, **SMALL), table)
    assert same(baddr.load_results(out), table)
    baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **SMALL)
    assert os.listdir(tmp_path / "temporary") == []
    with pytest.raises(UserError, match="already holds an experiment"):
        baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, out=out, **SMALL)


def test_it_is_quiet_unless_it_is_asked(capsys):
    baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **SMALL)
    assert capsys.readouterr() == ("", "")
    baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, progress=True, **SMALL)
    assert "6/6 episodes" in capsys.readouterr().err


def test_a_domain_may_be_a_value(table):
    """The same truth and prior give the same rows as the name does; others do not."""
    known = set(catalog.DOMAINS)
    sizes = SMALL | {
        "planner": baddr.PoUct(num_simulations=64),
        "filter": baddr.Importance(num_particles=64, rejuvenate=False),
    }
    for name in ("planner.num_simulations", "filter.num_particles", "filter.rejuvenate"):
        del sizes[name]
    by_value = lambda domain: baddr.run(domain, "ba-pomcp", runs=2, episodes=3, seed=5, **sizes)
    assert same(by_value(tiger.make_domain()), table)
    assert not same(by_value(tiger.make_domain(accuracy=1.0)), table)
    assert set(catalog.DOMAINS) == known


@pytest.mark.slow
def test_networks_of_a_domain_that_is_a_value_are_not_kept(tmp_path, monkeypatch):
    """Another value may have its name."""
    monkeypatch.setenv("BADDR_CACHE", str(tmp_path))
    small = {"network.hidden": 8, "pretrain.batches": 8, "pretrain.max_gap": 100.0}
    run = lambda domain: baddr.run(domain, "baddr", runs=2, episodes=1, **SMALL, **small)
    rows = run(tiger.make_domain())
    assert not list(cache.priors().glob("*"))
    assert not same(rows, run(tiger.make_domain(prior_accuracy=0.99)))


def test_an_agent_may_be_a_value():
    table = baddr.run("tiger", "ba-pomcp", runs=2, episodes=3, seed=5, **SMALL)
    domain = tiger.make_domain()
    sizes = baddr.Importance(num_particles=64), baddr.PoUct(num_simulations=64)

    def acting(posterior):
        agent = baddr.Agent(baddr.GBAPOMDP(domain.pomdp, posterior), *sizes)
        return baddr.run("tiger", agent, runs=2, episodes=3, seed=5, chunk_size=2)

    counts = acting(Dirichlet(domain.counts, domain.pomdp.state_sizes, domain.pomdp.observation_sizes))
    assert all(
        np.array_equal(counts[name], table[name]) for name in ("return", "length", "discounted_return")
    )
    truth = acting(Known(domain.pomdp.dynamics))
    assert same(truth, baddr.run("tiger", "pomcp", runs=2, episodes=3, seed=5, **SMALL))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"domain": "tigr"}, "did you mean 'tiger'"),
        ({"agent": "bapomcp"}, "did you mean 'ba-pomcp'"),
        ({"domain": 3}, "a name or a Domain, not a value of type int"),
        ({"agent": 3}, "a name or an Agent, not a value of type int"),
        ({"runs": 0}, "--runs must be at least 1"),
        ({"agent": "pomcp", "planner.num_simulation": 3}, "no setting 'num_simulation'"),
        ({"agent": "pomcp", "planner": baddr.Importance()}, "planner cannot be a value of type Importance"),
        ({"planner": baddr.PoUct(), "planner.depth": 2}, "both set"),
        ({"domain.acuracy": 1.0}, "no setting 'acuracy'"),
        ({"colour": 3}, "no setting 'colour'"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        baddr.run(**{"domain": "tiger", "agent": "random"} | arguments)


def test_planners_and_filters_that_are_values_are_checked():
    """By the same code as flags: a word that is none of the choices must not mean another one."""
    domain = tiger.make_domain()
    gba = baddr.GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics))
    for planner, sentence in (
        (baddr.PoUct(backup="mex"), "planner.backup must be mean or max, not 'mex'"),
        (baddr.PoUct(num_simulations=0), "planner.num-simulations must be at least 1"),
        (baddr.BeliefTree(num_expansions=0), "planner.num-expansions must be at least 1"),
    ):
        with pytest.raises(UserError, match=sentence):
            planner.build(domain)
    agent = baddr.Agent(gba, baddr.Importance(num_particles=0), baddr.PoUct(num_simulations=8))
    with pytest.raises(UserError, match=r"filter\.num-particles must be"):
        baddr.run("tiger", agent, runs=1, episodes=1)


def test_an_agent_that_is_a_value_has_its_own_settings():
    domain = tiger.make_domain()
    gba = baddr.GBAPOMDP(domain.pomdp, Known(domain.pomdp.dynamics))
    agent = baddr.Agent(gba, baddr.Importance(num_particles=8), baddr.PoUct(num_simulations=8))
    with pytest.raises(UserError, match="an Agent has its own settings"):
        baddr.run("tiger", agent, **{"planner.depth": 3})
    with pytest.raises(UserError, match="other actions or observations"):
        baddr.run("sysadmin", agent, runs=1, episodes=1)
