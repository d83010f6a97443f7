"""Settings, grouped as the paper's appendix groups its tables. Plain values: nothing here needs JAX."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal


def wrong(*checks: tuple[bool, str]) -> list[str]:
    """The sentences of the checks that do not hold."""
    return [sentence for holds, sentence in checks if not holds]


@dataclass(frozen=True)
class Planner:
    """PO-UCT (Alg. 2)."""

    num_simulations: int = 4096
    """Simulations per action."""
    exploration: float = 100.0
    """The UCB constant u: about the range of an episode's returns."""
    depth: int = 0
    """Search depth; 0: to the end of the episode."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_simulations >= 1, "planner.num-simulations must be at least 1"),
            (self.exploration >= 0, "planner.exploration must not be negative"),
            (self.depth >= 0, "planner.depth must be 0 (to the end of the episode) or more"),
        )


@dataclass(frozen=True)
class Filter:
    """The belief update (Alg. 1)."""

    kind: Literal["rejection", "importance"] = "importance"
    """Rejection sampling, or importance sampling."""
    num_particles: int = 1024
    """Particles in the belief."""
    resample_below: float = 128.0
    """Importance: resample where the effective sample size is below this (above n: at every step)."""
    max_tries: int = 1000
    """Rejection: proposals per particle before the depletion policy takes over."""
    weight_after_update: bool = False
    """Importance: weigh by the parameters after U, as the authors' program does."""
    learn_terminal: bool = True
    """Learn from the step that ends an episode."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_particles >= 1, "filter.num-particles must be at least 1"),
            (self.max_tries >= 1, "filter.max-tries must be at least 1"),
            (self.resample_below >= 0, "filter.resample-below must not be negative"),
        )


Inputs = Literal["raw", "scaled", "onehot"]


@dataclass(frozen=True)
class Network:
    """The two dropout networks of a particle, T and O (Sec. 4.1). Defaults: the paper's tiger."""

    hidden: int = 32
    """Nodes per hidden layer."""
    layers: int = 3
    """Layers, the output layer included."""
    dropout: float = 0.5
    """Dropout probability p; never switched off."""
    dropout_placement: Literal["first", "all"] = "first"
    """Dropout after the first hidden layer only (as the authors' program does), or after all of them."""
    inputs: Inputs | tuple[Inputs, ...] = "raw"
    """Coding of the state features, for all or one for each: integers as they are (the authors'), scaled to
    [-1, 1], or one-hot. Actions are always one-hot."""
    learning_rate: float = 0.005
    """Online learning rate: the step of U."""
    learn_transition: bool = True
    """U trains the T-network."""
    learn_observation: bool = True
    """U trains the O-network."""
    redraw_masks: bool = False
    """Draw new dropout masks at every simulated step (the authors' program) instead of once a simulation."""

    def problems(self) -> list[str]:
        return wrong(
            (self.hidden >= 1, "network.hidden must be at least 1"),
            (self.layers >= 2, "network.layers must be at least 2: a hidden one and the output"),
            (0 <= self.dropout < 1, "network.dropout must be at least 0 and below 1"),
            (self.learning_rate >= 0, "network.learning-rate must not be negative"),
        )


@dataclass(frozen=True)
class Pretrain:
    """Supervised training of the prior's networks on sampled simulators (Sec. 4.2)."""

    num_networks: int = 1
    """Networks in the ensemble."""
    batches: int = 4096
    """Batches of fresh samples."""
    batch_size: int = 32
    """Samples per batch."""
    learning_rate: float = 0.1
    """Learning rate of pre-training."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Optimiser of pre-training."""
    max_gap: float = 0.1
    """A network failed to fit where its cross-entropy ends this many nats above its simulator's entropy."""

    def problems(self) -> list[str]:
        return wrong(
            (self.num_networks >= 1, "pretrain.num-networks must be at least 1"),
            (self.batches >= 0, "pretrain.batches must not be negative"),
            (self.batch_size >= 1, "pretrain.batch-size must be at least 1"),
            (self.learning_rate >= 0, "pretrain.learning-rate must not be negative"),
            (self.max_gap > 0, "pretrain.max-gap must be above 0"),
        )


def training_settings(network: Network, pretrain: Pretrain) -> dict[str, Any]:
    """All that a trained prior depends on: `network` less what only matters online, and `pretrain`."""
    online = ("learning_rate", "learn_transition", "learn_observation", "redraw_masks")
    shape = {name: value for name, value in asdict(network).items() if name not in online}
    return {"network": shape, "pretrain": asdict(pretrain)}


@dataclass(frozen=True)
class Tiger:
    """The tiger problem and the prior about it."""

    name: ClassVar[str] = "tiger"
    accuracy: float = 0.85
    """The true probability of hearing the good door."""
    prior_accuracy: float = 0.625
    """Its expectation under the prior."""
    prior_total: float = 8.0
    """The prior's total count per door: how much listening it is worth."""
    discount: float = 0.95
    """gamma."""
    horizon: int = 30
    """K: the longest episode."""

    def problems(self) -> list[str]:
        return wrong(
            (0 <= self.accuracy <= 1, "domain.accuracy must lie in [0, 1]"),
            (0 < self.prior_accuracy < 1, "domain.prior-accuracy must lie in (0, 1)"),
            (self.prior_total > 0, "domain.prior-total must be positive"),
            (0 <= self.discount <= 1, "domain.discount must lie in [0, 1]"),
            (self.horizon >= 1, "domain.horizon must be at least 1"),
        )
