"""What is chosen about DPFRL and A2C. Needs no JAX."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from baddr.agents.base import AgentSettings, Built, Request
from baddr.core.checks import wrong

MICROSECONDS_PER_PARTICLE = {"cpu": 45.0}  # and actor's step of a learner: see benchmarks/dpfrl.py


@dataclass(frozen=True)
class DPFRL:
    """Discriminative particle filter RL (Ma et al. 2020), trained with A2C. The defaults are those of the
    paper's appendix, and where it is silent, those of the published program. Agent a2c replaces the particle
    filter with a GRU."""

    learning_rate: float = 3e-4
    """Constant step size of RMSProp."""
    num_particles: int = 30
    """K: number of latent particles (not used by a2c)."""
    actors: int = 16
    """B: number of environments that each learner acts in at once."""
    sample_length: int = 5
    """n: steps that each actor takes between updates."""
    back_segments: int = 5
    """m: back-propagation goes through 1, 2, ..., m samples of n steps, in turn. 1: always one sample."""
    hidden: int = 128
    """h: size of each particle, and of the summary of the belief."""
    observation_width: int = 64
    """Nodes in each of the two layers that encode a one-hot observation."""
    action_width: int = 64
    """Number of nodes that encode the last action."""
    features: int = 256
    """F: number of moment-generating features of the belief (not used by a2c)."""
    resampling: float = 0.9
    """alpha: soft resampling draws from alpha p + (1 - alpha) / K (not used by a2c)."""
    encoder: Literal["auto", "onehot", "grid"] = "auto"
    """How observations are encoded: one-hot with two layers, or as a grid with an embedding and three
    convolutions. auto: grid for 12 or more features that all have the same number of values, above 2."""
    grid_columns: int = 3
    """Number of columns of the grid. Observation features fill it row by row."""
    embedding: int = 8
    """Size of the embedding of each cell of the grid."""
    start_action: Literal["first", "none"] = "first"
    """The action before an episode's first observation. first: action 0, as in the published program."""
    reward_scale: float = 1.0
    """Multiply rewards by this when learning. Recorded returns are not scaled."""
    critic_coefficient: float = 0.5
    """Weight of the critic's loss."""
    actor_coefficient: float = 1.0
    """Weight of the actor's loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    max_gradient_norm: float = 5.0
    """Clip gradients to this norm (the published program: 0.5)."""
    decay: float = 0.99
    """Decay rate of RMSProp's mean square."""
    epsilon: float = 1e-5
    """RMSProp divides by the root of the mean square plus this."""

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


class Learning(AgentSettings):
    """An agent that learns a policy, and has neither a belief nor a planner."""

    variant: ClassVar[str] = "learner"
    learns: ClassVar[bool] = False  # nothing that another experiment could start from

    def learner(self, request: Request, settings: DPFRL, particles: bool) -> Built:
        from baddr.agents.learners.a2c import A2C
        from baddr.agents.learners.life import LearningLife

        life = LearningLife(A2C(request.domain.pomdp, settings, particles))
        return Built(life, lambda progress: (life, None))

    def seconds(self, platform: str, particles: int) -> float:
        return 1e-6 * MICROSECONDS_PER_PARTICLE.get(platform, 1.0) * particles
