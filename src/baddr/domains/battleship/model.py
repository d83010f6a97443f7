"""Battleship (Silver and Veness 2010): sink a hidden fleet with as few shots as possible.

State: where each ship lies (0 not yet, 1 + the number of its place), then for each cell whether it was shot.
Action i shoots at cell i = row * n + column. Observations 0 nothing, 1 miss, 2 hit. A shot costs 1, a shot at
a cell that was shot before 10, and hitting the last cell of the fleet gives n^2 and ends the episode.

The fleet is put in the first step, whatever the action: it costs nothing, shoots nothing and shows nothing.
One ship after the other takes a place with a probability in proportion to exp(edge * the share of its cells
on the edge of the sea), among those that are free. So where ships are put is a part of D, and can be learned.
(As published the fleet is uniform, `edge=0`, and there before the first shot.)

Only the liking of the edge is unknown.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from baddr.core.pomdp import POMDP, Action, Dynamics, Observation, Scalar, SplitDynamics, State
from baddr.domains.battleship.settings import BattleshipSettings, names, places
from baddr.domains.battleship.view import RENDERER
from baddr.domains.domain import Domain, takes_fields_of
from baddr.prng import categorical

NOTHING, MISS, HIT = range(3)
AGAIN = -10.0


class Sea(eqx.Module):
    """What is known of the fleet's places: their cells, how much of each is on the edge, and which clash."""

    cells: tuple[Bool[Array, "_ cells"], ...]  # of each ship
    on_edge: tuple[Float[Array, " _"], ...]
    clash: tuple[tuple[Bool[Array, "_ _"], ...], ...]  # of each ship with each one before it

    @property
    def num_ships(self) -> int:
        return len(self.cells)

    def covered(self, s: State) -> Bool[Array, " cells"]:
        """The cells under a ship."""
        rows = [(s[i] > 0) & at[jnp.maximum(s[i] - 1, 0)] for i, at in enumerate(self.cells)]
        return jnp.any(jnp.stack(rows), axis=0)

    def weights(self, i: int, fleet: Int[Array, " ships"], edge: Float[Array, ""]) -> Float[Array, " places"]:
        """Of ship i's places, given where the earlier ones are; all alike where none is free."""
        free = jnp.ones(self.on_edge[i].shape, bool)
        for j, clash in enumerate(self.clash[i]):
            free = free & ~clash[:, jnp.maximum(fleet[j] - 1, 0)]
        w = jnp.where(free, jnp.exp(edge * self.on_edge[i]), 0)
        w = jnp.where(jnp.any(free), w, 1.0)
        return w / jnp.sum(w)


def make_sea(settings: BattleshipSettings) -> Sea:
    n = settings.size
    covers = [_masks(n, length) for length in settings.ships]
    coast = np.zeros((n, n), bool)
    coast[[0, -1]], coast[:, [0, -1]] = True, True
    near = [_grown(mask, n) if settings.rules == "apart" else mask for mask in covers]
    clash = [[(near[i].astype(int) @ covers[j].T) > 0 for j in range(i)] for i in range(len(covers))]
    shares = [mask.astype(float) @ coast.reshape(-1) / mask.sum(1) for mask in covers]
    return Sea(
        tuple(jnp.asarray(mask) for mask in covers),
        tuple(jnp.asarray(share, jnp.float32) for share in shares),
        tuple(tuple(jnp.asarray(x) for x in row) for row in clash),
    )


def _masks(n: int, length: int) -> Bool[np.ndarray, "places cells"]:
    found = places(n, length)
    mask = np.zeros((len(found), n * n), bool)
    for i, cells in enumerate(found):
        mask[i, list(cells)] = True
    return mask


def _grown(mask: Bool[np.ndarray, "places cells"], n: int) -> Bool[np.ndarray, "places cells"]:
    """With all cells that touch it."""
    sea = np.pad(mask.reshape(-1, n, n), ((0, 0), (1, 1), (1, 1)))
    shifted = [sea[:, y : y + n, x : x + n] for y in range(3) for x in range(3)]
    return np.any(shifted, axis=0).reshape(len(mask), -1)


class Battleship(POMDP):
    dynamics: Dynamics
    sea: Sea
    discount: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, settings: BattleshipSettings, sea: Sea, dynamics: Dynamics):
        self.dynamics, self.sea = dynamics, sea
        self.discount, self.horizon, self.num_actions = settings.discount, settings.horizon, settings.size**2
        self.state_sizes = (*(1 + len(at) for at in sea.cells), *[2] * self.num_actions)
        self.observation_sizes = (3,)

    def initial_state(self, key: Key[Array, ""]) -> State:
        return jnp.zeros((len(self.state_sizes),), jnp.int32)

    def initial_observation(self, key: Key[Array, ""], s: State) -> Observation:
        return jnp.array([NOTHING], jnp.int32)

    def step(self, key: Key[Array, ""], s: State, a: Action) -> tuple[State, Observation]:
        return self.dynamics.step(key, s, a)

    def reward(self, s: State, a: Action, s_next: State) -> Scalar:
        shot = jnp.where(s[self.sea.num_ships + a] == 1, AGAIN, -1.0)
        won = jnp.where(self.is_terminal(s, a, s_next), float(self.num_actions), 0.0)
        return jnp.where(s[0] == 0, 0.0, shot + won)

    def is_terminal(self, s: State, a: Action, s_next: State) -> Bool[Array, ""]:
        """The fleet was put, and all of it is shot now."""
        shot = s_next[self.sea.num_ships :] == 1
        return (s[0] > 0) & jnp.all(shot | ~self.sea.covered(s_next))


class BattleshipDynamics(SplitDynamics):
    """D for a liking of the edge; all else is known."""

    edge: Float[Array, ""]
    sea: Sea

    def sample_state(self, key: Key[Array, ""], s: State, a: Action) -> State:
        ships, fleet = self.sea.num_ships, s[: self.sea.num_ships]
        for i, key_i in enumerate(jr.split(key, ships)):
            fleet = fleet.at[i].set(1 + categorical(key_i, self.sea.weights(i, fleet, self.edge)))
        return jnp.where(s[0] == 0, s.at[:ships].set(fleet), self._shot(s, a))

    def sample_observation(self, key: Key[Array, ""], s: State, a: Action, s_next: State) -> Observation:
        return self._seen(s, a, s_next)[None]

    def transition_log_prob(self, s: State, a: Action, s_next: State) -> Scalar:
        ships, fleet = self.sea.num_ships, s_next[: self.sea.num_ships]
        rows = [self.sea.weights(i, fleet, self.edge)[jnp.maximum(fleet[i] - 1, 0)] for i in range(ships)]
        same = jnp.all(s_next[ships:] == s[ships:]) & jnp.all(fleet > 0)
        put = jnp.where(same, jnp.sum(jnp.log(jnp.stack(rows))), -jnp.inf)
        return jnp.where(s[0] == 0, put, jnp.where(jnp.all(s_next == self._shot(s, a)), 0.0, -jnp.inf))

    def observation_log_prob(self, s: State, a: Action, s_next: State, o: Observation) -> Scalar:
        return jnp.where(o[0] == self._seen(s, a, s_next), 0.0, -jnp.inf)

    def _shot(self, s: State, a: Action) -> State:
        return s.at[self.sea.num_ships + a].set(1)

    def _seen(self, s: State, a: Action, s_next: State) -> Int[Array, ""]:
        return jnp.where(s[0] == 0, NOTHING, jnp.where(self.sea.covered(s_next)[a], HIT, MISS))


@takes_fields_of(BattleshipSettings)
def make_domain(settings: BattleshipSettings) -> Domain:
    """Battleship with a prior about its fleet: the liking of the edge is uniform around nothing."""
    sea, most = make_sea(settings), settings.prior_edge
    fleet = lambda edge: BattleshipDynamics(jnp.asarray(edge, float), sea)
    ships = sea.num_ships
    return Domain(
        name="battleship",
        pomdp=Battleship(settings, sea, fleet(settings.edge)),
        sample_simulator=lambda key: fleet(jr.uniform(key, minval=-most, maxval=most)),
        expected_simulator=fleet(0.0),
        learned="T",
        legal=lambda s: (s[ships:] == 0) | jnp.all(s[ships:] == 1),
        names=names(settings),
        renderer=RENDERER,
    )
