"""Settings, grouped as the paper's appendix groups its tables. Plain values: nothing here needs JAX."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


def wrong(*checks: tuple[bool, str]) -> list[str]:
    """The sentences of the checks that do not hold."""
    return [sentence for holds, sentence in checks if not holds]


@dataclass(frozen=True)
class Planner:
    """PO-UCT (Alg. 2)."""

    num_simulations: int = 4096
    """Simulations per real step."""
    exploration: float = 100.0
    """The exploration constant u of UCB: about the range of an episode's returns."""
    depth: int = 0
    """Depth of the search. 0: to the end of the episode."""
    lanes: int = 0
    """Simulations in flight in one tree. 1: PO-UCT as published. 0: chosen so that few runs fill the
    device."""

    def problems(self) -> list[str]:
        return wrong(
            (self.lanes >= 0, "planner.lanes must not be negative"),
            (self.num_simulations >= 1, "planner.num-simulations must be at least 1"),
            (self.exploration >= 0, "planner.exploration must not be negative"),
            (self.depth >= 0, "planner.depth must be 0 (to the end of the episode) or more"),
        )


@dataclass(frozen=True)
class Filter:
    """The belief update (Alg. 1)."""

    kind: Literal["rejection", "importance"] = "importance"
    """How beliefs are updated: by rejection sampling or by importance sampling."""
    num_particles: int = 1024
    """Number of particles in the belief."""
    resample_below: float = 128.0
    """Importance: resample when the effective sample size is below this (above n: at every step)."""
    resampling: Literal["systematic", "independent"] = "systematic"
    """Importance: draw ancestors with one shared random number (systematic), or one by one (independent, as
    in the published FBA-POMCP)."""
    max_tries: int = 1000
    """Rejection: tries per particle. Particles still missing are then filled in (depletion)."""
    weight_after_update: bool = False
    """Importance: compute weights after the update U, as the authors' program does."""
    learn_terminal: bool = True
    """Learn from the last step of an episode too."""

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
            (self.layers >= 2, "network.layers must be at least 2: a hidden one and the output"),
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
        )


@dataclass(frozen=True)
class Factored:
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

    def problems(self) -> list[str]:
        holds = 0 <= self.edge_probability <= 1
        return wrong((holds, "factored.edge-probability must lie in [0, 1]"))


def training_settings(network: Network, pretrain: Pretrain) -> dict[str, Any]:
    """All that a trained prior depends on: `network` less what only matters online, and `pretrain`."""
    online = ("learning_rate", "learn_transition", "learn_observation", "redraw_masks")
    shape = {name: value for name, value in asdict(network).items() if name not in online}
    return {"network": shape, "pretrain": asdict(pretrain)}


@dataclass(frozen=True)
class DPFRL:
    """Discriminative particle filter RL (Ma et al. 2020), learned with A2C. Defaults: the paper's appendix,
    and the published program's where it is silent. Agent a2c has a GRU in the particle filter's place."""

    learning_rate: float = 3e-4
    """Constant step size of RMSProp."""
    num_particles: int = 30
    """K: number of latent particles (not used by a2c)."""
    actors: int = 16
    """B: environments that each learner acts in at the same time."""
    sample_length: int = 5
    """n: steps of each actor between updates."""
    back_segments: int = 5
    """m: back-propagation goes through 1, 2, ..., m samples of n steps, in turn. 1: only one."""
    hidden: int = 128
    """h: size of each particle and of the belief's summary."""
    observation_width: int = 64
    """Nodes in each of the two layers that encode a one-hot observation."""
    action_width: int = 64
    """Nodes that encode the last action."""
    features: int = 256
    """F: number of moment-generating features of the belief (not used by a2c)."""
    resampling: float = 0.9
    """alpha: soft resampling draws from alpha p + (1 - alpha) / K (not used by a2c)."""
    encoder: Literal["auto", "onehot", "grid"] = "auto"
    """How observations are encoded: one-hot with two layers, or as a grid with an embedding and three
    convolutions. auto: grid for 12 or more features that all have the same number of values, above 2."""
    grid_columns: int = 3
    """Columns of the grid. Observation features fill it row by row."""
    embedding: int = 8
    """Size of the embedding of a cell of the grid."""
    start_action: Literal["first", "none"] = "first"
    """The action before an episode's first observation: action 0 (as in the published program), or none."""
    reward_scale: float = 1.0
    """Multiply rewards by this for learning. Recorded returns are not scaled."""
    critic_coefficient: float = 0.5
    """Weight of the critic's loss."""
    actor_coefficient: float = 1.0
    """Weight of the actor's loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    max_gradient_norm: float = 5.0
    """Clip gradients to this norm (the published program: 0.5)."""
    decay: float = 0.99
    """Decay of RMSProp's mean square."""
    epsilon: float = 1e-5
    """RMSProp divides by the root of the mean square, plus this."""

    def problems(self) -> list[str]:
        least = ("num_particles", "actors", "sample_length", "back_segments", "hidden", "observation_width")
        least += ("action_width", "features", "grid_columns", "embedding")
        none_negative = ("learning_rate", "critic_coefficient", "actor_coefficient", "entropy_coefficient")
        flag = lambda name: "dpfrl." + name.replace("_", "-")
        return wrong(
            *((getattr(self, name) >= 1, f"{flag(name)} must be at least 1") for name in least),
            *((getattr(self, name) >= 0, f"{flag(name)} must not be negative") for name in none_negative),
            (0 <= self.resampling <= 1, "dpfrl.resampling must lie in [0, 1]"),
            (self.reward_scale > 0, "dpfrl.reward-scale must be positive"),
            (self.max_gradient_norm > 0, "dpfrl.max-gradient-norm must be positive"),
            (0 <= self.decay < 1, "dpfrl.decay must be at least 0 and below 1"),
            (self.epsilon > 0, "dpfrl.epsilon must be positive"),
        )
