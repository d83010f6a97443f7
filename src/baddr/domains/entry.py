"""What the command line must know of a domain before it is made. Needs no JAX."""

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from baddr.core.filters import Importance
from baddr.planners.belief_tree.settings import MOST_STATES, BeliefTree
from baddr.planners.po_uct import IMPROVED, PoUct
from baddr.posteriors.settings import MOST_ENTRIES, BankSettings, Exact, Network, Pretrain

Feature = tuple[str, tuple[str, ...]]  # a feature's name and the names of its values


@dataclass(frozen=True)
class Quantity:
    """What a domain's `describe` says of the model: the columns NAME_mean_I, NAME_histogram_I of results."""

    name: str  # of the columns
    title: str  # in words, with the unit
    entries: tuple[str, ...] = ()  # names for I; none: numbers
    truth: tuple[float, ...] = ()  # of each entry, or one for all

    def entry(self, i: int) -> str:
        return self.entries[i] if i < len(self.entries) else f"{self.name} {i}"

    def true_value(self, i: int) -> float | None:
        return self.truth[min(i, len(self.truth) - 1)] if self.truth else None


@dataclass(frozen=True)
class Names:
    """What a domain's numbers mean."""

    state: tuple[Feature, ...]
    action: tuple[str, ...]
    observation: tuple[Feature, ...]
    model: tuple[Quantity, ...] = ()  # what is believed of the model, with its truth

    @property
    def num_states(self) -> int:
        return math.prod(len(values) for _, values in self.state)

    def quantity(self, name: str) -> Quantity:
        """By the name of its columns; one that a domain does not name has numbers for names."""
        return next((q for q in self.model if q.name == name), Quantity(name, name.replace("_", " ")))


def numbered(pomdp: Any, action: str = "", observation: str = "observation") -> Names:
    """Numbers for names, where a domain has none."""

    def features(kind: str, sizes: tuple[int, ...]) -> tuple[Feature, ...]:
        return tuple((f"{kind} {i}", tuple(map(str, range(size)))) for i, size in enumerate(sizes))

    actions = tuple(f"{action} {a}".strip() for a in range(pomdp.num_actions))
    return Names(
        features("state", pomdp.state_sizes), actions, features(observation, pomdp.observation_sizes)
    )


@dataclass(frozen=True)
class Preset:
    """One column of the appendix tables, or a size that fits a coffee break."""

    runs: int
    episodes: int
    # Settings of agents, by group: a value, or what differs from the agent's own. An agent takes those it
    # has.
    groups: Mapping[str, Any]
    # Settings of the domain that belong to the preset
    domain: Mapping[str, Any] = field(default_factory=dict)
    # By group: settings of other kinds, for those who ask for one (--planner.kind)
    others: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def changed(self, runs: int, episodes: int, **groups: Any) -> "Preset":
        """For so many runs and episodes, with other settings in some groups (`pretrain={"batches": 512}`), or
        another kind of them (`planner=BeliefTree()`)."""
        new, others = dict(self.groups), dict(self.others)
        for name, given in groups.items():
            old = self.groups.get(name)
            if isinstance(given, Mapping):
                new[name] = replace(old, **given)  # type: ignore[type-var]
            else:
                new[name], others[name] = given, (old, *others.get(name, ())) if old else ()
        return replace(self, runs=runs, episodes=episodes, groups=new, others=others)


def learners(
    episodes: int = 20_000, domain: Mapping[str, Any] | None = None, **dpfrl: Any
) -> dict[str, Preset]:
    """The presets of agents that learn a policy: the best of the paper's sweep, and how many episodes it
    takes. How many runs the paper averages is not said."""
    return {
        "quick/learner": Preset(2, 2_000, {"dpfrl": dpfrl}),
        "paper/learner": Preset(10, episodes, {"dpfrl": dpfrl}, domain or {}),
    }


MOST_STATES_OF_A_BANK = MOST_ENTRIES // BankSettings().members  # whose belief is then exact


def with_wide(presets: dict[str, Preset], num_states: int, **domain: Any) -> dict[str, Preset]:
    """The presets, and those of agents that need simulators as different as what is to be learned: with these
    settings of the domain. (Under a prior that is certain, a Bayesian must not learn quickly.)

    `latent`, where the domain has none; `bank`, with an exact belief where there are not too many states;
    `mixture`, with the networks of variants `network` and `latent`.
    """

    def wide(sizes: Preset, **groups: Any) -> Preset:
        changed = sizes.changed(sizes.runs, sizes.episodes, **groups)
        return replace(changed, domain={**sizes.domain, **domain})

    def latent(name: str) -> dict[str, Any]:
        groups = found[f"{name}/latent"].groups
        return {"latent": groups["latent"]} if "latent" in groups else {}

    exact = {"filter": Exact()} if num_states <= MOST_STATES_OF_A_BANK else {}
    found = dict(presets)
    for name in ("quick", "paper"):
        found.setdefault(f"{name}/latent", wide(presets[name]))
        found[f"{name}/bank"] = wide(presets[name], **exact)
        found[f"{name}/mixture"] = wide(presets.get(f"{name}/network", presets[name]), **latent(name))
    return found


FILE_DEPTH = 20  # of the search in domains that come from files


def returns_range(rewards: float, discount: float, depth: int = FILE_DEPTH) -> float:
    """How far returns of so many steps can lie apart, where rewards lie in a range of this size: what the
    exploration constant u must be measured by. 1 where all rewards are equal."""
    steps = depth if discount >= 1 else (1 - discount**depth) / (1 - discount)
    return rewards * steps or 1.0


def file_presets(exploration: float, num_states: int, bounded: bool = False) -> dict[str, Preset]:
    """For domains that come from files: the sizes are ours. `quick` plans by a belief tree, where there are
    not too many states for its bounds, or the domain has bounds of its own."""
    sizes = Preset(
        runs=16,
        episodes=20,
        groups={
            "planner": PoUct(num_simulations=1024, exploration=exploration, depth=FILE_DEPTH, in_flight=1),
            "filter": Importance(num_particles=1024, resample_below=128.0),
            "network": Network(hidden=32, dropout=0.1, inputs="onehot", learning_rate=0.005),
            "pretrain": Pretrain(batches=4096, batch_size=64, learning_rate=0.005, optimizer="adam"),
        },
    )
    ours = sizes.changed(sizes.runs, sizes.episodes, planner=IMPROVED)
    tree = ours.changed(sizes.runs, sizes.episodes, planner=BeliefTree())
    quick = tree if num_states <= MOST_STATES or bounded else ours
    return with_wide({"quick": quick, "paper": sizes, **learners()}, num_states)


@dataclass(frozen=True)
class Entry:
    """A domain: one of this package, or one that a file holds."""

    summary: str
    settings: Any  # a frozen dataclass with a `name` and `problems()`: flags, and lines of config.toml
    names: Callable[[Any], Names]
    presets: Callable[[Any], dict[str, Preset]]  # for a size of the domain; NAME/VARIANT is for some agents
    make_domain: Callable[[Any], Any]  # the `Domain` with these settings; imports JAX
    source: Path | None = None  # the Python file of a user's own domain
    suite: Mapping[str, Any] = field(default_factory=dict)  # what `baddr suite` sets: a truth worth learning

    @property
    def in_suite(self) -> Any:
        """The settings that `baddr suite` takes."""
        return replace(self.settings, **self.suite)


def by_module(module: str) -> Callable[[Any], Any]:
    """A domain made by the `make_domain` of a module, which is imported when it is first needed."""

    def make_domain(settings: Any) -> Any:
        return importlib.import_module(module).make_domain(**asdict(settings))

    return make_domain
