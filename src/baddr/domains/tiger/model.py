"""Tiger (Kaelbling et al. 1998): two doors, one good; listen, or open one and end the episode.

State 0 left, 1 right: **the good door**. Actions 0 open-left, 1 open-right, 2 listen. Observations
0 left, 1 right, 2 null. Listening costs 1, keeps the state, and names the good door with the hearing
accuracy (.85); opening the good door gives 10 and the other -100, is observed as null, redraws the
state and ends the episode.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from baddr.core.particles import Particles, mass_of
from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State, Table, Transition
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.tables import KNOWN
from baddr.domains.tiger.settings import TigerSettings, names
from baddr.domains.tiger.view import RENDERER
from baddr.fast.loops import bytes_of, over_particles
from baddr.posteriors import Counts, Graph, Posterior
from baddr.posteriors.factored import Node, parents
from baddr.posteriors.moments import observation_draws, observation_moments
from baddr.prng import dirichlet

LISTEN = 2
NULL = 2
NUM_BINS = 20  # of the accuracy's histogram
SIZES = (2,), (3,)  # of the state's and the observation's features


class Tiger(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True, default=0.95)
    horizon: int = eqx.field(static=True, default=30)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=SIZES[0])
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=SIZES[1])
    num_actions: int = eqx.field(static=True, default=3)

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): the good door is either."""
        return np.full(2, 0.5)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jr.bernoulli(key, shape=(1,)).astype(jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([NULL], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        return jnp.where(a == LISTEN, -1.0, jnp.where(a == s[0], 10.0, -100.0))

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return a != LISTEN


def tables(hearing: Float[np.ndarray, "2 2"], known: float = 1.0) -> Counts:
    """T and O where a good door i is heard as j in proportion to hearing[i, j]; known rows sum to `known`."""
    T = np.zeros((2, 3, 2), np.float32)
    T[:, :LISTEN] = known / 2
    T[:, LISTEN] = known * np.eye(2)
    O = np.zeros((3, 2, 3), np.float32)
    O[:LISTEN, :, NULL] = known
    O[LISTEN, :, :NULL] = hearing
    return Counts(jnp.asarray(T), jnp.asarray(O))


def dynamics(accuracy: float | tuple[float, float] = 0.85) -> Table:
    """D for a hearing accuracy, the same for both doors or one for each."""
    left, right = accuracy if isinstance(accuracy, tuple) else (accuracy, accuracy)
    return Table(*tables(np.array([[left, 1 - left], [1 - right, right]])), *SIZES)


def graph(hearing: Float[np.ndarray, "2 2"], num_irrelevant: int = 0, learned: bool = True) -> Graph:
    """What depends on what: nothing but hearing is learned, and it depends on the good door alone.

    Irrelevant features (of factored tiger) are kept by listening and redrawn by opening, as the door is; an
    agent that does not know the structure takes each of them for a possible parent of what it hears.
    """
    features = range(1 + num_irrelevant)
    redrawn = Node((), lambda: (1.0, 1.0), learned=False)
    kept = [Node(parents("s", [i]), lambda value: np.eye(2)[value], learned=False) for i in features]
    null = Node((), lambda: np.eye(3)[NULL], learned=False)
    door, irrelevant = parents("s_next", [0]), parents("s_next", features[1:])
    heard = Node(door, lambda door: (*hearing[door], 0.0), learned, irrelevant)
    T = tuple((redrawn, redrawn, kept[i]) for i in features)
    return Graph((2,) * len(features), SIZES[1], 3, T, ((null, null, heard),))


@takes_fields_of(TigerSettings)
def make_domain(settings: TigerSettings) -> Domain:
    """Tiger with the prior of the BRL literature: Dirichlet (5, 3) per door, all else known."""
    truth, expected = dynamics(settings.accuracy), settings.prior_accuracy
    right, wrong = expected * settings.prior_total, (1 - expected) * settings.prior_total
    hearing = np.array([[right, wrong], [wrong, right]])

    def sample_simulator(key: Key[Array, ""]) -> Dynamics:
        """A hearing accuracy ~ Beta(right, wrong) for each door."""
        T, O = tables(np.eye(2))
        return Table(T, O.at[LISTEN, :, :NULL].set(dirichlet(key, hearing)), *SIZES)

    return Domain(
        name="tiger",
        pomdp=Tiger(dynamics=truth, discount=settings.discount, horizon=settings.horizon),
        sample_simulator=sample_simulator,
        expected_simulator=dynamics(expected),
        counts=tables(hearing, KNOWN),
        graphs={"default": graph(hearing)},
        describe=describe,
        shows=shows,
        names=names(settings),
        renderer=RENDERER,
    )


def describe(key: Key[Array, ""], posterior: Posterior, belief: Particles) -> dict[str, Array]:
    """Mean and standard deviation of each door's hearing accuracy, over the whole mixture.

    Where the posterior draws models, also their distribution over both doors (Fig. i): the mass of particles
    x draws in each of 20 bins. Irrelevant features (of factored tiger) are 0.
    """
    irrelevant = jnp.zeros((belief.states.s.shape[-1] - 1,), jnp.int32)

    def accuracy(key: Key[Array, ""], theta, side: Array) -> tuple[Array, Array, Array | None]:
        s = jnp.concatenate([side[None], irrelevant])
        heard = Transition(s, jnp.int32(LISTEN), s, side[None])
        draws = observation_draws(posterior, key, theta, heard)
        return *observation_moments(posterior, theta, heard, draws), draws

    sides = jnp.arange(2, dtype=jnp.int32)
    keys = jr.split(key, belief.num_particles)
    over_sides = jax.vmap(accuracy, in_axes=(None, None, 0))
    one = lambda key, theta: over_sides(key, theta, sides)
    mean, variance, draws = over_particles(one, bytes_of(belief.states.theta))(keys, belief.states.theta)
    w = belief.weights[:, None]
    mixture_mean = jnp.sum(w * mean, axis=0)
    second = jnp.sum(w * (variance + mean**2), axis=0)
    model = {
        "accuracy_mean": mixture_mean,
        "accuracy_std": jnp.sqrt(jnp.maximum(second - mixture_mean**2, 0)),
    }
    if draws is not None:
        model["accuracy_histogram"] = histogram(draws, w[:, :, None] / (draws.shape[1] * draws.shape[2]))
    return model


def shows(s: State, a: Action, s_next: State, o: Observation) -> dict[str, Bool[Array, " sides"]]:
    """A noise tells of the accuracy behind the door where the tiger is not."""
    return {"accuracy": (a == LISTEN) & (jnp.arange(2) == s[0])}


def histogram(p: Float[Array, "..."], mass: Float[Array, "..."]) -> Float[Array, " bins"]:
    """The mass of the probabilities p in each of 20 equal bins of [0, 1]."""
    bins = jnp.minimum((p * NUM_BINS).astype(jnp.int32), NUM_BINS - 1)
    return mass_of(bins, mass, NUM_BINS)
