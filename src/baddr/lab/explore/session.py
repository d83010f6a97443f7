"""An agent in its domain that a reader steps forwards and back: all that a page shows, as plain values.

A session is a list of moments. Acting adds one; going back and forth moves a pointer, and acting from an
earlier moment drops the later ones. Beliefs are values, so a moment costs its belief and nothing else.
"""

import threading
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from baddr import prng
from baddr.core.agent import Agent
from baddr.core.belief_update import Info
from baddr.core.particles import Particles
from baddr.core.planner import Plan, best_action
from baddr.domains.domain import Domain
from baddr.domains.entry import Names, numbered
from baddr.domains.render import Scene
from baddr.errors import UserError
from baddr.fast.belief_tree import FastTree
from baddr.fast.loops import bytes_of, over_particles
from baddr.lab.explore.distributions import distributions
from baddr.lab.explore.outlook import looked_ahead, outlook_view
from baddr.lab.explore.tree import grown, node_view, root_view
from baddr.life.record import state_marginals
from baddr.planners.belief_tree.search import Tree, plan_of

MOST_MOMENTS = 400
AHEAD, IMAGINED = 1 << 21, 1 << 20  # the keys of looks at what has not happened


class Moment(NamedTuple):
    """Where the agent stands, before it acts."""

    episode: int
    t: int
    s: Any  # of the world
    belief: Particles
    info: Info | None = None  # of the update that led here
    led_here: dict[str, Any] | None = None  # the action, the observation and the reward
    total: float = 0.0  # discounted return of the episode so far
    over: bool = False
    plan: Plan | None = None
    tree: Tree | None = None
    model: dict[str, Any] = {}  # noqa: RUF012
    outlook: list[dict[str, Any]] | None = None


class Inside(eqx.Module):
    """The compiled steps that all sessions share."""

    agent: Agent
    domain: Domain = eqx.field(static=True)
    names: Names = eqx.field(static=True)

    def __init__(self, agent: Agent, domain: Domain):
        self.agent, self.domain = agent, domain
        self.names = domain.names or numbered(domain.pomdp)

    @eqx.filter_jit
    def begin(self, key: Key[Array, ""]) -> tuple[Particles, Any]:
        key_belief, key_s = jr.split(key)
        return self.agent.initial_belief(key_belief), self.domain.pomdp.initial_state(key_s)

    @eqx.filter_jit
    def again(self, key: Key[Array, ""], belief: Particles) -> tuple[Particles, Any]:
        """The next episode."""
        key_belief, key_s = jr.split(key)
        return self.agent.next_episode(key_belief, belief), self.domain.pomdp.initial_state(key_s)

    @eqx.filter_jit
    def think(self, key: Key[Array, ""], belief: Particles, steps_left: Array) -> tuple[Plan, Array, PyTree]:
        """The plan, the action, and the tree where the planner has one to show."""
        key_plan, key_action = jr.split(key)
        planner, gba = self.agent.planner, self.agent.gba
        if isinstance(planner, FastTree):
            nodes, tree = grown(key_plan, planner, gba, belief, steps_left)
            plan = plan_of(nodes, tree, gba.discount)
        else:
            alone = jax.tree.map(lambda x: x[None], (key_plan, belief, steps_left))
            plan, tree = jax.tree.map(lambda x: x[0], self.agent.plan(*alone)), None
        return plan, best_action(key_action, plan), tree

    @eqx.filter_jit
    def world(self, key: Key[Array, ""], s: Any, a: Array) -> tuple[Any, Array, Array, Array]:
        pomdp = self.domain.pomdp
        s_next, o = pomdp.step(key, s, a)
        return s_next, o, pomdp.reward(s, a, s_next), pomdp.is_terminal(s, a, s_next)

    @eqx.filter_jit
    def learn(
        self, key: Key[Array, ""], belief: Particles, a: Array, o: Array, ended: Array | None
    ) -> tuple[Particles, Info]:
        return self.agent.update(key, belief, a, o, ended)

    @eqx.filter_jit
    def marginals(self, belief: Particles) -> list[Array]:
        """Of the state's features."""
        return state_marginals(belief, self.agent.gba.state_sizes)

    @eqx.filter_jit
    def described(self, key: Key[Array, ""], belief: Particles) -> tuple[dict[str, Array], dict[str, Array]]:
        """What the domain says of the belief over models, and of each particle alone."""
        posterior, describe = self.agent.gba.posterior, self.domain.describe
        if describe is None:
            return {}, {}

        def alone(key: Key[Array, ""], state: PyTree) -> dict[str, Array]:
            one = Particles(jax.tree.map(lambda x: x[None], state), jnp.zeros((1,)))
            return describe(key, posterior, one)

        key_all, key_each = jr.split(key)
        keys = jr.split(key_each, belief.num_particles)
        each = over_particles(alone, bytes_of(belief.states.theta))(keys, belief.states)
        return describe(key_all, posterior, belief), each

    def model(self, key: Key[Array, ""], belief: Particles) -> dict[str, Any]:
        """The belief over models, as plain values."""
        model, each = jax.tree.map(np.asarray, self.described(key, belief))
        spread = distributions(np.asarray(belief.weights, np.float64), each)
        return {name: x.tolist() for name, x in model.items()} | spread


class Session:
    """One reader's walk."""

    def __init__(self, inside: Inside, seed: int = 0):
        self.inside, self.key, self.lock = inside, prng.key(seed), threading.Lock()
        self.count = 0  # of random keys that were used
        belief, s = inside.begin(self._key())
        self.moments, self.now = [self._thought(Moment(0, 0, s, belief))], 0

    @property
    def moment(self) -> Moment:
        return self.moments[self.now]

    def _key(self) -> Key[Array, ""]:
        self.count += 1
        return jr.fold_in(self.key, self.count)

    def _thought(self, moment: Moment) -> Moment:
        """The moment with its plan; after the end of an episode there is nothing to plan."""
        inside, horizon = self.inside, self.inside.domain.pomdp.horizon
        moment = moment._replace(model=inside.model(self._key(), moment.belief))
        if moment.over:
            return moment
        plan, a, tree = inside.think(self._key(), moment.belief, jnp.int32(horizon - moment.t))
        ahead = looked_ahead(jr.fold_in(self.key, AHEAD + self.count), inside.agent.gba, moment.belief)
        led_here = (moment.led_here or {}) | {"best": int(a)}
        return moment._replace(plan=plan, tree=tree, outlook=outlook_view(ahead), led_here=led_here)

    # What a reader can do.

    def step(self) -> None:
        """The agent's own action; the next episode after the end of one."""
        moment = self.moment
        self.next_episode() if moment.over else self.act((moment.led_here or {})["best"])

    def act(self, a: int, o: list[int] | None = None) -> None:
        """An action of the reader's, and the observation that the world gives, or one to imagine."""
        pomdp, moment = self.inside.domain.pomdp, self.moment
        if moment.over:
            raise UserError("The episode has ended; start the next one.")
        if not 0 <= a < pomdp.num_actions:
            raise UserError(f"There is no action {a}.")
        action = jnp.int32(a)
        s_next, seen, r, ends = self.inside.world(self._key(), moment.s, action)
        if o is not None:
            seen = self._observation(o)
        last = bool(ends) or moment.t + 1 >= pomdp.horizon
        ended = ends if o is None else None  # with another observation it might have gone otherwise
        belief, info = self.inside.learn(self._key(), moment.belief, action, seen, ended)
        if bool(info.impossible):
            raise UserError("No particle can explain that observation.")
        said = {"action": a, "observation": np.asarray(seen).tolist(), "reward": float(r)}
        said["imagined"] = o is not None
        total = moment.total + pomdp.discount**moment.t * float(r)
        self._add(Moment(moment.episode, moment.t + 1, s_next, belief, info, said, total, last))

    def _observation(self, o: list[int]) -> Array:
        sizes = self.inside.domain.pomdp.observation_sizes
        if len(o) != len(sizes) or not all(0 <= x < n for x, n in zip(o, sizes, strict=True)):
            raise UserError(f"There is no observation {o}.")
        return jnp.array(o, jnp.int32)

    def next_episode(self) -> None:
        """What was learned stays; the state is drawn anew."""
        belief, s = self.inside.again(self._key(), self.moment.belief)
        self._add(Moment(self.moment.episode + 1, 0, s, belief))

    def move(self, by: int) -> None:
        self.now = min(max(self.now + by, 0), len(self.moments) - 1)

    def _add(self, moment: Moment) -> None:
        self.moments = [*self.moments[: self.now + 1], self._thought(moment)][-MOST_MOMENTS:]
        self.now = len(self.moments) - 1

    # What a page shows.

    def view(self) -> dict[str, Any]:
        moment, inside = self.moment, self.inside
        starts = [i for i, m in enumerate(self.moments) if i == 0 or m.t == 0]
        truth = np.asarray(jax.tree.leaves(moment.s)[0]).reshape(-1).tolist()
        info = moment.info
        return {
            "episode": moment.episode,
            "t": moment.t,
            "over": moment.over,
            "total": moment.total,
            "place": self.now,
            "places": len(self.moments),
            "starts": starts,
            "led_here": moment.led_here,
            "history": [self._said(i) for i in range(1, self.now + 1)],
            "particles": moment.belief.num_particles,
            "effective": float(moment.belief.effective_sample_size()),
            "ancestors": None if info is None else int(info.distinct_ancestors),
            "state": [_plain(p) for p in inside.marginals(moment.belief)],
            "true_state": truth,
            "model": moment.model,
            "plan": None if moment.plan is None else plan_view(moment.plan),
            "outlook": moment.outlook,
            "tree": None if moment.tree is None else root_view(moment.tree, inside.agent.gba.discount),
        }

    def _said(self, place: int) -> dict[str, Any]:
        moment = self.moments[place]
        return {"place": place, "episode": moment.episode, "t": moment.t, **(moment.led_here or {})}

    def scene(self) -> Scene:
        """What there is to see now."""
        moment, pomdp = self.moment, self.inside.domain.pomdp
        state = lambda m: np.asarray(jax.tree.leaves(m.s)[0]).reshape(-1).tolist()
        before = moment if moment.t == 0 else self.moments[max(self.now - 1, 0)]
        said = moment.led_here or {}
        belief = [_plain(p) for p in self.inside.marginals(moment.belief)]
        seen = said.get("action"), said.get("observation"), belief
        return Scene(state(before), state(moment), *seen, pomdp.state_sizes, self.inside.names, "")

    def node(self, number: int) -> list[dict[str, Any]]:
        """The children of a node of the tree."""
        tree = self.moment.tree
        if tree is None:
            raise UserError("This planner keeps no tree to look at.")
        return node_view(tree, number, self.inside.agent.gba, self.inside.domain.pomdp)

    def after(self, a: int, o: list[int]) -> dict[str, Any]:
        """What would be believed after an action and an observation."""
        pomdp, moment = self.inside.domain.pomdp, self.moment
        if moment.over or not 0 <= a < pomdp.num_actions:
            raise UserError("There is no such action here.")
        seen = self._observation(o)
        key_update, key_about = jr.split(jr.fold_in(self.key, IMAGINED))
        belief, info = self.inside.learn(key_update, moment.belief, jnp.int32(a), seen, None)
        if bool(info.impossible):
            return {"impossible": True}
        state = [_plain(p) for p in self.inside.marginals(belief)]
        return {"impossible": False, "state": state, "model": self.inside.model(key_about, belief)}


def plan_view(plan: Plan) -> dict[str, Any]:
    upper = None if plan.upper is None else _plain(plan.upper)
    return {
        "Q": _plain(plan.Q),
        "upper": upper,
        "visits": _plain(plan.N),
        "nodes": int(plan.num_nodes),
        "steps": int(plan.num_steps),
    }


def _plain(x: Any) -> list[float]:
    return np.asarray(x, np.float64).tolist()
