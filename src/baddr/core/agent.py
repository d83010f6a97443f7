"""The agent: a GBA-POMDP, a belief update and a planner. `life.run` has what it does, step after step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from baddr.core.belief_update import Info, initial_belief, next_episode, select
from baddr.core.filters import Filter
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.outcome import WithOutcome, state_tells_ends
from baddr.core.particles import Particles
from baddr.core.planner import Plan, Planner, PreparedPlanner
from baddr.core.pomdp import Action, Observation, Scalar, State
from baddr.core.posterior import Posterior
from baddr.core.rejuvenation import Rejuvenation

# Columns about the belief over models.
Describe = Callable[[Key[Array, ""], Posterior, Particles], dict[str, Array]]
# By the name of a quantity: whether a real step (s, a, s', o) showed something of each of its entries.
Shows = Callable[[State, Action, State, Observation], dict[str, Bool[Array, " entries"]]]


class Agent(eqx.Module):
    """A GBA-POMDP, a filter and a planner. Settings of a planner (`PoUct()`) will do for one."""

    gba: GBAPOMDP
    filter: Filter = eqx.field(static=True)
    planner: Planner
    describe: Describe | None = eqx.field(static=True)
    trace: bool = eqx.field(static=True)  # keep the belief after every step
    rejuvenation: Rejuvenation | None
    shows: Shows | None = eqx.field(static=True)

    def __init__(
        self,
        gba: GBAPOMDP,
        filter: Filter,
        planner: Any,
        describe: Describe | None = None,
        trace: bool = False,
        rejuvenation: Rejuvenation | None = None,
        shows: Shows | None = None,
    ):
        self.gba, self.filter, self.describe, self.trace = gba, filter, describe, trace
        self.rejuvenation, self.shows = rejuvenation, shows
        self.planner = planner if isinstance(planner, Planner) else planner.build()

    def initial_belief(self, key: Key[Array, ""]) -> Particles:
        own = getattr(self.filter, "initial_belief", None)  # of a filter without particles
        return own(key, self.gba) if own else initial_belief(key, self.gba, self.filter.num_particles)

    def next_episode(self, key: Key[Array, ""], belief: Particles) -> Particles:
        own = getattr(self.filter, "next_episode", None)
        p0 = getattr(self.rejuvenation, "p0", None)  # of moves that need it
        return own(key, self.gba, belief) if own else next_episode(key, self.gba, belief, p0)

    def prepare(self, key: Key[Array, ""], belief: Particles) -> PyTree:
        """What the planner works out before an episode; most have nothing to."""
        planner = self.planner
        return planner.prepare(key, self.gba, belief) if isinstance(planner, PreparedPlanner) else ()

    def plan(
        self,
        keys: Key[Array, " runs"],
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"] | None = None,
        prepared: PyTree = None,
    ) -> Plan:
        """The plan of each run from its belief; what was not `prepared` is worked out now."""
        active = jnp.ones(keys.shape, bool) if active is None else active
        planner, given = self.planner, (keys, self.gba, belief, steps_left, active)
        if prepared is not None and isinstance(planner, PreparedPlanner):
            return planner.plan_prepared(*given, prepared)
        return planner.plan(*given)

    def update(
        self,
        key: Key[Array, ""],
        belief: Particles,
        a: Action,
        o: Observation,
        terminal: Bool[Array, ""] | bool | None = None,
        active: Bool[Array, ""] | bool = True,
        r: Scalar | None = None,
    ) -> tuple[Particles, Info]:
        """tau(b, a, o), learning included; where not `active`, b.

        `terminal` says whether the step ended the episode, where that is known: what would have done
        otherwise is impossible. A filter with `rewards` also weighs r. One that does not learn from terminal
        steps skips them.
        """
        gba, r = self.gba, r if getattr(self.filter, "rewards", False) else None
        ended = jnp.asarray(terminal) if terminal is not None and state_tells_ends(gba.pomdp) else None
        if ended is not None or r is not None:
            gba = GBAPOMDP(gba.pomdp, WithOutcome(gba.posterior, gba.models, gba.pomdp, ended, r))
        if self.filter.learn_terminal:
            return self.filter.update(key, gba, belief, a, o, jnp.array(True), active)
        on = ~jnp.asarray(False if terminal is None else terminal)
        belief, info = self.filter.update(key, gba, belief, a, o, on, on & active)
        nothing = info._replace(impossible=jnp.array(False), num_filled=jnp.zeros_like(info.num_filled))
        return belief, select(on, info, nothing)
