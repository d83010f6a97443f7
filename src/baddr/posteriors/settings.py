"""What is chosen about posteriors, grouped as the paper's appendix groups its tables. Needs no JAX."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from baddr.core.checks import wrong
from baddr.core.filters import MOST_STEPS

MOST_LAYERS = 128  # every one is a part of each program
MOST_HIDDEN = 1 << 13  # the paper has 32 to 256; 32 bits must number the weights
MOST_SIMULATORS = 100_000  # that are drawn at once, each with its tables; networks that each learn one
MOST_BATCHES = 10**8  # of training: days
Inputs = Literal["raw", "scaled", "onehot"]


def _at_most(settings: Any, group: str, **bounds: int) -> list[tuple[bool, str]]:
    """A check of each of these settings."""
    said = lambda name, bound: f"{group}.{name.replace('_', '-')} must be at most {bound:,}"
    return [(getattr(settings, name) <= bound, said(name, bound)) for name, bound in bounds.items()]


@dataclass(frozen=True)
class Network:
    """The two dropout networks of a particle, T and O (Sec. 4.1). Defaults: the paper's tiger."""

    hidden: int = 32
    """Nodes in each hidden layer."""
    layers: int = 3
    """Number of layers, with the output layer."""
    dropout: float = 0.5
    """Probability of dropping a node. Dropout is never switched off."""
    dropout_placement: Literal["first", "all"] = "first"
    """Dropout after the first hidden layer only (as in the authors' program), or after all hidden layers."""
    inputs: Inputs | tuple[Inputs, ...] = "raw"
    """How state features are encoded: as integers (raw, as in the authors' program), scaled to [-1, 1], or
    one-hot. One word for all features, or one for each. Actions are always one-hot."""
    learning_rate: float = 0.005
    """Learning rate of the online update U."""
    learn_transition: bool = True
    """Train the transition network online."""
    learn_observation: bool = True
    """Train the observation network online."""
    redraw_masks: bool = False
    """Draw new dropout masks at each simulated step (as in the authors' program), not once per simulation."""

    def problems(self) -> list[str]:
        return wrong(
            (self.hidden >= 1, "network.hidden must be at least 1"),
            *_at_most(self, "network", hidden=MOST_HIDDEN),
            (self.layers >= 2, "network.layers must be at least 2: a hidden one and the output"),
            (
                self.layers <= MOST_LAYERS,
                f"network.layers must be at most {MOST_LAYERS}: deeper ones take hours to compile",
            ),
            (0 <= self.dropout < 1, "network.dropout must be at least 0 and below 1"),
            (self.learning_rate >= 0, "network.learning-rate must not be negative"),
        )


@dataclass(frozen=True)
class Pretrain:
    """Supervised training of the prior's networks on sampled simulators (Sec. 4.2)."""

    num_networks: int = 1
    """Number of networks in the ensemble."""
    batches: int = 4096
    """Number of batches, each of fresh samples."""
    batch_size: int = 32
    """Samples in each batch."""
    learning_rate: float = 0.1
    """Learning rate of pre-training."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Optimiser of pre-training."""
    max_gap: float = 0.1
    """Warn of a network whose cross-entropy ends more than this many nats above its simulator's entropy."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_networks >= 1, "pretrain.num-networks must be at least 1"),
            (self.batches >= 0, "pretrain.batches must not be negative"),
            (self.batch_size >= 1, "pretrain.batch-size must be at least 1"),
            (self.learning_rate >= 0, "pretrain.learning-rate must not be negative"),
            (self.max_gap > 0, "pretrain.max-gap must be above 0"),
            *_at_most(self, "pretrain", num_networks=MOST_SIMULATORS, batches=MOST_BATCHES),
        )


def training_settings(network: Network, pretrain: Pretrain) -> dict[str, Any]:
    """All that a trained prior depends on: `network` less what only matters online, and `pretrain`."""
    online = ("learning_rate", "learn_transition", "learn_observation", "redraw_masks")
    shape = {name: value for name, value in asdict(network).items() if name not in online}
    return {"network": shape, "pretrain": asdict(pretrain)}


@dataclass(frozen=True)
class FactoredSettings:
    """The Bayes network of agent fba-pomcp (Katt et al. 2019)."""

    graph: str = "default"
    """Which of the domain's graphs to use: every domain with graphs has default, road-racing also figure,
    collision-avoidance also uncertain-observation."""
    structure: Literal["true", "uncertain", "matched", "full"] = "true"
    """Edges of uncertain nodes: as the graph has them (true), drawn for each particle (uncertain), drawn only
    where the prior counts do not depend on them (matched), or all present (full)."""
    edge_probability: float = 0.5
    """Prior probability of an uncertain edge."""
    model: Literal["expected", "sampled"] = "expected"
    """The model of each simulation: the one that its particle's counts expect, or one drawn from them."""

    tying: Literal["untied", "tied"] = "untied"
    """tied: rows that the domain knows to be alike share their counts (a lane's speed does not depend on the
    distance); road-racing, collision-avoidance and sysadmin have such rows."""
    tables: bool = False
    """Sum out the features that depend on themselves, computed features and the action: a particle holds a
    table for each, over its values and a bank of models. Few particles then suffice."""
    grid: int = 21
    """Models of each Dirichlet in the bank of --factored.tables."""

    @property
    def tells_spread(self) -> bool:
        return self.tables or self.model == "sampled"

    def problems(self) -> list[str]:
        plain = self.structure == "true"
        return wrong(
            (0 <= self.edge_probability <= 1, "factored.edge-probability must lie in [0, 1]"),
            (self.grid >= 2, "factored.grid must be at least 2"),
            (
                plain or self.tying == "untied",
                "factored.tying tied needs factored.structure true (or factored.tying untied)",
            ),
            (plain or not self.tables, "factored.tables needs factored.structure true"),
        )


MOST_ENTRIES = 10**6  # of the exact filter's table, members times states


@dataclass(frozen=True)
class BankSettings:
    """The simulators of agent bank."""

    members: int = 1024
    """Simulators that are drawn from the prior, once for all runs. Their weights are all that is learned."""
    pool: int = 16384
    """With --filter.rejuvenate: simulators that are drawn from the prior in all. A run holds as many of them
    as there are members, and exchanges them where few count."""

    def problems(self) -> list[str]:
        return wrong(
            (self.members >= 1, "bank.members must be at least 1"),
            (self.pool >= 1, "bank.pool must be at least 1"),
            *_at_most(self, "bank", members=MOST_SIMULATORS, pool=MOST_SIMULATORS),
        )


@dataclass(frozen=True)
class Exact:
    """The exact belief of agent bank: a table of all states and members, no particles."""

    learn_terminal: bool = True
    """Learn from the step that ends an episode."""
    rejuvenate: bool = False
    """Exchange members by exact Metropolis steps at the end of an episode where few of them count. Each run
    then holds --bank.members of the --bank.pool simulators."""
    history: int = 8192
    """Steps that a run remembers for --filter.rejuvenate. It exchanges none any more when these are full."""

    def problems(self) -> list[str]:
        return wrong(
            (1 <= self.history <= MOST_STEPS, f"filter.history must lie between 1 and {MOST_STEPS:,}")
        )

    def build(self, domain: Any) -> Any:
        from baddr.posteriors.exact_filter import ExactFilter

        return ExactFilter(domain.pomdp.num_states, self.learn_terminal, self.rejuvenate, self.history)


@dataclass(frozen=True)
class MixtureSettings:
    """The agents whose posteriors agent mixture has, and how likely each is before anything is seen."""

    of: tuple[str, ...] = ("latent", "baddr")
    """Agents with a posterior: latent, bank, baddr, filtering, ba-pomcp, fba-pomcp."""
    weights: tuple[float, ...] = (0.5, 0.5)
    """The prior weight of each, in proportion."""

    def problems(self) -> list[str]:
        return wrong(
            (len(self.of) >= 1, "mixture.of must name an agent"),
            (len(self.of) == len(self.weights), "mixture.weights must have a number for each of mixture.of"),
            (min(self.weights, default=1) > 0, "mixture.weights must be positive"),
        )


@dataclass(frozen=True)
class LatentSettings:
    """The networks that all particles of agent latent share, and their training on sampled simulators."""

    dimensions: int = 4
    """d: how many numbers z has. z stands for which simulator this is."""
    hidden: int = 32
    """Nodes in each hidden layer."""
    layers: int = 3
    """Number of layers, with the output layer."""
    inputs: Inputs | tuple[Inputs, ...] = "onehot"
    """How state features are encoded: one-hot, as integers (raw), or scaled to [-1, 1]. One word for all
    features, or one for each. Actions are always one-hot."""
    model: Literal["sampled", "expected"] = "sampled"
    """The model of each simulation: of a z drawn from its particle's Gaussian, or of the mean."""
    width: float = 1.0
    """How wide a particle's first Gaussian is, compared with the prior. 1: all start with the prior. Less:
    each starts about the z of another simulator, for priors that are no Gaussian, such as rare moves."""
    learn_transition: bool = True
    """Let transitions depend on z, and learn z from them. no: all simulators have the same ones."""
    learn_observation: bool = True
    """Let observations depend on z, and learn z from them. no: all simulators have the same ones."""
    simulators: int = 0
    """Number of simulators that the networks are trained on. 0: 16,384, or 1024 black boxes, or fewer where
    they do not fit."""
    steps: int = 8192
    """Steps of training, each on fresh samples."""
    batch_size: int = 1024
    """Samples in each step: 8 from each simulator (32 from each black box)."""
    learning_rate: float = 0.01
    """Adam's learning rate at the start. It falls to 0 as a cosine."""
    beta: float = 0.0003
    """Weight of the divergence of a simulator's z from N(0, I), against a sample's cross-entropy."""
    max_gap: float = 0.1
    """Warn of networks whose cross-entropy ends more than this many nats above the simulators' entropy."""

    @property
    def tells_spread(self) -> bool:
        return self.model == "sampled"

    def problems(self) -> list[str]:
        return wrong(
            (self.dimensions >= 1, "latent.dimensions must be at least 1"),
            (self.hidden >= 1, "latent.hidden must be at least 1"),
            *_at_most(self, "latent", hidden=MOST_HIDDEN, layers=MOST_LAYERS),
            *_at_most(self, "latent", simulators=MOST_SIMULATORS, steps=MOST_BATCHES),
            (self.layers >= 2, "latent.layers must be at least 2: a hidden one and the output"),
            (
                self.learn_transition or self.learn_observation,
                "latent.learn-transition and latent.learn-observation: one of them must be yes",
            ),
            (0 < self.width <= 1, "latent.width must be above 0 and at most 1"),
            (self.simulators == 0 or self.simulators >= 2, "latent.simulators must be 0 or at least 2"),
            (self.steps >= 0, "latent.steps must not be negative"),
            (self.batch_size >= 1, "latent.batch-size must be at least 1"),
            (self.learning_rate >= 0, "latent.learning-rate must not be negative"),
            (self.beta > 0, "latent.beta must be above 0"),
            (self.max_gap > 0, "latent.max-gap must be above 0"),
        )
