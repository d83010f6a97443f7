"""What there is to run: domains with their numbering, agents, presets. Needs no JAX."""

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from baddr.errors import UserError
from baddr.settings import (
    DPFRL,
    Cassandra,
    CollisionAvoidance,
    FactoredTiger,
    Filter,
    Gridverse,
    Network,
    Planner,
    Pretrain,
    RoadRacing,
    Sysadmin,
    Tiger,
)

Feature = tuple[str, tuple[str, ...]]  # a feature's name and the names of its values


@dataclass(frozen=True)
class Names:
    """What a domain's numbers mean."""

    state: tuple[Feature, ...]
    action: tuple[str, ...]
    observation: tuple[Feature, ...]


@dataclass(frozen=True)
class Preset:
    """One column of the appendix tables, or a size that fits a coffee break."""

    runs: int
    episodes: int
    planner: Planner
    filter: Filter
    network: Network
    pretrain: Pretrain
    domain: dict[str, Any] = field(default_factory=dict)  # settings of the domain that belong to the preset
    dpfrl: DPFRL = field(default_factory=DPFRL)


def dpfrl_default(settings: Any) -> tuple[DPFRL, int]:
    return DPFRL(), 20_000


@dataclass(frozen=True)
class Entry:
    """A domain: one of this package, or one that a file holds."""

    module: str  # its `make_domain` takes the fields of `settings`
    summary: str
    settings: Any
    names: Callable[[Any], Names]
    presets: Callable[[Any], dict[str, Preset]]  # for a size of the domain
    dpfrl: Callable[[Any], tuple[DPFRL, int]] = dpfrl_default  # the best of the paper's sweep; episodes

    def preset(self, name: str, agent: str, settings: Any) -> Preset:
        """NAME/network, where there is one, is for the agents whose networks take longer."""
        presets = self.presets(settings)
        if agent in LEARNERS:  # how many runs the paper averages is not said
            dpfrl, episodes = self.dpfrl(settings)
            runs, episodes = (2, 2_000) if name == "quick" else (10, episodes)
            return replace(presets[name], runs=runs, episodes=episodes, dpfrl=dpfrl)
        special = f"{name}/network" if agent in NETWORK_AGENTS else name
        return presets.get(special, presets[name])

    def make_domain(self, settings: Any) -> Any:
        """The `Domain` with these settings."""
        return importlib.import_module(self.module).make_domain(**asdict(settings))


def tiger_names(settings: Tiger) -> Names:
    sides = ("left", "right")
    return Names(
        state=(("good door", sides),),
        action=("open-left", "open-right", "listen"),
        observation=(("heard", (*sides, "null")),),
    )


TIGER_PAPER = Preset(
    runs=7500,
    episodes=400,
    planner=Planner(num_simulations=4096, exploration=100.0),
    filter=Filter(kind="importance", num_particles=1024, resample_below=128.0),
    network=Network(hidden=32, dropout=0.5, learning_rate=0.005),
    pretrain=Pretrain(batches=4096, batch_size=32, learning_rate=0.1, optimizer="sgd"),
)


def tiger_presets(settings: Tiger) -> dict[str, Preset]:
    return {
        "quick": replace(TIGER_PAPER, runs=64, episodes=100),
        # Eight of the table's 1, 4 or 8: one alone hardly learns in so few episodes (docs/results.md).
        "quick/network": replace(
            TIGER_PAPER, runs=24, episodes=40, pretrain=replace(TIGER_PAPER.pretrain, num_networks=8)
        ),
        "paper": TIGER_PAPER,
    }


def tiger_dpfrl(settings: Any) -> tuple[DPFRL, int]:
    return DPFRL(learning_rate=1e-4, num_particles=30), 40_000


def gridverse_names(settings: Gridverse) -> Names:
    cells = tuple(str(i) for i in range(settings.size))
    kinds = ("beyond", "floor", "wall", "goal")
    columns = ("left", "middle", "right")
    return Names(
        state=(("y", cells), ("x", cells), ("heading", ("north", "east", "south", "west"))),
        action=("forward", "turn-left", "turn-right"),
        observation=tuple((f"{d} ahead {column}", kinds) for d in cells for column in columns),
    )


GRIDVERSE_PAPER = Preset(
    runs=50,
    episodes=250,
    planner=Planner(num_simulations=8, exploration=1.0),
    filter=Filter(kind="rejection", num_particles=8),
    network=Network(hidden=256, dropout=0.1, inputs=("scaled", "scaled", "onehot"), learning_rate=0.0005),
    pretrain=Pretrain(batches=512, batch_size=32, learning_rate=0.0025, optimizer="adam"),
)


def gridverse_presets(settings: Gridverse) -> dict[str, Preset]:
    # One cell a step cannot give the paper's returns; these lengths can (docs/domains/gridverse.md).
    domain = {"forward_length": 4 if settings.size < 32 else 8}
    fits = replace(GRIDVERSE_PAPER.pretrain, batches=4096)
    return {
        "quick": replace(GRIDVERSE_PAPER, runs=8, episodes=50),
        # The table's 512 batches leave the networks short of their simulator, so `quick` trains them longer.
        "quick/network": replace(GRIDVERSE_PAPER, runs=8, episodes=50, pretrain=fits),
        "paper": replace(GRIDVERSE_PAPER, domain=domain),
    }


def gridverse_dpfrl(settings: Gridverse) -> tuple[DPFRL, int]:
    return DPFRL(learning_rate=1e-3, num_particles=30 if settings.size < 32 else 15), 20_000


def road_racing_names(settings: RoadRacing) -> Names:
    distances = tuple(map(str, range(6)))
    cars = [(f"distance in lane {i}", distances) for i in range(settings.lanes)]
    return Names(
        state=(("lane", tuple(map(str, range(settings.lanes)))), *cars),
        action=("up", "stay", "down"),
        observation=(("distance", distances),),
    )


# The networks predict the features of s' apart, but the agent's lane depends on where the cars have gone: no
# network comes closer than .103 nats with 3 lanes and .137 with 9 (docs/domains/road-racing.md).
ROAD_MAX_GAP = 0.25

ROAD_3_PAPER = Preset(
    runs=1000,
    episodes=200,
    planner=Planner(num_simulations=128, exploration=15.0, depth=3),
    filter=Filter(kind="rejection", num_particles=1024),
    # The table has an online learning rate for nine lanes only; that three lanes share it is our choice.
    network=Network(hidden=32, dropout=0.1, learning_rate=0.0001),
    pretrain=Pretrain(batches=2048, batch_size=64, learning_rate=0.005, max_gap=ROAD_MAX_GAP),
)
ROAD_9_PAPER = replace(
    ROAD_3_PAPER,
    runs=300,
    episodes=300,
    network=Network(hidden=256, dropout=0.1, learning_rate=0.0001),
    pretrain=Pretrain(batches=16384, batch_size=256, learning_rate=0.0025, max_gap=ROAD_MAX_GAP),
)


def road_racing_presets(settings: RoadRacing) -> dict[str, Preset]:
    """The paper has columns for 3 and 9 lanes; from 6 lanes on we take the latter."""
    large = settings.lanes >= 6
    paper = ROAD_9_PAPER if large else ROAD_3_PAPER
    # With the table's SGD the networks hardly learn anything; with Adam, and longer, they fit. With larger
    # rates they fit better, but learn more slowly online (docs/domains/road-racing.md).
    fits = replace(paper.pretrain, batches=8192, batch_size=64, learning_rate=0.002, optimizer="adam")
    quick = replace(paper, runs=8, episodes=20, pretrain=fits)
    if large:  # 1024 particles with networks of 256 nodes would take hours
        network, fits = replace(paper.network, hidden=64, inputs="onehot"), replace(fits, learning_rate=0.005)
        quick = replace(quick, runs=4, episodes=10, network=network, pretrain=fits)
    return {"quick": replace(paper, runs=64, episodes=40), "quick/network": quick, "paper": paper}


def road_racing_dpfrl(settings: RoadRacing) -> tuple[DPFRL, int]:
    if settings.lanes < 6:
        return DPFRL(learning_rate=1e-3, num_particles=15), 40_000
    return DPFRL(learning_rate=3e-4, num_particles=15), 20_000


def collision_avoidance_names(settings: CollisionAvoidance) -> Names:
    cells = tuple(map(str, range(settings.size)))
    features = (("column", cells), ("row", cells), ("obstacle's row", cells))
    return Names(state=features, action=("down", "stay", "up"), observation=features)


COLLISION_PAPER = Preset(
    runs=35000,
    episodes=500,
    planner=Planner(num_simulations=256, exploration=1000.0),
    filter=Filter(kind="importance", num_particles=128, resample_below=32.0),
    network=Network(hidden=64, dropout=0.5, learning_rate=0.0005, learn_observation=False),
    pretrain=Pretrain(batches=8192, batch_size=32, learning_rate=0.05, optimizer="sgd"),
)


def collision_avoidance_presets(settings: CollisionAvoidance) -> dict[str, Preset]:
    return {
        "quick": replace(COLLISION_PAPER, runs=64, episodes=100),
        "quick/network": replace(COLLISION_PAPER, runs=32, episodes=100),
        "paper": COLLISION_PAPER,
    }


def collision_avoidance_dpfrl(settings: CollisionAvoidance) -> tuple[DPFRL, int]:
    return DPFRL(learning_rate=1e-4, num_particles=30), 600_000


def factored_tiger_names(settings: FactoredTiger) -> Names:
    names = tiger_names(settings)
    irrelevant = [(f"irrelevant {i}", ("0", "1")) for i in range(1, 1 + settings.irrelevant)]
    return replace(names, state=(*names.state, *irrelevant))


def sysadmin_names(settings: Sysadmin) -> Names:
    status, computers = ("failed", "running"), range(settings.computers)
    return Names(
        state=tuple((f"computer {i}", status) for i in computers),
        action=tuple(f"{verb} {i}" for verb in ("observe", "reboot") for i in computers),
        observation=(("status", status),),
    )


SYSADMIN = Preset(  # not in the paper: the sizes are ours
    runs=64,
    episodes=50,
    planner=Planner(num_simulations=1024, exploration=10.0, depth=10),
    filter=Filter(kind="importance", num_particles=512, resample_below=128.0),
    network=Network(hidden=64, dropout=0.1, learning_rate=0.0005),
    pretrain=Pretrain(batches=8192, batch_size=64, learning_rate=0.05, optimizer="sgd"),
)


def sysadmin_presets(settings: Sysadmin) -> dict[str, Preset]:
    return {"quick": SYSADMIN, "quick/network": replace(SYSADMIN, runs=8), "paper": SYSADMIN}


def file_presets(exploration: float) -> dict[str, Preset]:
    """For domains that come from files: the sizes are ours, and `quick` and `paper` are the same."""
    sizes = Preset(
        runs=16,
        episodes=20,
        planner=Planner(num_simulations=1024, exploration=exploration, depth=20),
        filter=Filter(kind="importance", num_particles=1024, resample_below=128.0),
        network=Network(hidden=32, dropout=0.1, inputs="onehot", learning_rate=0.005),
        pretrain=Pretrain(batches=4096, batch_size=64, learning_rate=0.005, optimizer="adam"),
    )
    return {"quick": sizes, "paper": sizes}


def cassandra_names(settings: Cassandra) -> Names:
    from baddr.domains.cassandra_format import read_header

    header = read_header(settings.path)
    return Names((("state", header.states),), header.actions, (("observation", header.observations),))


def cassandra_presets(settings: Cassandra) -> dict[str, Preset]:
    """Explores by the range of the file's rewards, at least 1."""
    from baddr.domains.cassandra_format import read

    if not settings.path:
        return file_presets(1.0)
    with warnings.catch_warnings(action="ignore"):  # what it warns of is said when the domain is made
        R = read(settings.path).R
    return file_presets(max(1.0, float(R.max() - R.min())))


CASSANDRA = Entry(
    module="baddr.domains.cassandra",
    summary="a finite POMDP from a file in Cassandra's format",
    settings=Cassandra(),
    names=cassandra_names,
    presets=cassandra_presets,
)


DOMAINS = {
    "tiger": Entry(
        module="baddr.domains.tiger",
        summary="listen for the good door, or open one",
        settings=Tiger(),
        names=tiger_names,
        presets=tiger_presets,
        dpfrl=tiger_dpfrl,
    ),
    "road-racing": Entry(
        module="baddr.domains.road_racing",
        summary="change lanes to keep away from slower cars",
        settings=RoadRacing(),
        names=road_racing_names,
        presets=road_racing_presets,
        dpfrl=road_racing_dpfrl,
    ),
    "collision-avoidance": Entry(
        module="baddr.domains.collision_avoidance",
        summary="fly past a moving obstacle that is seen through noise",
        settings=CollisionAvoidance(),
        names=collision_avoidance_names,
        presets=collision_avoidance_presets,
        dpfrl=collision_avoidance_dpfrl,
    ),
    "gridverse": Entry(
        module="baddr.domains.gridverse",
        summary="walk through an empty room to the goal, seeing only what is ahead",
        settings=Gridverse(),
        names=gridverse_names,
        presets=gridverse_presets,
        dpfrl=gridverse_dpfrl,
    ),
    "factored-tiger": Entry(
        module="baddr.domains.factored_tiger",
        summary="tiger with features that have nothing to do with anything",
        settings=FactoredTiger(),
        names=factored_tiger_names,
        presets=tiger_presets,
        dpfrl=tiger_dpfrl,
    ),
    "sysadmin": Entry(
        module="baddr.domains.sysadmin",
        summary="keep the computers of a network running",
        settings=Sysadmin(),
        names=sysadmin_names,
        presets=sysadmin_presets,
    ),
}

AGENTS = {
    "baddr": "dropout networks trained on simulators, then online: the paper's method",
    "filtering": "the same networks, re-weighted and never trained online: the paper's ablation",
    "ba-pomcp": "tabular Dirichlet counts, PO-UCT with the expected model of the root particle",
    "fba-pomcp": "the same with a Bayes network per action: counts for what is uncertain only",
    "pomcp": "PO-UCT on the true model: the upper bound",
    "dpfrl": "a learned particle filter and actor-critic: no prior, no model; the paper's baseline",
    "a2c": "the same with a GRU in the particle filter's place",
    "random": "uniformly random actions",
}

NETWORK_AGENTS = ("baddr", "filtering")
LEARNERS = ("dpfrl", "a2c")  # the agents that have no belief and no planner

PRESETS = {
    "quick": "minutes on a laptop: the paper's planner and filter, fewer runs and episodes",
    "paper": "the sizes of the paper's appendix",
}


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """`name`, or a sentence that says what would have been right."""
    known = list(known)
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}."
    raise UserError(f"There is no {kind} {name!r}; {hint}")


def entry(name: str) -> Entry:
    """The domain that a name stands for: a known one, FILE.pomdp, or FILE.py:FUNCTION.

    A file is remembered by its absolute path, so that its results can be gone on with from anywhere.
    """
    if name == "cassandra":
        return CASSANDRA
    if name.lower().endswith(".pomdp"):
        path = Path(name).absolute()
        if not path.is_file():
            raise UserError(f"There is no file {name}.")
        return replace(CASSANDRA, summary=path.name, settings=Cassandra(path=str(path)))
    if is_python(name):
        from baddr.domains.own import own_entry

        return own_entry(name)
    if name not in DOMAINS and ("/" in name or Path(name).exists()):
        raise UserError(
            f"{name!r} is no domain; a file is FILE.pomdp, or FILE.py:FUNCTION that returns a Domain."
        )
    return DOMAINS[nearest("domain", name, DOMAINS)]


def is_python(name: str) -> bool:
    """Whether a domain's name is FILE.py or FILE.py:FUNCTION."""
    return name.endswith(".py") or ".py:" in name


def short_name(name: str) -> str:
    """A domain's name without the folders of its file, and without a function called make_domain."""
    return Path(name).name.removesuffix(":make_domain")


def listing() -> dict[str, Any]:
    """All of the above as plain values, for `baddr list --json`."""

    def features(named: tuple[Feature, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "values": list(values)} for name, values in named]

    domains = {}
    for name, entry in DOMAINS.items():
        names = entry.names(entry.settings)
        domains[name] = {
            "summary": entry.summary,
            "state": features(names.state),
            "actions": list(names.action),
            "observation": features(names.observation),
        }
    from baddr.paper.figures import FIGURES

    figures = {name: figure.title for name, figure in FIGURES.items()}
    return {"domains": domains, "agents": AGENTS, "presets": PRESETS, "figures": figures}
