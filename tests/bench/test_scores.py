"""Scores against closed forms, and the page of a suite at toy sizes."""

import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from baddr.bench import scoreboard
from baddr.bench.folder import Suite
from baddr.bench.outside import add
from baddr.bench.page import page
from baddr.bench.scoreboard import write_scoreboard
from baddr.bench.scores import scale_of, scores
from baddr.bench.suite import Request, parts
from baddr.domains.catalog import DOMAINS, entry
from baddr.errors import UserError
from baddr.files.tables import write_table
from baddr.lab.experiment import to_config
from baddr.lab.parts import is_preset


def rows(table):
    """A table [run, episode] as columns."""
    runs, episodes = np.indices(table.shape)
    return {"run": runs.ravel(), "episode": episodes.ravel(), "discounted_return": table.ravel()}


def flat(value, runs=8, episodes=20, noise=0.0, seed=0):
    return rows(value + noise * np.random.default_rng(seed).normal(size=(runs, episodes)))


def test_the_references_score_0_and_1():
    prior, truth = flat(2.0), flat(6.0)
    scale = scale_of(prior, truth)
    assert scale.is_clear
    for results, expected in ((prior, 0.0), (truth, 1.0), (flat(4.0), 0.5)):
        found = scores({0: results}, scale)
        assert found.final == pytest.approx((expected,) * 3)
        np.testing.assert_allclose(found.score, expected)


def test_episodes_until_nine_tenths():
    """A run that jumps to the truth after 10 of 20 episodes gets there in the 11th, lucky ones before and bad
    ones after that aside."""
    table = np.full((8, 20), 2.0)
    table[:, 10:] = 6.0
    table[:, 2], table[:, 15] = 8.0, 5.5
    scale = scale_of(flat(2.0), flat(6.0))
    assert scores({0: rows(table)}, scale).to_reach.value == 11
    table[:, 12:] = 2.0
    assert scores({0: rows(table)}, scale).to_reach.value == np.inf
    assert scores({0: flat(2.0)}, scale).to_reach.value == np.inf


def test_intervals_cover_the_score():
    """Of 30 suites with noise in agents and references, at least 24 intervals hold the true score (28.5 less
    four standard errors, which are 1.2 each)."""
    inside = 0
    for seed in range(30):
        scale = scale_of(flat(0.0, noise=1.0, seed=seed), flat(1.0, noise=1.0, seed=1000 + seed))
        low, high = scores({0: flat(0.5, noise=1.0, seed=2000 + seed)}, scale).final[1:]
        inside += low <= 0.5 <= high
    assert inside >= 24


def test_trainings_are_the_units_where_there_are_several():
    """Two trainings that differ make a wide interval, however many runs each has."""
    scale = scale_of(flat(0.0), flat(1.0))
    one = scores({0: flat(0.5, runs=64, noise=0.1)}, scale)
    two = scores({0: flat(0.2, runs=32, noise=0.1), 1: flat(0.8, runs=32, noise=0.1)}, scale)
    width = lambda found: found.final.high - found.final.low
    assert one.units == "runs" and two.units == "ensembles" and width(two) > 5 * width(one)


def test_a_truth_that_is_no_better_is_said_to_be_unclear():
    assert not scale_of(flat(1.0, noise=1.0), flat(1.0, noise=1.0, seed=5)).is_clear
    assert np.isnan(scale_of(flat(1.0), flat(1.0)).score(2.0))


def test_two_runs_prove_nothing():
    """0 and 1 against 3 and 4: 4.2 standard errors, where Student's t of two runs asks for 13."""
    two = lambda value: rows(np.array([[value] * 3, [value + 1] * 3]))
    assert not scale_of(two(0.0), two(3.0)).is_clear
    eight = lambda value: rows(np.repeat([[value], [value + 1]], 4, axis=0) * np.ones((1, 3)))
    assert scale_of(eight(0.0), eight(3.0)).is_clear


def test_what_a_suite_consists_of():
    request = Request(
        domains=("tiger", "t-maze"), agents=("ba-pomcp", "baddr"), trainings=2, runs=6, episodes=3
    )
    plan = list(parts(request))
    of_tiger = [(p.agent, p.experiment.seed, p.experiment.runs) for p in plan if p.domain == "tiger"]
    assert [x for x in of_tiger if x[0] != "bank"] == [
        ("prior-only", 0, 6),
        ("pomcp", 0, 6),
        ("ba-pomcp", 0, 6),
        ("baddr", 0, 3),
        ("baddr", 1, 3),
    ]
    assert all(p.experiment.episodes == 3 for p in plan)
    for wrong, sentence in (({"agents": ("pomcp",)}, "reference line"), ({"agents": ("tigre",)}, "tigre")):
        with pytest.raises(UserError, match=sentence):
            Request(**wrong).check()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A finished suite whose parts are written by hand."""
    folder = Suite(tmp_path_factory.mktemp("suite"))
    request = {"domains": ("tiger",), "agents": ("ba-pomcp",), "runs": 8, "episodes": 20}
    (folder.path / "suite.toml").write_text(
        'domains = ["tiger"]\nagents = ["ba-pomcp"]\nruns = 8\nepisodes = 20\n'
    )
    for part in parts(Request(**request)):
        value = {"prior-only": 0.0, "pomcp": 4.0}.get(part.agent, 3.8)
        folder.part(part).path.mkdir(parents=True)
        folder.part(part).config.write_bytes(to_config(part.experiment))
        folder.part(part).manifest.write_text("{}")
        write_table(folder.part(part).episodes, flat(value, noise=0.3))
    manifest = {
        "status": "complete",
        "device": "cpu",
        "baddr": "0",
        "refused": {"x": "why <not>"},
        "parts": {},
    }
    folder.manifest.write_text(json.dumps(manifest))
    folder.optimum("tiger").parent.mkdir()
    folder.optimum("tiger").write_text('{"lower": 3.77, "upper": 3.78}')
    return folder


def test_the_scoreboard_and_an_outside_agent(suite, tmp_path):
    found = write_scoreboard(suite)["domains"]["tiger"]
    assert found["references"]["prior"] == pytest.approx(0, abs=0.2) and found["clear"]
    assert 0.8 < found["agents"]["ba-pomcp"]["final"][0] < 1.1
    outside = flat(2.0) | {"domain": np.array(["tiger"] * 160, object)}
    write_table(tmp_path / "mine.parquet", outside)
    assert add(suite, tmp_path / "mine.parquet", "mine", ()) == ["tiger"]
    found = write_scoreboard(suite)["domains"]["tiger"]["agents"]
    assert found["mine"]["final"][0] == pytest.approx(0.5, abs=0.05) and found["mine"]["seconds"] is None
    assert "mine" in (suite.path / "suite.html").read_text()


@pytest.mark.parametrize(
    ("columns", "domains", "sentence"),
    [
        ({"run": [0]}, (), "no column 'episode'"),
        (flat(1.0, 1, 1), (), "no column domain"),
        (flat(1.0, 1, 1), ("t-maze",), "is about 't-maze'"),
        (flat(np.nan, 1, 1), ("tiger",), "finite numbers"),
        (flat(1.0, 1, 1) | {"domain": ["x" * 999]}, (), "is about 'xxx"),
        (flat(1.0, 1, 1002) | {"seed": np.arange(1002)}, ("tiger",), "more than 1,000 seeds"),
        (flat(1.0, 1, 1) | {"seed": ["a"]}, ("tiger",), "'seed' has no numbers"),
        ({name: np.tile(x, 2) for name, x in flat(1.0, 2, 3).items()}, ("tiger",), "run 0 must have each"),
        (flat(1.0, 1, 3) | {"episode": np.array([0, 1, 3])}, ("tiger",), "near episode 3"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(suite, tmp_path, columns, domains, sentence):
    write_table(tmp_path / "bad.parquet", {name: np.asarray(x) for name, x in columns.items()})
    with pytest.raises(UserError, match=sentence):
        add(suite, tmp_path / "bad.parquet", "bad", domains)


def test_the_page_opens_in_a_browser_and_sorts(suite, tmp_path):
    write_scoreboard(suite)
    html = (suite.path / "suite.html").read_text()
    assert "http" not in html and "why &lt;not&gt;" in html
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here")
    click = "document.querySelector('th').click();"
    (tmp_path / "page.html").write_text(html.replace("</body>", f"<script>{click}</script></body>"))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]
    flags += ["--enable-logging=stderr", "--dump-dom", f"--user-data-dir={tmp_path}"]
    done = subprocess.run(
        [chromium, *flags, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "CONSOLE" not in done.stderr
    assert done.stdout.count("<svg") == 1 and 'aria-sort="descending"' in done.stdout


def test_an_empty_suite_has_a_page():
    assert "scoreboard" in page(
        {"domains": {}, "command": "", "device": "", "baddr": "", "status": "", "refused": {}}
    )


def test_the_page_names_the_truth_that_the_suite_chose(suite, monkeypatch):
    """Who adds an outside agent must act under the same one."""
    assert "worth learning" not in page(write_scoreboard(suite))
    with_truth = replace(entry("tiger"), suite={"accuracy": 0.75})
    monkeypatch.setattr(scoreboard, "entry", lambda name: with_truth)
    found = scoreboard.scoreboard(suite)
    assert found["domains"]["tiger"]["settings"] == {"accuracy": 0.75}
    assert "a truth that is worth learning: --domain.accuracy 0.75; prior only" in page(found)


def test_prior_only_takes_what_the_prior_expects_for_the_truth():
    from dataclasses import replace

    from baddr.agents.base import Request as AgentRequest
    from baddr.agents.prior_only import PriorOnly
    from baddr.domains import tiger

    domain = tiger.make_domain(accuracy=0.85, prior_accuracy=0.7)
    D = PriorOnly().prior(AgentRequest(domain)).like.D  # type: ignore[attr-defined]
    assert float(D.O[2, 0, 0]) == pytest.approx(0.7)
    with pytest.raises(UserError, match="an expected model"):
        PriorOnly().prior(AgentRequest(replace(domain, expected_simulator=None)))


@pytest.mark.parametrize("name", DOMAINS)
def test_a_suite_takes_the_settings_that_its_domain_names(name):
    """And they are known to fit: a suite starts without measuring each of its parts."""
    for part in parts(Request(domains=(name,), agents=("baddr",))):
        chosen, settings = entry(name), part.experiment.domain
        assert {x: getattr(settings, x) for x in chosen.suite} == dict(chosen.suite)
        assert is_preset(part.experiment)
        assert not is_preset(replace(part.experiment, domain=replace(settings, discount=0.5)))
