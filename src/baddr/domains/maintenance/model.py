"""Maintenance: a machine wears out; run it, inspect it or replace it. The example of the docs, built in.

State: the wear, 0 new to 3 broken. Actions 0 run, 1 inspect, 2 replace. Observations 0 quiet, 1 rattle.
Running wears the machine by one step with probability `wear`, earns 2, and costs 10 where it is broken
afterwards; inspecting costs .5 and keeps the wear; replacing costs 4 and makes it new. How often it rattles
depends on the action and the wear. Never terminal.

Only the wear is unknown, and the prior expects a machine that wears slowly.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, State, Table
from baddr.domains.domain import Domain, takes_fields_of
from baddr.domains.maintenance.settings import MaintenanceSettings, names
from baddr.domains.maintenance.view import RENDERER
from baddr.domains.tables import KNOWN
from baddr.posteriors import Counts, Graph
from baddr.posteriors.factored import Node, parents
from baddr.prng import beta

RUN, INSPECT, REPLACE = range(3)
NUM_WEARS, BROKEN = 4, 3
# p(rattle | a, wear)
RATTLES = np.array([[0.1, 0.2, 0.3, 0.4], [0.05, 0.35, 0.65, 0.95], [0.1, 0.1, 0.1, 0.1]], np.float32)
SIZES = (NUM_WEARS,), (2,)


class Maintenance(POMDP):
    dynamics: Dynamics
    discount: float = eqx.field(static=True, default=0.95)
    horizon: int = eqx.field(static=True, default=20)
    state_sizes: tuple[int, ...] = eqx.field(static=True, default=SIZES[0])
    observation_sizes: tuple[int, ...] = eqx.field(static=True, default=SIZES[1])
    num_actions: int = eqx.field(static=True, default=3)

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """p(s_0): the machine is new."""
        return np.eye(NUM_WEARS)[0]

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jnp.zeros((1,), jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.zeros((1,), jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        profit = jnp.where(s_next[0] == BROKEN, -10.0, 2.0)
        return jnp.where(a == RUN, profit, jnp.where(a == INSPECT, -0.5, -4.0))

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        return jnp.array(False)


def tables(wear: Float[Array, ""] | float) -> Counts:
    """T[s, a, s'] and O[a, s', o]."""
    stay, new = jnp.eye(NUM_WEARS), jnp.zeros((NUM_WEARS, NUM_WEARS)).at[:, 0].set(1.0)
    worn = stay[jnp.minimum(jnp.arange(NUM_WEARS) + 1, BROKEN)]
    T = jnp.stack([(1 - wear) * stay + wear * worn, stay, new], axis=1)
    return Counts(T, jnp.stack([1 - jnp.asarray(RATTLES), jnp.asarray(RATTLES)], axis=-1))


def graph(wear: float, total: float) -> Graph:
    """Only what running does to the machine is learned, by its wear."""

    def worn(before: int) -> Float[np.ndarray, " wears"]:
        after = np.eye(NUM_WEARS)
        return total * ((1 - wear) * after[before] + wear * after[min(before + 1, BROKEN)])

    known = lambda after: Node(parents("s", [0]), lambda before: np.eye(NUM_WEARS)[after(before)], False)
    wears = Node(parents("s", [0]), worn), known(lambda before: before), known(lambda before: 0)
    rattle = lambda a: Node(parents("s_next", [0]), lambda w: (1 - RATTLES[a, w], RATTLES[a, w]), False)
    return Graph(*SIZES, 3, (wears,), (tuple(map(rattle, range(3))),))


@takes_fields_of(MaintenanceSettings)
def make_domain(settings: MaintenanceSettings) -> Domain:
    """Maintenance with a prior about the wear: Beta(total * expected, total * (1 - expected))."""
    mean, total = settings.prior_wear, settings.prior_total
    machine = lambda wear: Table(*tables(wear), *SIZES)
    T, O = tables(mean)
    return Domain(
        name="maintenance",
        pomdp=Maintenance(
            dynamics=machine(settings.wear), discount=settings.discount, horizon=settings.horizon
        ),
        sample_simulator=lambda key: machine(beta(key, mean * total, (1 - mean) * total)),
        expected_simulator=machine(mean),
        counts=Counts(T * total, O * KNOWN),
        graphs={"default": graph(mean, total)},
        learned="T",
        names=names(settings),
        renderer=RENDERER,
    )
