"""Factored tiger (Katt et al. 2019): tiger with binary features that have nothing to do with anything.

State (good door, f_1, ..., f_k); actions, observations and rewards are those of tiger. All features start
uniformly, listening keeps them, and opening a door redraws them and ends the episode. An agent that knows the
structure learns from each listening what any other one tells; an agent that does not would have to learn how
well it hears for each of the 2^k values of the irrelevant features apart.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State
from baddr.core.posterior import sample
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.factored_tiger.settings import FactoredTigerSettings, names
from baddr.domains.factored_tiger.view import RENDERER
from baddr.domains.tables import KNOWN, observation_table, transition_table
from baddr.domains.tiger import model as tiger
from baddr.domains.tiger.model import LISTEN, NULL, SIZES
from baddr.posteriors import Counts, Factored, Posterior
from baddr.posteriors.factored import expected_dynamics
from baddr.posteriors.factored.posterior import edge_probabilities

MOST_FEATURES_OF_A_TABLE = 4  # irrelevant ones: a flat T has 3 4^(k+1) counts


class FactoredTiger(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, irrelevant: int, dynamics: Dynamics, discount: float = 0.95, horizon: int = 30):
        self.dynamics, self.discount, self.horizon = dynamics, discount, horizon
        self.state_sizes, self.observation_sizes = (2,) * (1 + irrelevant), SIZES[1]
        self.num_actions = 3

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): uniform."""
        return np.full(self.num_states, 1 / self.num_states)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jr.bernoulli(key, shape=(len(self.state_sizes),)).astype(jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([NULL], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(a == LISTEN, -1.0, jnp.where(a == s[0], 10.0, -100.0))

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return a != LISTEN


@takes_fields_of(FactoredTigerSettings)
def make_domain(settings: FactoredTigerSettings) -> Domain:
    """Factored tiger with tiger's prior: Dirichlet (5, 3) per door, all else known."""

    def hearing(accuracy: float, total: float = 1.0) -> np.ndarray:
        return total * np.array([[accuracy, 1 - accuracy], [1 - accuracy, accuracy]])

    irrelevant, total = settings.irrelevant, settings.prior_total
    truth = expected_dynamics(tiger.graph(hearing(settings.accuracy), irrelevant, learned=False))
    prior = tiger.graph(hearing(settings.prior_accuracy, total), irrelevant)
    pomdp = FactoredTiger(irrelevant, truth, settings.discount, settings.horizon)
    drawn = Factored(prior, expected=False)
    expected = expected_dynamics(prior)

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """A hearing accuracy ~ Beta(right, wrong) for each door."""
        return sample(drawn, key, drawn.prior(key))

    def flat_counts() -> Counts:
        listens = (jnp.arange(3) == LISTEN)[:, None, None]
        O = observation_table(expected, pomdp) * jnp.where(listens, total, KNOWN)
        return Counts(transition_table(expected, pomdp) * KNOWN, O)

    return Domain(
        name="factored-tiger",
        pomdp=pomdp,
        sample_simulator=sample_simulator,
        expected_simulator=expected,
        counts=flat_counts() if irrelevant <= MOST_FEATURES_OF_A_TABLE else None,
        graphs={"default": prior},
        describe=describe,
        shows=tiger.shows,
        names=names(settings),
        renderer=RENDERER,
    )


def describe(key: Key[Array, ""], posterior: Posterior, belief: Particles) -> dict[str, Array]:
    """Each door's hearing accuracy, as in tiger, and what is believed of the structure where it is uncertain.

    `parent`: the probability that the door, f_1, ... is a parent of what is heard; `true_structure`: that
    the door alone is.
    """
    described = tiger.describe(key, posterior, belief)
    if isinstance(posterior, Factored) and posterior.num_edges:
        edges = belief.states.theta.edges
        if posterior.num_edges < belief.states.s.shape[-1]:  # "matched": the door is a parent for certain
            edges = jnp.concatenate([jnp.ones_like(edges[:, :1]), edges], axis=1)
        true = edges[:, 0] & ~jnp.any(edges[:, 1:], axis=1)
        described["parent"] = edge_probabilities(edges, belief.weights)
        described["true_structure"] = jnp.sum(jnp.where(true, belief.weights, 0))
    return described
