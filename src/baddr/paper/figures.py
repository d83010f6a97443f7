"""Every figure and table of the paper: its experiments, its claims and its numbers. Needs no JAX.

A figure is a set of curves. A curve is an experiment, or several that differ in their seed only: all runs of
one experiment share the networks that its seed drew, so a curve over several seeds averages over ensembles.
An experiment's results lie in a folder that is named after its settings: figures share equal ones.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from baddr.agents.kinds import agent_class
from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.domains.gridverse.settings import GridverseSettings
from baddr.domains.road_racing.settings import RoadRacingSettings
from baddr.domains.tiger.settings import TigerSettings
from baddr.errors import nearest
from baddr.lab.experiment import AnyExperiment, preset, to_config
from baddr.paper.claims import (
    FEWEST_ENSEMBLES,
    Claim,
    belief,
    difference,
    difference_of_gaps,
    gain,
    hours_of_a_run,
    level,
    memory_needed,
    narrowing,
    reached,
    risking,
    slower,
    trend,
    with_worst,
)
from baddr.posteriors.settings import FactoredSettings

# Okabe and Ito's colours: colour-blind readers can tell them apart. BADDr is blue, as in the paper.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)  # fmt: skip
AGENT_STYLES = {
    "baddr": (BLUE, "-", "o"),
    "filtering": (BLUE, ":", "s"),
    "fba-pomcp": (VERMILION, "--", "s"),
    "ba-pomcp": (GREEN, "-.", "^"),
    "dpfrl": (PURPLE, "--", "D"),
    "pomcp": (BLACK, ":", ""),
}
# Counts of one particle where all tables of the paper's graph of 9 lanes are stored (docs/factored.md).
COUNTS_9_LANES = 4_081_467_852
# The paper's planner, whatever a preset prefers: the kind that has simulations.
PUBLISHED = {"planner": frozenset({"num_simulations"})}


@dataclass(frozen=True)
class Sizes:
    """What `baddr reproduce` was asked for; 0: as the figure has it."""

    preset: Literal["quick", "paper"] = "quick"
    runs: int = 0
    episodes: int = 0
    ensembles: int = 0
    seed: int = 0

    @property
    def quick(self) -> bool:
        return self.preset == "quick"


@dataclass(frozen=True)
class Curve:
    """A line of a picture, a point of it, or a row of a table."""

    name: str
    label: str
    experiment: AnyExperiment
    ensembles: int = 1
    panel: str = ""
    style: tuple[str, str, str] = (BLACK, "-", "o")  # colour, line, marker
    paper: str = ""  # what the paper says this curve reaches
    timed: bool = False  # a few steps of one run are timed, and nothing else
    models: int = 0  # in the ensemble, where that is what the picture is about

    @property
    def is_bound(self) -> bool:
        return self.experiment.agent == "pomcp"

    def parts(self) -> dict[int, AnyExperiment]:
        """The curve's experiments by their seeds."""
        e = self.experiment
        return {seed: replace(e, seed=seed) for seed in range(e.seed, e.seed + self.ensembles)}


Curves = tuple[Curve, ...]
Kind = Literal["curves", "models", "histogram", "episodes", "runtime"]


@dataclass(frozen=True)
class Figure:
    """A figure or a table: what is run for it, what is drawn, and what the paper says about it."""

    name: str
    title: str
    shows: str  # what the paper shows
    curves: Callable[[Sizes], Curves]
    claims: Callable[[Sizes], tuple[Claim, ...]]
    kind: Kind = "curves"
    log: bool = False  # the axis of episodes
    note: str = ""  # where we know that we differ


def part_name(experiment: AnyExperiment, timed: bool = False) -> str:
    """A folder's name: equal settings, equal names."""
    size = getattr(experiment.domain, "size", None) or getattr(experiment.domain, "lanes", None)
    words = [experiment.name, *([str(size)] if size else []), experiment.agent, *(["timed"] if timed else [])]
    return "-".join([*words, hashlib.sha256(to_config(experiment)).hexdigest()[:8]])


def published(domain: Any, agent: str, name: str) -> AnyExperiment:
    """At a preset's settings, but planning as the paper does: PO-UCT, one simulation after the other."""
    start = preset(domain.name, agent, name, domain, PUBLISHED)
    planner = start.settings.groups().get("planner")
    return start if planner is None else start.changed(planner=replace(planner, in_flight=1, backup="mean"))


def curve(
    sizes: Sizes,
    name: str,
    label: str,
    domain: Any,
    agent: str,
    quick: dict[str, int],
    ensembles: int = 1,
    changes: dict[str, Any] | None = None,
    **others: Any,
) -> Curve:
    """`agent` on `domain` at the preset's settings; `quick` holds the runs and episodes of the quick one."""
    start = published(domain, agent, sizes.preset)
    experiment = replace(start.changed(**(changes or {})), seed=sizes.seed)
    if sizes.quick:
        experiment = replace(experiment, **quick)
    variant = agent_class(agent).variant
    if variant in ("network", "latent"):  # one ensemble says nothing about another training
        ensembles = sizes.ensembles or (ensembles if sizes.quick else max(ensembles, FEWEST_ENSEMBLES))
    runs = sizes.runs or experiment.runs * (ensembles if sizes.quick else 1)
    if variant == "learner":  # a learner is a run of tens of thousands of episodes
        runs = min(runs, experiment.runs)
    episodes = min(sizes.episodes or experiment.episodes, experiment.episodes)
    experiment = replace(experiment, runs=-(-runs // ensembles), episodes=episodes)
    style = others.pop("style", None) or AGENT_STYLES[agent]
    return Curve(name, label, experiment, ensembles, style=style, **others)


def timed(sizes: Sizes, domain: Any, agent: str, label: str, panel: str) -> Curve:
    """One run at the paper's sizes of planner, filter and network, a few steps of it."""
    experiment = published(domain, agent, "paper")
    # How well the networks fit does not matter much for the time of a step; 512 batches are enough to act.
    if pretrain := experiment.settings.groups().get("pretrain"):
        trained = replace(pretrain, batches=min(pretrain.batches, 512), max_gap=100.0)
        experiment = experiment.changed(pretrain=trained)
    experiment = replace(experiment, runs=1, episodes=1, chunk_size=1, seed=sizes.seed)
    return Curve(f"{panel}/{agent}", label, experiment, panel=panel, style=AGENT_STYLES[agent], timed=True)


# The worst that an agent returns in every episode: the wrong door at once, a collision, a goal that is never
# found, 20 steps right behind a car (1 each). And what is believed in the mirrored model, of .85.
TIGER, CRASH, LOST, STUCK, MIRRORED = -100.0, -1000.0, 0.0, 12.8, 0.15
WORST = {"tiger": TIGER, "collision-avoidance": CRASH, "gridverse": LOST, "road-racing": STUCK}

# What fits the networks to their simulators, where the numbers of the paper's table do not. On the road the
# closest fit learns slowest online: these are compromises (docs/domains/road-racing.md).
ROAD_3_PRETRAIN = {"batches": 8192, "learning_rate": 0.002, "optimizer": "adam"}
ROAD_9_PRETRAIN = {"batches": 8192, "learning_rate": 0.0005, "optimizer": "adam"}
GRIDVERSE_PRETRAIN = {"batches": 16384, "batch_size": 128}

# The experiments that figures share.

BOUND = "POMCP, true model"


def tiger_baddr(sizes: Sizes, models: int = 0, **others: Any) -> Curve:
    """The paper's text has one network, its table 1, 4 or 8: `paper` has what is asked for, `quick` has 8."""
    models = models or (8 if sizes.quick else 1)
    return tiger_networks(sizes, "baddr", models, **others)


def tiger_networks(sizes: Sizes, agent: str, models: int, **others: Any) -> Curve:
    start = preset("tiger", agent, sizes.preset, kinds=PUBLISHED)
    changes = {"pretrain": replace(start.settings.pretrain, num_networks=models)}
    label = f"{'BADDr' if agent == 'baddr' else 'filtering'}, {models} network{'s' * (models > 1)}"
    name = agent if agent == "baddr" and models == (8 if sizes.quick else 1) else f"{agent}-{models}"
    quick, ensembles = {"runs": 4, "episodes": 40}, 10
    if sizes.quick:  # training takes most of the time; several figures show BADDr with 8
        ensembles = 2 if models > 32 else 6 if name == "baddr" else 4
    return curve(
        sizes, name, label, TigerSettings(), agent, quick, ensembles, changes, models=models, **others
    )  # fmt: skip


def tiger_pomcp(sizes: Sizes) -> Curve:
    return curve(
        sizes, "pomcp", BOUND, TigerSettings(), "pomcp", {"runs": 128, "episodes": 20}, paper="about 3.3"
    )


def road_baddr(sizes: Sizes, lanes: int, **others: Any) -> Curve:
    quick = {"runs": 12, "episodes": 20} if lanes < 6 else {"runs": 8, "episodes": 12}
    lanes_settings = RoadRacingSettings(lanes=lanes)
    start = preset("road-racing", "baddr", sizes.preset, lanes_settings, PUBLISHED)
    if not sizes.quick:  # the table's SGD does not train these networks
        fits = ROAD_3_PRETRAIN if lanes < 6 else ROAD_9_PRETRAIN
        others["changes"] = {"pretrain": replace(start.settings.pretrain, **fits)}
    elif lanes >= 6:  # 1024 particles would take ten minutes
        others["changes"] = {"filter": replace(start.settings.filter, num_particles=256)}
    name = others.pop("name", "baddr")
    paper = "45.2 after 200" if lanes < 6 else "52.3 after 200"
    label = "BADDr" if lanes < 6 else "BADDr, 64 nodes" if sizes.quick else "BADDr"
    return curve(sizes, name, label, RoadRacingSettings(lanes=lanes), "baddr", quick, paper=paper, **others)


def road_pomcp(sizes: Sizes, lanes: int, **others: Any) -> Curve:
    name = others.pop("name", "pomcp")
    quick = {"runs": 64, "episodes": 20}
    return curve(sizes, name, BOUND, RoadRacingSettings(lanes=lanes), "pomcp", quick, **others)


def collision(sizes: Sizes, name: str, agent: str, label: str, runs: int, **others: Any) -> Curve:
    quick = {"runs": runs, "episodes": 100}
    return curve(sizes, name, label, CollisionAvoidanceSettings(), agent, quick, **others)


def room(size: int) -> GridverseSettings:
    """One cell a step cannot give the paper's returns: 4 cells, and 8 from size 32 on."""
    return GridverseSettings(size=size, forward_length=4 if size < 32 else 8)


def room_curve(sizes: Sizes, size: int, agent: str, **others: Any) -> Curve:
    quick = {"runs": 64, "episodes": 10} if agent == "pomcp" else {"runs": 8, "episodes": 40}
    who = {"baddr": "BADDr", "pomcp": "POMCP", "latent": "latent (ours)"}[agent]
    label = f"{who}, {size} x {size}"
    name = others.pop("name", f"{agent}-{size}")
    if agent == "baddr" and not sizes.quick:  # the table's 512 batches leave them far from their simulators
        start = preset("gridverse", agent, "paper", room(size), PUBLISHED)
        others["changes"] = {"pretrain": replace(start.settings.pretrain, **GRIDVERSE_PRETRAIN)}
    return curve(sizes, name, label, room(size), agent, quick, **others)


def dpfrl(sizes: Sizes, name: str, domain: Any, episodes: int, **others: Any) -> Curve:
    quick = {"runs": 4, "episodes": episodes}
    return curve(sizes, name, "DPFRL", domain, "dpfrl", quick, **others)


def tiger_dpfrl(sizes: Sizes, **others: Any) -> Curve:
    return dpfrl(sizes, "dpfrl", TigerSettings(), 1700, paper="2.2 after 20,000", **others)


def road_dpfrl(sizes: Sizes, lanes: int, **others: Any) -> Curve:
    paper, quick = ("45.2 after 20,000", 850) if lanes < 6 else ("52.3 after 8,000", 350)
    return dpfrl(sizes, f"dpfrl-{lanes}", RoadRacingSettings(lanes=lanes), quick, paper=paper, **others)


def with_tree(published: Curve) -> Curve:
    """BADDr as this curve has it, with our planner in place of the paper's: no claim is about it."""
    e = published.experiment
    tree = preset(e.name, e.agent, "quick", e.domain, {"planner": "belief-tree"}).settings.planner
    return replace(
        published,
        name="baddr-tree",
        label="BADDr with the belief tree (ours)",
        experiment=e.changed(planner=tree),
        style=(PURPLE, "--", "*"),
        paper="",
    )


def latent(sizes: Sizes, domain: Any, runs: int, episodes: int, **others: Any) -> Curve:
    """Agent latent, planning as the paper does: no claim is about it."""
    quick, style = {"runs": runs, "episodes": episodes}, (PURPLE, "-.", "P")
    return curve(sizes, "latent", "latent (ours)", domain, "latent", quick, style=style, **others)


def road_latent(sizes: Sizes, lanes: int) -> Curve:
    road, changes = RoadRacingSettings(lanes=lanes), None
    if sizes.quick:  # thousands of particles take minutes on a few cores
        start = preset("road-racing", "latent", "quick", road, PUBLISHED)
        changes = {"filter": replace(start.settings.filter, num_particles=512, resample_below=256.0)}
    return latent(sizes, road, 4, 12, changes=changes)


# Figures.


def figure_a(sizes: Sizes) -> Curves:
    paper = "2.2 after 400"
    eight = () if sizes.quick else (tiger_baddr(sizes, 8, style=(SKY, "-", "v"), paper=paper),)
    return (
        tiger_baddr(sizes, paper=paper),
        *eight,
        curve(sizes, "ba-pomcp", "BA-POMCP", TigerSettings(), "ba-pomcp", {"runs": 64, "episodes": 100}),
        curve(sizes, "fba-pomcp", "FBA-POMCP", TigerSettings(), "fba-pomcp", {"runs": 64, "episodes": 100}),
        tiger_pomcp(sizes),
        with_tree(tiger_baddr(sizes)),
        latent(sizes, TigerSettings(), 24, 40),
    )


@risking(TIGER)
def claims_a(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "Tables have a slight advantage at first.",
            difference("ba-pomcp", "baddr", "first"),
            "BA-POMCP less BADDr, first tenth",
            at_least=0.0,
            after=400,
        ),
        Claim(
            "BADDr catches up with BA-POMCP and reaches the same performance.",
            difference("baddr", "ba-pomcp", "last"),
            "BADDr less BA-POMCP, last quarter",
            at_least=-0.5,
            after=400,
        ),
        Claim(
            "BADDr is competitive with FBA-POMCP.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-0.5,
            after=400,
        ),
        Claim(
            "BADDr returns 2.2 after 400 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=1.7,
            paper="2.2",
            after=400,
        ),
        Claim(
            "POMCP on the true model is an upper bound.",
            difference("baddr", "pomcp", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_most=0.0,
            after=400,
        ),
    )


def figure_b(sizes: Sizes) -> Curves:
    road = RoadRacingSettings(lanes=3)
    return (
        road_baddr(sizes, 3),
        curve(sizes, "fba-pomcp", "FBA-POMCP", road, "fba-pomcp", {"runs": 24, "episodes": 30}),
        road_pomcp(sizes, 3),
        road_latent(sizes, 3),
    )


@risking(STUCK)
def claims_b(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "The difference between BADDr and tables of counts is non-existent.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-0.5,
            at_most=0.5,
            after=200,
        ),
        Claim(
            "BADDr returns 45.2 after 200 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=44.7,
            paper="45.2",
            after=200,
        ),
        Claim(
            "BADDr learns.", gain("baddr"), "BADDr, last quarter less first tenth", at_least=0.0, after=200
        ),
    )


def figure_c(sizes: Sizes) -> Curves:
    uncertain = {"factored": FactoredSettings(graph="uncertain-observation")}
    baddr = collision(sizes, "baddr", "baddr", "BADDr", 32, paper="-102 after 500")
    return (
        baddr,
        collision(sizes, "fba-pomcp", "fba-pomcp", "FBA-POMCP", 64),
        collision(
            sizes,
            "uncertain",
            "fba-pomcp",
            "FBA-POMCP, uncertain prior",
            64,
            changes=uncertain,
            style=(ORANGE, "-.", "v"),
        ),
        collision(sizes, "pomcp", "pomcp", BOUND, 64),
        with_tree(baddr),
        latent(sizes, CollisionAvoidanceSettings(), 32, 100),
    )


@risking(CRASH)
def claims_c(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "BADDr performs nearly as well as FBA-POMCP.",
            difference("baddr", "fba-pomcp", "last"),
            "BADDr less FBA-POMCP, last quarter",
            at_least=-10.0,
            after=500,
        ),
        Claim(
            "FBA-POMCP's control of the prior's certainty gives it an advantage over BADDr.",
            difference("fba-pomcp", "baddr", "all"),
            "FBA-POMCP less BADDr, all episodes",
            at_least=0.0,
            after=500,
        ),
        Claim(
            "BADDr outperforms FBA-POMCP with an equally uncertain prior.",
            difference("baddr", "uncertain", "all"),
            "BADDr less FBA-POMCP with the uncertain prior, all episodes",
            at_least=0.0,
            after=500,
        ),
        Claim(
            "BADDr returns -102 after 500 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=-112.0,
            paper="-102",
            after=500,
        ),
    )


def figure_d(sizes: Sizes) -> Curves:
    return road_baddr(sizes, 9), road_pomcp(sizes, 9), road_latent(sizes, 9)


@risking(STUCK)
def claims_d(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "BADDr nearly reaches the performance of POMCP on the true model.",
            difference("baddr", "pomcp", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_least=-2.5,
            paper="52.3 less 54.3",
            after=200,
        ),
        Claim(
            "BADDr returns 52.3 after 200 episodes.",
            level("baddr", "last"),
            "BADDr, last quarter",
            at_least=51.8,
            paper="52.3",
            after=200,
        ),
        Claim(
            "BADDr learns.", gain("baddr"), "BADDr, last quarter less first tenth", at_least=0.0, after=200
        ),
        Claim(
            "FBA-POMCP has 10^13 entries and runs out of memory.",
            memory_needed(4 * 1024 * COUNTS_9_LANES),
            "memory that 1024 particles with all tables need, by this machine's",
            at_least=1.0,
            paper="10^13 entries",
        ),
    )


def figure_e(sizes: Sizes) -> Curves:
    return (
        tiger_baddr(sizes, paper="2.2 after 400"),
        tiger_dpfrl(sizes),
        tiger_pomcp(sizes),
    )


@risking(TIGER)
def claims_e(sizes: Sizes) -> tuple[Claim, ...]:
    return (
        Claim(
            "DPFRL starts with a return of -40 by opening doors at random.",
            level("dpfrl", 100),
            "DPFRL, first 100 episodes",
            at_least=-50.0,
            at_most=-30.0,
            paper="-40",
            after=100,
        ),
        Claim(
            "BADDr has the better initial performance.",
            difference("baddr", "dpfrl", "first", 100),
            "BADDr's first tenth less DPFRL's first 100 episodes",
            at_least=0.0,
            after=400,
        ),
        Claim(
            "BADDr needs at least 40 times fewer episodes.",
            reached("dpfrl", "baddr"),
            "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
            at_least=40.0,
            paper="50",
            after=400,
        ),
        Claim(
            "The eventual performance is similar.",
            difference("dpfrl", "baddr", "last", "last"),
            "DPFRL less BADDr, last quarter of each",
            at_least=-0.5,
            after=20_000,
        ),
    )


def figure_f(sizes: Sizes) -> Curves:
    curves = []
    for lanes in (3, 9):
        panel = f"{lanes} lanes"
        curves += [
            road_baddr(sizes, lanes, name=f"baddr-{lanes}", panel=panel),
            road_dpfrl(sizes, lanes, panel=panel),
            road_pomcp(sizes, lanes, name=f"pomcp-{lanes}", panel=panel),
        ]
    return tuple(curves)


@risking(STUCK)
def claims_f(sizes: Sizes) -> tuple[Claim, ...]:
    claims = []
    for lanes, ratio in ((3, "100"), (9, "40")):
        claims += [
            Claim(
                f"{lanes} lanes: BADDr has the better initial performance.",
                difference(f"baddr-{lanes}", f"dpfrl-{lanes}", "first", 100),
                "BADDr's first tenth less DPFRL's first 100 episodes",
                at_least=0.0,
                after=200,
            ),
            Claim(
                f"{lanes} lanes: DPFRL takes thousands of episodes to get where BADDr starts.",
                reached(f"dpfrl-{lanes}", f"baddr-{lanes}", "first", ratio=False),
                "episodes until DPFRL reaches BADDr's first tenth",
                at_least=1000.0,
                paper="thousands",
                after=200,
            ),
            Claim(
                f"{lanes} lanes: BADDr needs at least 40 times fewer episodes.",
                reached(f"dpfrl-{lanes}", f"baddr-{lanes}"),
                "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
                at_least=40.0,
                paper=ratio,
                after=200,
            ),
        ]
    return tuple(claims)


ROOMS = {8: (BLUE, "-", "o", ".80"), 16: (VERMILION, "--", "s", ".62"), 32: (GREEN, "-.", "^", ".62")}


def figure_g(sizes: Sizes) -> Curves:
    curves = []
    for size, (colour, line, marker, paper) in ROOMS.items():
        reaches = f"{paper} after 50"
        curves += [
            room_curve(sizes, size, "baddr", style=(colour, line, marker), paper=reaches),
            room_curve(sizes, size, "pomcp", style=(colour, ":", "")),
            room_curve(sizes, size, "latent", style=(colour, line, "P")),
        ]
    return tuple(curves)


@risking(LOST)
def claims_g(sizes: Sizes) -> tuple[Claim, ...]:
    near = [
        Claim(
            f"{size} x {size}: BADDr performs nearly as well as if given the true model.",
            difference(f"baddr-{size}", f"pomcp-{size}", "last", "all"),
            "BADDr less POMCP, last quarter",
            at_least=-0.05,
            after=50,
        )
        for size in ROOMS
    ]
    larger = Claim(
        "A larger room has only a small visible effect.",
        difference_of_gaps("baddr-32", "pomcp-32", "baddr-8", "pomcp-8"),
        "how much further BADDr stays below POMCP in the room of 32 than in that of 8",
        at_most=0.05,
        after=50,
    )
    return (*near, larger)


def models_of(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    if sizes.quick:
        return {"baddr": (1, 8), "filtering": (1, 8, 128)}
    return {agent: tuple(2**i for i in range(8)) for agent in ("baddr", "filtering")}


def figure_h(sizes: Sizes) -> Curves:
    curves = [tiger_networks(sizes, agent, n) for agent, models in models_of(sizes).items() for n in models]
    return (*curves, tiger_pomcp(sizes))


@risking(TIGER)
def claims_h(sizes: Sizes) -> tuple[Claim, ...]:
    names = {
        agent: {n: tiger_networks(sizes, agent, n).name for n in models}
        for agent, models in models_of(sizes).items()
    }
    rises = [
        Claim(
            f"{title} gets better with the number of models.",
            trend(names[agent]),
            "last quarter",
            at_least=0.0,
            after=400,
        )
        for agent, title in (("baddr", "BADDr"), ("filtering", "Filtering"))
    ]
    same = [
        Claim(
            f"With {n} model{'s' * (n > 1)} BADDr is better than filtering.",
            difference(names["baddr"][n], names["filtering"][n], "last"),
            f"BADDr less filtering, {n} each, last quarter",
            at_least=0.0,
            after=400,
        )
        for n in (1, 8)
    ]
    enough = Claim(
        "Filtering 128 models performs as BADDr with 8 does.",
        difference(names["filtering"][128], names["baddr"][8], "last"),
        "filtering with 128 less BADDr with 8, last quarter",
        at_least=-0.5,
        at_most=0.5,
        after=400,
    )
    return (*rises, *same, enough)


def figure_i(sizes: Sizes) -> Curves:
    eight = () if sizes.quick else (tiger_baddr(sizes, 8, style=(SKY, "-", "v")),)
    return (tiger_baddr(sizes, paper=".85 after 20"), *eight)


@risking(MIRRORED)
def claims_i(sizes: Sizes) -> tuple[Claim, ...]:
    claims = []
    for name, models in (("baddr", 8),) if sizes.quick else (("baddr", 1), ("baddr-8", 8)):
        of = f"{models} network{'s' * (models > 1)}"
        claims += [
            Claim(
                f"{of}: initially the expectation is incorrect.",
                belief(name, "accuracy_mean", 1),
                "mean of the believed accuracy after 1 episode",
                at_most=0.75,
                after=20,
            ),
            Claim(
                f"{of}: over 20 episodes the belief converges to the true value of .85.",
                belief(name, "accuracy_mean", 20),
                "mean of the believed accuracy after 20 episodes",
                at_least=0.80,
                at_most=0.90,
                paper=".85",
                after=20,
            ),
            Claim(
                f"{of}: the belief becomes certain.",
                narrowing(name, 20),
                "its standard deviation after 20 episodes less that after 1",
                at_most=0.0,
                after=20,
            ),
        ]
    return tuple(claims)


TABLE = {  # the paper's table: BADDr's episodes, DPFRL's, the return of both
    "tiger": (400, 20_000, 2.2),
    "collision-avoidance": (500, 600_000, -102.0),
    "road-racing-3": (200, 20_000, 45.2),
    "road-racing-9": (200, 8_000, 52.3),
    "gridverse-8": (50, 5_950, 0.8),
    "gridverse-16": (50, 13_000, 0.62),
    "gridverse-32": (50, None, 0.62),
}


def figure_episodes(sizes: Sizes) -> Curves:
    """All domains of the table; `quick` has those whose learners figures e and f have, too."""

    def row(name: str, baddr: Curve, learner: Curve) -> Curves:
        ours = replace(baddr, name=f"{name}/baddr", label="BADDr", panel=name, style=AGENT_STYLES["baddr"])
        return ours, replace(learner, name=f"{name}/dpfrl", panel=name)

    rows = [
        row("tiger", tiger_baddr(sizes), tiger_dpfrl(sizes)),
        row("road-racing-3", road_baddr(sizes, 3), road_dpfrl(sizes, 3)),
    ]
    if not sizes.quick:
        flying = CollisionAvoidanceSettings()
        others = [("gridverse-8", 8), ("gridverse-16", 16), ("gridverse-32", 32)]
        rows += [
            row("collision-avoidance", collision(sizes, "", "baddr", "", 0), dpfrl(sizes, "", flying, 0)),
            row("road-racing-9", road_baddr(sizes, 9), road_dpfrl(sizes, 9)),
            *(row(n, room_curve(sizes, s, "baddr"), dpfrl(sizes, "", room(s), 0)) for n, s in others),
        ]
    return tuple(curve for pair in rows for curve in pair)


def claims_episodes(sizes: Sizes) -> tuple[Claim, ...]:
    claims = []
    for name in dict.fromkeys(curve.panel for curve in figure_episodes(sizes)):
        ours, theirs, value = TABLE[name]
        paper = f"{theirs / ours:g} at {value:g}" if theirs else f"never reached {value:g}"
        claim = Claim(
            f"{name}: BADDr needs at least 40 times fewer episodes.",
            reached(f"{name}/dpfrl", f"{name}/baddr", within=ours),
            "episodes until DPFRL reaches BADDr's last quarter, by BADDr's episodes",
            at_least=40.0,
            paper=paper,
            after=ours,
        )
        worst = next(value for domain, value in WORST.items() if name.startswith(domain))
        claims.append(with_worst(claim, worst))
    return tuple(claims)


# The paper's numbers of steps in a run: episodes x horizon.
RUN_STEPS = {"tiger": 400 * 30, "collision-avoidance": 500 * 4, "road-racing-3": 200 * 20}
RUN_STEPS |= {"road-racing-9": 300 * 20, "gridverse-8": 250 * 30, "gridverse-32": 250 * 30}
TIMED_DOMAINS = {
    "tiger": TigerSettings(),
    "collision-avoidance": CollisionAvoidanceSettings(),
    "road-racing-3": RoadRacingSettings(),
}


def figure_runtime(sizes: Sizes) -> Curves:
    pairs = [
        timed(sizes, domain, agent, label, name)
        for name, domain in TIMED_DOMAINS.items()
        for agent, label in (("baddr", "BADDr"), ("fba-pomcp", "FBA-POMCP"))
    ]
    large = {"road-racing-9": RoadRacingSettings(lanes=9), "gridverse-8": room(8), "gridverse-32": room(32)}
    return (*pairs, *(timed(sizes, domain, "baddr", "BADDr", name) for name, domain in large.items()))


def claims_runtime(sizes: Sizes) -> tuple[Claim, ...]:
    factors = [
        Claim(
            f"{name}: BADDr is slower than FBA-POMCP by a small factor at most.",
            slower(f"{name}/baddr", f"{name}/fba-pomcp"),
            "time of a step of BADDr by that of FBA-POMCP",
            at_most=10.0,
            paper="a small factor",
        )
        for name in TIMED_DOMAINS
    ]
    days = [
        Claim(
            f"{name}: a run ends within a day on a CPU.",
            hours_of_a_run(f"{name}/baddr", steps),
            "hours that a run of BADDr takes",
            at_most=24.0,
            paper="within 24",
        )
        for name, steps in RUN_STEPS.items()
    ]
    return (*factors, *days)


ROAD_NOTE = (
    "The table's SGD hardly trains these networks, so they are trained with Adam here. BA-POMCP has no table "
    "that fits, so FBA-POMCP stands for both."
)
LATENT_NOTE = (
    "Agent latent is ours, not the paper's, and has a wider prior where the paper's is certain; no claim is "
    "about it (docs/latent.md)."
)
TREE_NOTE = (
    f"The curve of BADDr with the belief tree is ours, not the paper's; no claim is about it. {LATENT_NOTE}"
)
FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "a",
            "Bayesian comparison on tiger",
            "BADDr against tables of counts (BA-POMCP) and factored ones (FBA-POMCP), with POMCP on the true "
            "model as the upper bound.",
            figure_a,
            claims_a,
            note=f"PO-UCT at this budget is worth 3.3 on the true model; the optimum is 3.77. {TREE_NOTE}",
        ),
        Figure(
            "b",
            "Bayesian comparison on road racing, 3 lanes",
            "BADDr against factored counts.",
            figure_b,
            claims_b,
            note=f"{ROAD_NOTE} {LATENT_NOTE}",
        ),
        Figure(
            "c",
            "Bayesian comparison on collision avoidance",
            "BADDr between FBA-POMCP with a certain and with an uncertain prior about what it observes.",
            figure_c,
            claims_c,
            note="The paper does not say how large the grid is: 5 x 5 is our inference. One episode has a "
            f"standard deviation of about 230. {TREE_NOTE}",
        ),
        Figure(
            "d",
            "BADDr on road racing, 9 lanes",
            "BADDr where the tables of FBA-POMCP do not fit.",
            figure_d,
            claims_d,
            note=f"{ROAD_NOTE} Where only what is uncertain is stored, FBA-POMCP does fit here: 8,748 "
            "counts a particle. `quick` has 256 particles in place of 1024, and networks of 64 nodes with "
            f"one-hot inputs in place of 256. {LATENT_NOTE}",
        ),
        Figure(
            "e",
            "Non-Bayesian comparison on tiger",
            "BADDr against DPFRL, which has no prior and no model; the axis of episodes is logarithmic.",
            figure_e,
            claims_e,
            log=True,
        ),
        Figure(
            "f",
            "Non-Bayesian comparison on road racing, 3 and 9 lanes",
            "BADDr against DPFRL; the axis of episodes is logarithmic.",
            figure_f,
            claims_f,
            log=True,
            note=ROAD_NOTE,
        ),
        Figure(
            "g",
            "BADDr on gridverse",
            "BADDr in rooms of 8, 16 and 32 cells a side, with POMCP on the true model as upper bounds.",
            figure_g,
            claims_g,
            note="The paper's returns (.80, .62, .62) are impossible with one cell a step: forward walks 4 "
            "cells here, and 8 in the room of 32 (optima .8145, .6634, .6634). The table's 512 batches do "
            f"not train the networks; here they have 4096 (`quick`) or 16,384. {LATENT_NOTE}",
        ),
        Figure(
            "h",
            "Ablation on tiger: re-weighting without updates",
            "BADDr (solid) against filtering (dotted), which re-weights its networks and never trains them, "
            "by the number of networks.",
            figure_h,
            claims_h,
            kind="models",
            note="All runs of an ensemble share its networks, so the ensemble is the unit that is resampled. "
            "A single network is trained on the expected model, several on a draw from the prior each.",
        ),
        Figure(
            "i",
            "Belief about tiger's observation model",
            "The belief over the probability of hearing the good door, in one run, as it learns.",
            figure_i,
            claims_i,
            kind="histogram",
        ),
        Figure(
            "episodes",
            "Table: episodes to equal return",
            "How many episodes DPFRL needs to reach the return that BADDr has at its end.",
            figure_episodes,
            claims_episodes,
            kind="episodes",
            note="At reduced size the goal is what BADDr returns after few episodes, and `quick` has two of "
            "the seven rows.",
        ),
        Figure(
            "runtime",
            "Run-time (Section 5)",
            "What a real step of BADDr costs beside one of FBA-POMCP, and how long a run takes.",
            figure_runtime,
            claims_runtime,
            kind="runtime",
            note="One run alone at the paper's sizes of planner, filter and network, compiled before it is "
            "timed. Times are of this machine.",
        ),
    )
}


def chosen(names: tuple[str, ...]) -> list[Figure]:
    """The figures that were asked for, in the paper's order, each once."""
    if "all" in names:
        return list(FIGURES.values())
    for name in names:
        nearest("figure", name, [*FIGURES, "all"])
    return [figure for name, figure in FIGURES.items() if name in names]


def parts(figures: list[Figure], sizes: Sizes) -> dict[str, tuple[AnyExperiment, bool]]:
    """The experiments of some figures by the names of their folders, and whether they are only timed."""
    return {
        part_name(experiment, curve.timed): (experiment, curve.timed)
        for figure in figures
        for curve in figure.curves(sizes)
        for experiment in curve.parts().values()
    }
