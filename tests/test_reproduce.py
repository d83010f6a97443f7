"""Figures of the paper: what is run once, what is drawn, how claims are judged, and that nothing is lost."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import baddr
from baddr.cli import main
from baddr.domains.tiger.settings import TigerSettings
from baddr.lab import statistics
from baddr.lab.statistics import Estimate
from baddr.paper import pictures, reproduce
from baddr.paper.claims import FEWEST_ENSEMBLES, Claim, Data, Finding
from baddr.paper.figures import FIGURES, by_domain, curves, parts
from baddr.paper.figures.d import COUNTS_9_LANES
from baddr.paper.figures.figure import Curve, Figure, Sizes, part_name
from baddr.paper.folder import Reproduction, Request
from baddr.paper.page import to_html, to_markdown
from baddr.paper.reached import reached
from baddr.paper.report import MARKS, in_short, report
from baddr.paper.returns import difference, gain, level, trend
from baddr.paper.scores import final_return, scores

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

QUICK, PAPER = Sizes(), Sizes(preset="paper")


# Statistics.


@pytest.mark.parametrize("df", [1.0, 1.7, 2.0, 3.0, 3.4, 6.0, 12.0, 40.0, 1e3])
def test_t_quantiles_are_scipys(df):
    assert statistics.t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=0.025)


def test_intervals_of_four_units_hold_as_often_as_they_say():
    """400 samples of 4 normals: 95 % of the intervals hold the mean; the standard error is 1.1 %."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        _, low, high = statistics.estimate(generator.normal(size=4))
        held += low <= 0 <= high
    assert 0.95 - 0.05 < held / 400 < 0.99


def test_sums_of_means_are_students_and_welchs():
    generator = np.random.default_rng(0)
    x, y = generator.normal(1, 1, 40), generator.normal(0, 3, 25)
    found = statistics.sum_of_means([1.0, -1.0], [x, y], paired=False)
    welch = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.995)
    assert found == pytest.approx((x.mean() - y.mean(), welch.low, welch.high))
    found = statistics.sum_of_means([1.0, -1.0], [x[:25], y], paired=True)
    student = stats.ttest_rel(x[:25], y).confidence_interval(0.995)
    assert found == pytest.approx(((x[:25] - y).mean(), student.low, student.high))
    assert statistics.sum_of_means([2.0], [np.ones(1)], paired=True) == (2, -np.inf, np.inf)


def table(returns: np.ndarray, **columns: np.ndarray) -> dict[str, np.ndarray]:
    """episodes.parquet of [run, episode] returns."""
    run, episode = np.indices(returns.shape)
    flat = {name: np.asarray(x, float).ravel() for name, x in columns.items()}
    return {"run": run.ravel(), "episode": episode.ravel(), "discounted_return": returns.ravel(), **flat}


def test_a_curve_of_several_seeds_is_resampled_by_ensemble():
    """Three ensembles at 0, 10 and 20, whose runs hardly differ: the error is the ensembles'."""
    rows = {seed: table(np.full((50, 2), 10.0 * seed) + np.arange(50)[:, None] / 100) for seed in range(3)}
    pooled = statistics.sample(rows)
    assert pooled.unit == "ensembles" and pooled.num_runs == 150 and pooled.ids == ((0,), (1,), (2,))
    assert pooled.table[:, 0] == pytest.approx([0.245, 10.245, 20.245])
    _, low, high = statistics.estimate(pooled.table[:, 0])
    assert high - low > 20
    alone = statistics.sample({1: rows[1]})
    assert alone.unit == "runs" and alone.ids[:2] == ((1, 0), (1, 1)) and len(alone.ids) == 50


# Verdicts, by hand.


@pytest.mark.parametrize(
    ("estimate", "region", "verdict"),
    [
        ((1.0, 0.5, 1.5), {"at_least": 0.0}, "held"),
        ((1.0, -0.1, 1.5), {"at_least": 0.0}, "undecided"),
        ((-1.0, -1.5, -0.1), {"at_least": 0.0}, "not held"),
        ((0.0, -0.4, 0.4), {"at_least": -0.5, "at_most": 0.5}, "held"),
        ((0.3, -0.1, 0.7), {"at_least": -0.5, "at_most": 0.5}, "undecided"),
        ((0.9, 0.6, 1.2), {"at_least": -0.5, "at_most": 0.5}, "not held"),
        ((50.0, 50.0, np.inf), {"at_least": 40.0}, "held"),
        ((1.0, -np.inf, np.inf), {"at_least": 0.0}, "undecided"),
        ((np.nan, np.nan, np.nan), {"at_least": 0.0}, "undecided"),
    ],
)
def test_a_verdict_follows_from_the_interval(estimate, region, verdict):
    claim = Claim("", lambda data: None, "", **region)
    assert claim.verdict(Finding(Estimate(*estimate), "")) == verdict


def test_a_short_curve_says_nothing_about_the_end():
    claim = Claim("", lambda data: None, "", at_least=2.0, after=400)
    for value, verdict in ((0.0, "not held"), (5.0, "held")):
        found = Finding(Estimate(value, value - 1.0, value + 1.0), "", episodes=40)
        assert claim.verdict(found) == "undecided" and claim.too_small(found) == "40 of 400 episodes"
        assert claim.verdict(found._replace(episodes=400)) == verdict
        few = found._replace(episodes=400, too_few="4 of 8 runs")
        assert claim.verdict(few) == "undecided" and claim.too_small(few) == "4 of 8 runs"


def test_levels_gains_and_differences_by_hand():
    """40 episodes: the first tenth are 4, the last quarter 10."""
    rise = np.tile(np.arange(40.0), (2, 1)) + np.array([[0.0], [1.0]])
    data = Data({"x": {0: table(rise)}, "y": {0: table(rise - 3)}, "z": {0: table(rise[:, :20])}}, {})
    assert level("x", "last")(data).estimate.value == np.arange(30, 40).mean() + 0.5
    assert level("x", 2)(data).estimate.value == 1.0
    assert gain("x")(data).estimate == pytest.approx((33, 33, 33))
    paired = difference("x", "y", "last")(data)
    assert paired.estimate == pytest.approx((3, 3, 3)) and paired.basis == "paired over 2 runs"
    shorter = difference("x", "z", "last")(data)
    assert shorter.estimate == pytest.approx((0, 0, 0)) and shorter.episodes == 20
    apart = difference("x", "y", "first", "all")(data)
    assert apart.estimate.value == pytest.approx(1.5 + 0.5 - (19.5 + 0.5 - 3))


def test_episodes_to_equal_return_by_hand():
    """The fast one has 10 in 20 episodes; the slow ones climb by .01 an episode."""
    fast = table(np.full((4, 20), 10.0))
    slow = lambda n: table(np.tile(0.01 * np.arange(n), (4, 1)))
    found = reached("slow", "fast")(Data({"fast": {0: fast}, "slow": {0: slow(2000)}}, {}))
    assert "of 8 runs" in found.too_few
    # The mean of the last 40 is 10 where the last one is 10.195: episode 1021 of 1; by 20.
    assert found.estimate == pytest.approx((1021 / 20,) * 3) and not found.at_least
    never = reached("slow", "fast")(Data({"fast": {0: fast}, "slow": {0: slow(900)}}, {}))
    assert never.at_least and never.estimate == (45.0, 45.0, np.inf)
    few = {name: np.concatenate([x[:900]]) for name, x in slow(900).items()}
    one = reached("slow", "fast")(Data({"fast": {0: fast}, "slow": {0: few}}, {}))
    assert one.estimate == (45.0, 0.0, np.inf), "one learner is no evidence"


def test_trend_by_hand():
    curves = {n: {s: table(np.full((2, 8), 2.0 * np.log2(n) + s)) for s in range(3)} for n in (1, 8, 128)}
    data = Data({str(n): rows for n, rows in curves.items()}, {})
    assert trend({n: str(n) for n in curves})(data).estimate == pytest.approx((2, 2, 2))


# The table of figures.


def test_figures_share_what_they_have_in_common():
    whole = parts(list(FIGURES.values()), QUICK)
    apart = [
        part_name(e, c.timed) for f in FIGURES.values() for c in f.curves(QUICK) for e in c.parts().values()
    ]
    assert len(whole) == len(set(apart)) < len(apart)
    baddr_of = lambda name: next(c for c in FIGURES[name].curves(QUICK) if c.experiment.agent == "baddr")
    ours = [[part_name(e) for e in baddr_of(name).parts().values()] for name in ("a", "e", "i", "episodes")]
    assert ours[0] == ours[1] == ours[2] == ours[3]
    eight = next(c for c in FIGURES["h"].curves(QUICK) if c.name == "baddr")
    assert [part_name(e) for e in eight.parts().values()] == ours[0] and eight.models == 8


def test_an_ensemble_is_an_experiment_with_its_own_seed():
    curve = by_domain.tiger_networks(replace(QUICK, seed=7), "filtering", 8)
    experiments = list(curve.parts().values())
    assert [e.seed for e in experiments] == list(range(7, 7 + curve.ensembles))
    assert len({replace(e, seed=0) for e in experiments}) == 1
    assert len({part_name(e) for e in experiments}) == curve.ensembles


def test_sizes_as_asked_for():
    few = Sizes(runs=10, episodes=5, ensembles=4)
    curve = by_domain.tiger_baddr(few)
    assert (curve.experiment.runs, curve.experiment.episodes, curve.ensembles) == (3, 5, 4)
    learner = by_domain.tiger_dpfrl(replace(PAPER, runs=256))
    assert learner.experiment.runs == 10 and learner.experiment.episodes == 40_000
    whole = by_domain.tiger_networks(PAPER, "baddr", 8)
    assert whole.experiment.runs * whole.ensembles == 7500 and whole.experiment.episodes == 400


def test_paper_sizes_are_those_of_the_appendix():
    sizes = {
        c.name: (c.experiment.runs * c.ensembles, c.experiment.episodes) for c in FIGURES["c"].curves(PAPER)
    }
    assert set(sizes.values()) == {(35000, 500)}
    curve = FIGURES["d"].curves(PAPER)[0]
    nine = replace(curve.experiment, runs=curve.experiment.runs * curve.ensembles)
    assert curve.ensembles == FEWEST_ENSEMBLES
    assert (nine.runs, nine.episodes, nine.settings.network.hidden, nine.domain.lanes) == (300, 300, 256, 9)
    rooms = {c.experiment.domain.size: c.experiment.domain.forward_length for c in FIGURES["g"].curves(PAPER)}
    assert rooms == {8: 4, 16: 4, 32: 8}


@pytest.mark.parametrize("sizes", [QUICK, PAPER], ids=["quick", "paper"])
def test_every_curve_has_the_published_planner_but_ours(sizes):
    kinds = {"paper": set(), "ours": set()}
    for figure in FIGURES.values():
        for curve in figure.curves(sizes):
            if planner := curve.experiment.settings.groups().get("planner"):
                how = getattr(planner, "in_flight", None), getattr(planner, "backup", None)
                kinds["ours" if "(ours)" in curve.label else "paper"].add((type(planner).__name__, *how))
    assert kinds == {
        "paper": {("PoUct", 1, "mean")},
        "ours": {("BeliefTree", None, None), ("PoUct", 1, "mean")},
    }


@pytest.mark.parametrize("name", ["a", "c"])
def test_our_curve_differs_in_its_planner_alone_and_no_claim_is_about_it(name):
    curves = {curve.name: curve for curve in FIGURES[name].curves(QUICK)}
    ours, theirs = curves["baddr-tree"].experiment, curves["baddr"].experiment
    assert ours.changed(planner=theirs.settings.planner) == theirs
    data = made_up(FIGURES[name], QUICK)
    published = {name: rows for name, rows in data.results.items() if name not in ("baddr-tree", "latent")}
    without = replace(data, results=published, samples={})
    for claim in FIGURES[name].claims(QUICK):
        assert claim.measure(without) == claim.measure(data)


def test_the_tables_of_nine_lanes_are_counted_right():
    from baddr.domains.road_racing import make_domain
    from baddr.posteriors.factored.graph import num_counts

    assert num_counts(make_domain(lanes=9).graphs["figure"], "true") == COUNTS_9_LANES


# What is drawn. Made-up returns: curve i has i + e / 100 in episode e, and ensemble s adds s / 10.


def made_up(figure: Figure, sizes: Sizes) -> Data:
    results, timings = {}, {}
    for i, curve in enumerate(figure.curves(sizes)):
        if curve.timed:
            timings[curve.name] = {"seconds": [0.01 * (i + 1)] * 5 + [0.012 * (i + 1)]}
            continue
        episodes = min(curve.experiment.episodes, 400)
        rows = min(curve.experiment.runs, 4)
        for seed in curve.parts():
            returns = i + np.tile(np.arange(episodes) / 100, (rows, 1)) + seed / 10
            columns = {
                f"accuracy_{k}_{j}": np.full(returns.shape, 0.7) for k in ("mean", "std") for j in (0, 1)
            }
            mass = {f"accuracy_histogram_{j}": np.full(returns.shape, 0.05) for j in range(20)}
            results.setdefault(curve.name, {})[seed] = table(returns, **columns, **mass)
    return Data(results, timings, memory=2**34)


@pytest.fixture(scope="module", params=["quick", "paper"])
def all_made_up(request):
    sizes = Sizes(preset=request.param)
    return sizes, {figure.name: made_up(figure, sizes) for figure in FIGURES.values()}


def test_every_figure_has_a_picture_and_verdicts(all_made_up):
    sizes, data = all_made_up
    for figure in FIGURES.values():
        panels = pictures.panels(figure, sizes, data[figure.name])
        assert all(panel.series and panel.xlabel for panel in panels)
        names = {curve.name for curve in figure.curves(sizes)}
        assert len(names) == len(figure.curves(sizes)), "names are unique"
        found = scores(figure, sizes, data[figure.name])
        assert len(found["claims"]) >= 2 and all(c["verdict"] in MARKS for c in found["claims"])
        assert found["reduced"] == (sizes.quick and figure.name != "runtime")
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_figure_a_draws():
    data = made_up(FIGURES["a"], QUICK)
    (panel,) = pictures.panels(FIGURES["a"], QUICK, data)
    assert panel.xlabel == "episode (each point: the mean of 8)" and panel.scale == "linear"
    labels = ["BADDr, 8 networks (24 runs, 6 ensembles)", "BA-POMCP (4 runs)", "FBA-POMCP (4 runs)"]
    labels += ["BADDr with the belief tree (ours) (24 runs, 6 ensembles)", "latent (ours) (4 runs)"]
    assert [series.label for series in panel.series] == labels
    ours, tables, _, tree, latent = panel.series
    assert list(ours.x) == [8, 16, 24, 32, 40]
    assert ours.y == pytest.approx(0.25 + np.arange(3.5, 40, 8) / 100)  # ensembles add 0, .1, ... .5
    assert np.all(ours.low < ours.y) and np.all(ours.high > ours.y)
    assert tables.y == pytest.approx(1 + np.arange(3.5, 96, 8) / 100)
    assert tables.low == pytest.approx(tables.y), "equal runs leave no doubt"
    (bound,) = panel.bounds
    assert bound.label == "POMCP, true model" and bound.estimate.value == pytest.approx(3 + 19 / 200)
    assert ours.style[0] == "#0072B2" and len({series.style for series in panel.series}) == 5
    assert ours.style[1] not in (tree.style[1], latent.style[1]), "what is not the paper's has another line"


def test_what_the_other_figures_draw():
    panels = {name: pictures.panels(FIGURES[name], QUICK, made_up(FIGURES[name], QUICK)) for name in "efghi"}
    assert panels["e"][0].scale == "log" and "since the point before" in panels["e"][0].xlabel
    assert [panel.title for panel in panels["f"]] == ["3 lanes", "9 lanes"]
    assert all(len(panel.bounds) == 1 for panel in panels["f"])
    assert [len(panel.optima) for panel in panels["f"]] == [1, 0]  # nobody knows that of nine lanes
    (rooms,) = panels["g"]
    colours = [colour for bound in rooms.bounds for colour in [bound.colour] * 2]  # BADDr's and latent's
    assert [s.style[0] for s in rooms.series] == colours and len(rooms.bounds) == 3
    assert rooms.optima == ((0.8145, 0.8145), (0.6634, 0.6634))  # the rooms of 16 and 32 have the same
    models = panels["h"][0]
    assert [list(s.x) for s in models.series] == [[1, 8], [1, 8, 128]]
    assert [s.style[1] for s in models.series] == ["-", ":"], "BADDr solid, filtering dotted"
    one, everyone = panels["i"]
    assert [s.label for s in one.series] == [f"after episode {n}" for n in (1, 5, 10, 20, 40)]
    assert one.lines == ((0.85, "truth: 0.85"),) and one.series[0].y == pytest.approx(np.ones(20))
    assert everyone.heat is not None and everyone.heat[2].shape == (20, 40)
    mean, truth = everyone.series
    assert (
        mean.label.startswith("mean of the belief")
        and truth.label == "truth: 0.85"
        and set(truth.y) == {0.85}
    )


# The report.


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The report of all figures with made-up results, and their pictures."""
    folder = tmp_path_factory.mktemp("report")
    found = {}
    for figure in FIGURES.values():
        data = made_up(figure, QUICK)
        pictures.draw(pictures.panels(figure, QUICK, data), [folder / f"figure-{figure.name}.png"])
        found[figure.name] = scores(figure, QUICK, data)
    part = {"wall_seconds": 61.0, "cpu_seconds": 90.0}
    manifest = {
        "baddr": "1", "jax": "2", "python": "3", "device": "cpu", "commit": "", "started": "2026-01-01T00:00",
        "wall_seconds": 7000.0, "cpu_seconds": 9000.0, "parts": dict.fromkeys(["tiger-baddr-0", "<b>"], part),
        "hardware": {"processor": "one & only", "cores": 2, "memory_bytes": 2**34},
    }  # fmt: skip
    document = report(
        Request(),
        found,
        manifest,
        {"tiger-baddr-0": {"failures": [{"run": 3}], "prior": {"gap": [0.1, 0.25]}}},
    )
    (folder / "report.md").write_text(to_markdown(document))
    (folder / "report.html").write_text(to_html(document, lambda name: (folder / name).read_bytes()))
    return folder / "report.html"


@pytest.mark.parametrize(
    "verdicts, small, said",
    [
        ("uuu", 3, "None of the 3 claims of the paper can be judged: the experiment is too small; `--preset"),
        ("hn", 0, "Of 2 claims of the paper, 1 held and 1 did not."),
        ("hu", 0, "Of 2 claims of the paper, 1 held and 0 did not. 1 stayed undecided: "),
        ("hu", 1, "Of 2 claims of the paper, 1 held and 0 did not. The other 1 cannot be judged: "),
    ],
)
def test_the_report_starts_with_a_plain_sentence(verdicts, small, said):
    word = {"h": "held", "n": "not held", "u": "undecided"}
    few = ["7 of 8 runs" if i >= len(verdicts) - small else "" for i in range(len(verdicts))]
    claims = [{"verdict": word[v], "too_small": why} for v, why in zip(verdicts, few, strict=True)]
    assert in_short(Request(), {"a": {"claims": claims}}).startswith(said)


def test_the_report_needs_nothing_else(page):
    text = page.read_text()
    assert not re.search(r"https?://|<script|url\(|@import|srcset", text)
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']{0,30})""", text)
    assert len(sources) == 1 + len(FIGURES) and all(source.startswith("data:") for source in sources)
    assert text.index("Verdicts") < text.index("Figure a:") < text.index("How it was made")
    assert "one &amp; only" in text and "one & only" not in text and "&lt;b&gt;" in text and "<b>" not in text
    assert "(reduced size)" in text and "baddr reproduce all --preset quick" in text
    markdown = page.with_suffix(".md").read_text()
    assert all(f"](figure-{name}.png)" in markdown for name in FIGURES)


def visit(chromium: str, page: Path, folder: Path) -> tuple[str, str, set[str]]:
    """The page as Chromium has it, what Chromium says, and what the page asked for (not Chromium itself)."""
    log = folder / "net.json"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    flags += [f"--user-data-dir={folder}", f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    done = subprocess.run([chromium, *flags, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    mine = [event for event in events if event.get("network_isolation_key", "").startswith("file:")]
    return done.stdout, done.stderr, {event["url"] for event in mine if "url" in event}


def test_the_report_opens_in_a_browser_without_errors_and_without_network(page, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here")
    shown, said, asked = visit(chromium, page, tmp_path)
    assert shown.count("<img") == len(FIGURES) and "CONSOLE" not in said
    assert not [url for url in asked if url.startswith("http")]
    (tmp_path / "bad.html").write_text(
        "<img src='http://example.com/x.png'><script>console.error('!')</script>"
    )
    _, said, asked = visit(chromium, tmp_path / "bad.html", tmp_path)
    assert "http://example.com/x.png" in asked and "CONSOLE" in said, "the test would have seen it"


# The whole, at toy sizes.


def toy_curves(sizes: Sizes) -> tuple[Curve, ...]:
    """A random agent on tiger and a bound: little to compile."""

    def toy(curve: Curve) -> Curve:
        e = curve.experiment
        sizes = {"planner": {"num_simulations": 64}, "filter": {"num_particles": 64}}
        groups = {name: replace(group, **sizes[name]) for name, group in e.settings.groups().items()}
        small = replace(e.changed(**groups), chunk_size=2)
        return replace(curve, experiment=small)

    style = ("#0072B2", "-", "o")
    chance = curves.curve(
        sizes, "baddr", "chance", TigerSettings(), "random", {"runs": 4, "episodes": 200}, style=style
    )
    bound = curves.curve(sizes, "pomcp", "POMCP", TigerSettings(), "pomcp", {"runs": 4, "episodes": 10})
    return toy(chance), toy(bound)


def toy_claims(sizes: Sizes) -> tuple[Claim, ...]:
    return (Claim("It learns.", gain("baddr"), "gain", at_least=0.0),)


TOY = Figure("toy", "A toy", "Nothing.", toy_curves, toy_claims)
PATCH = """
import sys; sys.path.insert(0, {here!r})
from baddr.paper import figures
from baddr.lab import runner
import test_reproduce
figures.FIGURES["toy"] = test_reproduce.TOY
from baddr.cli import main
"""


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(FIGURES, "toy", TOY)


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """An uninterrupted reproduction."""
    folder = tmp_path_factory.mktemp("reproduce") / "finished"
    FIGURES["toy"] = TOY
    assert baddr_main("reproduce", "toy", "--out", folder) == 0
    del FIGURES["toy"]
    return folder


def start(*arguments: object) -> subprocess.Popen:
    code = PATCH.format(here=str(Path(__file__).parent))
    for module in ("runner", "chunk", "engine"):  # wherever the interval between checkpoints lives
        code += f"try:\n    import baddr.lab.{module} as m; m.SECONDS_BETWEEN_CHECKPOINTS = 0\n"
        code += "except ImportError: pass\n"
    command = [sys.executable, "-c", f"{code}main(sys.argv[1:])", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, folder: Path, number: int) -> None:
    """Until a chunk of some part has written its `number`-th checkpoint, or a later one."""
    deadline = time.monotonic() + 240
    while not any(int(path.stem) >= number for path in folder.glob("parts/*/checkpoints/*/*.ckpt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def data_of(folder: Path) -> dict[str, bytes]:
    """episodes.parquet of every part."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("parts/*/episodes.parquet")}


def test_reproduce_leaves_parts_pictures_scores_and_a_report(toy, finished, capsys):
    names = set(os.listdir(finished))
    assert {"reproduce.toml", "manifest.json", "report.md", "report.html", "parts"} <= names
    assert {f"figure-toy.{suffix}" for suffix in ("png", "svg", "json")} <= names
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["status"] == "complete" and manifest["wall_seconds"] > 0
    assert {"baddr", "jax", "device", "commit", "hardware", "started"} <= manifest.keys()
    assert len(data_of(finished)) == 2
    part = next(finished.glob("parts/tiger-random-*"))
    assert set(baddr.load_results(part)["run"]) == {0, 1, 2, 3}
    assert baddr_main("resume", part) == 0
    assert "is complete" in capsys.readouterr().out
    scores = json.loads((finished / "figure-toy.json").read_text())
    assert [curve["runs"] for curve in scores["curves"]] == [4, 4]


def test_a_finished_one_says_so_and_changes_nothing(toy, finished, capsys):
    before = sorted((p, p.stat().st_mtime_ns) for p in finished.rglob("*"))
    assert baddr_main("resume", finished) == 0
    assert "is complete" in capsys.readouterr().out
    assert baddr_main("reproduce", "toy", "--out", finished) == 2
    assert "already holds figures" in capsys.readouterr().err
    assert baddr_main("resume", finished, "--runs", 8) == 2
    assert "sizes are fixed" in capsys.readouterr().err
    assert before == sorted((p, p.stat().st_mtime_ns) for p in finished.rglob("*"))


def test_kill_and_resume_gives_the_same_data(toy, finished, tmp_path, capsys):
    folder = tmp_path / "killed"
    process = start("reproduce", "toy", "--out", folder)
    wait_for(process, folder, 2)
    process.kill()
    process.communicate()
    # Killed again where a part had its folder and its settings, but no manifest yet.
    half = folder / "parts" / part_name(toy_curves(QUICK)[1].experiment)
    half.mkdir(exist_ok=True)
    (half / "config.toml").write_text("")
    assert baddr_main("resume", folder) == 0
    assert data_of(folder) == data_of(finished)
    assert "wall time" in capsys.readouterr().out


def test_interrupted_by_ctrl_c_it_says_how_to_go_on(toy, finished, tmp_path):
    folder = tmp_path / "interrupted"
    process = start("reproduce", "toy", "--out", folder)
    wait_for(process, folder, 1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and f"baddr resume {folder}" in error and "Traceback" not in error
    assert baddr_main("resume", folder) == 0
    assert data_of(folder) == data_of(finished)


def with_a_fault(number: int, monkeypatch) -> None:
    """The disk is full at one write, counted from 0, and at all after it."""
    replace_file, writes = os.replace, []

    def full(*paths):
        writes.append(paths)
        if len(writes) > number:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(*paths)

    monkeypatch.setattr(os, "replace", full)


def check_a_fault(number: int, finished: Path, folder: Path, monkeypatch) -> bool:
    """Whether the fault was met; afterwards the data are those of an uninterrupted reproduction."""
    with monkeypatch.context() as patch:
        with_a_fault(number, patch)
        met = baddr_main("reproduce", "toy", "--out", folder) != 0
    begun = (folder / "reproduce.toml").exists()
    assert baddr_main(*(["resume", folder] if begun else ["reproduce", "toy", "--out", folder])) == 0
    assert data_of(folder) == data_of(finished)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "complete"
    return met


@pytest.mark.parametrize("number", [3])
def test_a_full_disk_loses_nothing(toy, number, finished, tmp_path, monkeypatch, capsys):
    assert check_a_fault(number, finished, tmp_path / "full", monkeypatch)
    said = capsys.readouterr().err
    assert "no space left on device" in said and "Traceback" not in said


@pytest.mark.slow
def test_a_full_disk_at_every_write_loses_nothing(toy, finished, tmp_path, monkeypatch):
    number = 0
    while check_a_fault(number, finished, tmp_path / str(number), monkeypatch):
        number += 1
    assert number > 15


@pytest.mark.slow
def test_ten_kills_lose_nothing(toy, finished, tmp_path):
    folder, generator, kills = tmp_path / "often", random.Random(0), 0
    while kills < 10:
        fresh = not (folder / "reproduce.toml").exists()
        process = start(*(["reproduce", "toy", "--out", folder] if fresh else ["resume", folder]))
        try:
            process.communicate(timeout=generator.uniform(2.0, 12.0))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert baddr_main("resume", folder) == 0
    assert data_of(folder) == data_of(finished)


def test_a_second_program_is_refused(toy, tmp_path, capsys):
    folder = Reproduction(tmp_path / "busy")
    with folder.owned():
        reproduce.write(folder.request, b'figures = ["toy"]\n')
        assert baddr_main("resume", folder.path) == 2
    assert "Another program is working" in capsys.readouterr().err


def test_dry_run_lists_the_parts(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baddr_main("reproduce", "toy", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "tiger-random-" in said and "MiB" in said and "Nothing was run" in said
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce"], "Name a figure"),
        (["reproduce", "z"], "There is no figure 'z'"),
        (["reproduce", "runtme"], "did you mean 'runtime'"),
        (["reproduce", "a", "--runs", "-1"], "--runs must be at least 1"),
        (["reproduce", "a", "--preset", "huge"], "--preset"),
        (["reproduce", "a", "--seed", "-1"], "--seed must lie"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baddr_main(*arguments) == 2
    error = capsys.readouterr().err.strip()
    assert sentence in error and "\n" not in error and error.startswith("baddr: ")
    assert os.listdir(tmp_path) == []


def test_list_names_the_figures(capsys):
    assert baddr_main("list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["figures"]
    assert {*"abcdefghi", "episodes", "runtime"} <= listed.keys()


def test_episodes_until_the_papers_final_return():
    """Made-up returns of curve i are i + e / 100: tiger's goal of 2.2 is first met over ten episodes by
    FBA-POMCP (i = 2) from its 17th on, by BADDr (i = 0) never."""
    figure = FIGURES["a"]
    found = scores(figure, QUICK, made_up(figure, QUICK))
    until = {c["name"]: c.get("until") for c in found["curves"]}
    order = [c.name for c in figure.curves(QUICK)]
    assert found["curves"][0]["goal"] == 2.2 and until["baddr"] is None and order.index("fba-pomcp") == 2
    # ten episodes from e on have the mean 2 + (e + 4.5) / 100 >= 2.2 first at e = 15.5, the 17th episode
    assert until["fba-pomcp"] == 17
    assert "until" not in next(c for c in found["curves"] if c["name"] == "pomcp")
    rooms = FIGURES["g"].curves(QUICK)
    assert {c.name: final_return(rooms, c) for c in rooms if c.experiment.agent == "latent"} == {
        "latent-8": 0.8,
        "latent-16": 0.62,
        "latent-32": 0.62,
    }
