"""Best-first search over beliefs with bounds (AEMS2, Ross et al. 2008), many trees at once.

A node is a belief; its children are the beliefs after each action and observation. A leaf is valued by
bounds from below and above. Again and again the leaf is expanded that matters most: from the root down by
the action of the highest upper bound, and by the observation whose gap between the bounds weighs most. Up
the path both bounds are then those of the best action (Bellman). The plan is the action of the best lower
bound: what it promises, it can keep, as far as the bounds hold.

Node 0 is the root; node (e A + a) C + c is child c of action a at expansion e = 1, 2, ... (expansion 0 has
the root as its only child). All arrays are of the expansions, so that an expansion writes one block.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from baddr.core.gba_pomdp import GBAPOMDP, AugmentedState
from baddr.core.particles import Particles
from baddr.core.planner import Plan, PreparedPlanner
from baddr.core.pomdp import POMDP
from baddr.planners.belief_tree.bounds import Bounds, Own, value_iteration
from baddr.planners.belief_tree.draws import Draws, EachDraw
from baddr.planners.belief_tree.fitted import learned_bounds, sampled_model
from baddr.planners.belief_tree.mean_model import (
    is_known,
    mean_model,
    observation_table,
    transition_table,
)
from baddr.planners.belief_tree.nodes import (
    MOST_LISTED,
    TINY,
    Drawn,
    Nodes,
    ParticleNodes,
    TableNodes,
    bounds_of,
    draw_root,
    num_drawn,
    root_weights,
    tables_of,
)
from baddr.planners.belief_tree.settings import MOST_STATES
from baddr.planners.children import IN_PLACE
from baddr.planners.tree_search import effective_depth
from baddr.posteriors.known import Known

LARGEST_TABLES = 1 << 19  # numbers in p(s', o | s, a) of a plan's models


class TreeOfBeliefs(PreparedPlanner):
    """The belief tree. It plans in a plain POMDP and in a GBA-POMDP alike."""

    num_expansions: int = eqx.field(static=True)
    num_particles: int = eqx.field(static=True)
    num_observations: int = eqx.field(static=True, default=16)
    precision: float = eqx.field(static=True, default=1e-3)
    depth: int = eqx.field(static=True, default=0)  # 0: to the end of the episode
    stop_when_certain: bool = eqx.field(static=True, default=True)  # of the best action
    own: Own = eqx.field(static=True, default=(None, None))  # a domain's bounds
    num_solved: int = eqx.field(
        static=True, default=0
    )  # simulators of the prior: see `fast.solved_simulators`
    simulator: Any = eqx.field(static=True, default=None)  # of a domain: draws one

    def prepare(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> Bounds | tuple[()]:
        """Bounds on values in the model that the belief expects. By tables, plans have better ones."""
        gba, belief = learning(pomdp, belief)
        if None not in self.own:
            return Bounds(None, None, self.own, gba.state_sizes)
        if by_tables(gba, self.num_models(gba, belief)):
            return ()
        horizon = effective_depth(gba.discount, gba.horizon)
        if gba.num_states > MOST_STATES:
            return learned_bounds(sampled_model(key, gba, belief), gba, horizon, self.own)
        lower, upper = value_iteration(mean_model(key, gba, belief), gba.discount, horizon)
        return Bounds(lower, upper, self.own, gba.state_sizes)

    def plan_prepared(
        self,
        keys: Key[Array, " runs"],
        pomdp: POMDP,
        belief: Particles,
        steps_left: Int[Array, " runs"],
        active: Bool[Array, " runs"],
        prepared: Bounds | tuple[()],
    ) -> Plan:
        def start(key: Key[Array, ""], belief: Particles, *rest: Any) -> Search:
            key_root, key_tree = jr.split(key)
            return self.start(key_tree, pomdp, self.nodes(key_root, pomdp, belief), *rest)

        limit = jnp.minimum(steps_left, self.depth or pomdp.horizon)
        searches = jax.vmap(start)(keys, belief, limit, active, prepared)
        return grow_all(searches, self, pomdp.discount)

    def start(
        self,
        key: Key[Array, ""],
        pomdp: POMDP,
        nodes: Nodes,
        limit: Int[Array, ""],
        active: Bool[Array, ""],
        bounds: Bounds | tuple[()],
    ) -> "Search":
        """A run's search before its first expansion."""
        if isinstance(bounds, tuple):
            assert isinstance(nodes, TableNodes)
            horizon = effective_depth(pomdp.discount, pomdp.horizon)
            bounds = bounds_of(nodes.tables, pomdp.discount, horizon, self.own, pomdp.state_sizes)
        shape = self.num_expansions + 1, pomdp.num_actions, nodes.num_children
        return Search(key, nodes, bounds, limit, active, plant(nodes, bounds, shape, limit))

    def nodes(self, key: Key[Array, ""], pomdp: POMDP, belief: Particles) -> Nodes:
        """The beliefs of one run's tree: by tables where they are small."""
        gba, belief = learning(pomdp, belief)
        theta, models = belief.states.theta, self.num_models(gba, belief)
        drawn = draw_root(key, gba, belief, belief.num_particles if models == 1 else self.num_particles)
        if by_tables(gba, models):
            draws = jax.tree.map(lambda x: x[:models], (drawn.i, drawn.epsilon))
            Ds = jax.vmap(lambda i, epsilon: gba.models.dynamics(theta, i, epsilon))
            T = jax.vmap(partial(transition_table, gba.pomdp))(Ds(*draws))
            O = jax.vmap(partial(observation_table, gba.pomdp))(Ds(*draws))
            weights = root_weights(drawn, T.shape[0], gba.state_sizes)
            tables = tables_of(gba.pomdp, T, O)
            return TableNodes(tables=tables, weights=weights, num_children=gba.num_observations)
        return self.particle_nodes(gba, drawn, EachDraw(gba.models, theta, drawn.i, drawn.epsilon))

    def particle_nodes(self, gba: GBAPOMDP, drawn: Drawn, draws: Draws) -> ParticleNodes:
        """Of particles that were drawn, with their D."""
        listed, children = gba.num_observations <= MOST_LISTED, self.num_children(gba)
        return ParticleNodes(
            pomdp=gba.pomdp,
            draws=draws,
            s=drawn.s,
            weights=drawn.weights,
            num_children=children if listed else min(children, drawn.i.shape[0]),
            listed=listed,
        )

    def num_models(self, gba: GBAPOMDP, belief: Particles) -> int:
        """That a plan distinguishes: one where D is known, else one for each particle."""
        known = is_known(gba.posterior)
        return 1 if known else num_drawn(gba, belief.num_particles, self.num_particles)

    def num_children(self, pomdp: POMDP) -> int:
        """Observations that are followed after an action."""
        Z = pomdp.num_observations
        return Z if Z <= MOST_LISTED else min(Z, self.num_observations)


def learning(pomdp: POMDP, belief: Particles) -> tuple[GBAPOMDP, Particles]:
    """A plain POMDP as a GBA-POMDP in which there is nothing to learn."""
    if isinstance(pomdp, GBAPOMDP):
        return pomdp, belief
    known = Known(pomdp.dynamics)  # type: ignore[attr-defined]
    return GBAPOMDP(pomdp, known), Particles(AugmentedState(belief.states, ()), belief.log_weights)


def by_tables(gba: GBAPOMDP, models: int) -> bool:
    S, A = gba.num_states, gba.num_actions
    return gba.num_observations <= MOST_LISTED and models * S * S * A * gba.num_observations <= LARGEST_TABLES


class Block(NamedTuple):
    """The beliefs of an expansion's children; of all expansions, stacked."""

    W: Float[Array, "*E A C m"]  # weights of the child's belief
    of: PyTree  # "*E A ...": what the weights are about


class Tree(NamedTuple):
    """Per expansion, action and child."""

    blocks: Block
    new: Block  # of the last expansion: it is written when the next one starts
    P: Float[Array, "E A C"]  # probability of the child given the action
    lower: Float[Array, "E A C"]
    upper: Float[Array, "E A C"]
    expansion: Int[Array, "E A C"]  # of the child; 0: it is a leaf
    rho: Float[Array, "E A"]
    node: Int[Array, " E"]  # that was expanded
    depth: Int[Array, " E"]  # of the children
    size: Int[Array, ""]  # expansions so far


class Search(NamedTuple):
    """Of one run: all that its next expansion needs."""

    key: Key[Array, ""]
    nodes: Nodes
    bounds: Bounds
    limit: Int[Array, ""]  # depth of the tree
    active: Bool[Array, ""]
    tree: Tree


def grow(search: Search, how: TreeOfBeliefs, gamma: float) -> Plan:
    """Expand until the action is decided, or `how.num_expansions` times."""

    def goes_on(carry: tuple[Int[Array, ""], Tree]) -> Bool[Array, ""]:
        e, tree = carry
        return (e <= how.num_expansions) & undecided(e, search._replace(tree=tree), how, gamma)

    def body(carry: tuple[Int[Array, ""], Tree]) -> tuple[Int[Array, ""], Tree]:
        e, tree = carry
        return e + 1, step(e, search._replace(tree=tree), how, gamma)

    _, tree = jax.lax.while_loop(goes_on, body, (jnp.int32(1), search.tree))
    return plan_of(search.nodes, tree, gamma)


def grow_all(searches: Search, how: TreeOfBeliefs, gamma: float) -> Plan:
    """`grow` of many runs: a tree that is decided waits for the others."""

    def goes_on(carry: tuple[Int[Array, ""], Tree]) -> Bool[Array, ""]:
        e, trees = carry
        waits = jax.vmap(lambda search: undecided(e, search, how, gamma))(searches._replace(tree=trees))
        return (e <= how.num_expansions) & jnp.any(waits)

    def body(carry: tuple[Int[Array, ""], Tree]) -> tuple[Int[Array, ""], Tree]:
        e, trees = carry
        return e + 1, jax.vmap(lambda search: step(e, search, how, gamma))(searches._replace(tree=trees))

    _, trees = jax.lax.while_loop(goes_on, body, (jnp.int32(1), searches.tree))
    return jax.vmap(lambda nodes, tree: plan_of(nodes, tree, gamma))(searches.nodes, trees)


def plan_of(nodes: Nodes, tree: Tree, gamma: float) -> Plan:
    _, A, C = tree.P.shape
    lower, upper = action_values(tree, jnp.int32(1), gamma)
    return Plan(lower, jnp.ones((A,)), 1 + tree.size * A * C, tree.size * nodes.steps, upper)


# The parts of an expansion, of one run.


def plant(nodes: Nodes, bounds: Bounds, shape: tuple[int, int, int], limit: Int[Array, ""]) -> Tree:
    """A tree of its root alone."""
    w, of = nodes.root()
    lower, upper = nodes.bound(bounds, w[None], of, limit)
    nothing, none = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    block = Block(
        jnp.zeros((*shape[1:], *w.shape)).at[0, 0].set(w),
        jax.tree.map(lambda x: jnp.zeros((shape[1], *x.shape), x.dtype).at[0].set(x), of),
    )
    return Tree(
        blocks=jax.tree.map(lambda x: jnp.zeros((shape[0], *x.shape), x.dtype), block),
        new=block,
        P=nothing.at[0, 0, 0].set(1),
        lower=nothing.at[0, 0, 0].set(lower[0]),
        upper=nothing.at[0, 0, 0].set(upper[0]),
        expansion=none,
        rho=nothing[:, :, 0],
        node=none[:, 0, 0],
        depth=none[:, 0, 0],
        size=jnp.int32(0),
    )


def action_values(
    tree: Tree, e: Int[Array, ""], gamma: float
) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    """Q of the actions at an expansion, from below and above."""
    P, rho = tree.P[e], tree.rho[e]
    Q = lambda V: rho + gamma * jnp.sum(P * V[e], axis=1)
    return Q(tree.lower), Q(tree.upper)


def undecided(e: Int[Array, ""], search: Search, how: TreeOfBeliefs, gamma: float) -> Bool[Array, ""]:
    """Whether expansion e is wanted: the root's bounds are apart, and another action might be the best."""
    tree = search.tree
    lower, upper = action_values(tree, jnp.int32(1), gamma)
    best = jnp.argmax(lower)
    others = jnp.where(jnp.arange(lower.shape[0]) == best, -jnp.inf, upper)
    apart = tree.upper[0, 0, 0] - tree.lower[0, 0, 0] > how.precision
    open = (jnp.max(others) > lower[best]) | (not how.stop_when_certain)
    return search.active & ((e == 1) | (apart & open))


def step(e: Int[Array, ""], search: Search, how: TreeOfBeliefs, gamma: float) -> Tree:
    """The tree with its next leaf expanded, as expansion e; unchanged where it is decided."""
    search = search._replace(tree=written(search.tree, e - 1))
    on = undecided(e, search, how, gamma)
    x = select(search.tree, gamma)
    tree = expand(e, search, x, on)
    return back_up(tree, jnp.where(on, e, 0), gamma)


def written(tree: Tree, e: Int[Array, ""]) -> Tree:
    """With the newest block in its place. If a step wrote what it has read from, XLA would copy the tree."""
    blocks = jax.tree.map(lambda all, new: all.at[e].set(new, **IN_PLACE), tree.blocks, tree.new)
    return tree._replace(blocks=blocks)


def select(tree: Tree, gamma: float) -> Int[Array, ""]:
    """The leaf that matters most."""
    _, A, C = tree.P.shape
    expansion = tree.expansion.reshape(-1)

    def down(x: Int[Array, ""]) -> Int[Array, ""]:
        e = expansion[x]
        _, upper = action_values(tree, e, gamma)
        a = jnp.argmax(upper).astype(jnp.int32)
        gap = tree.P[e, a] * (tree.upper[e, a] - tree.lower[e, a])
        return (e * A + a) * C + jnp.argmax(gap).astype(jnp.int32)

    return jax.lax.while_loop(lambda x: expansion[x] > 0, down, jnp.int32(0))


def expand(e: Int[Array, ""], search: Search, x: Int[Array, ""], on: Bool[Array, ""]) -> Tree:
    """The tree with the children of leaf x in place e; they are linked to it only where `on`."""
    _, nodes, bounds, limit, _, tree = search
    _, A, C = tree.P.shape
    W, of = tree.blocks
    w = W.reshape(-1, W.shape[-1])[x]
    of = jax.tree.map(lambda all: all[x // (A * C), x // C % A], of)
    depth = tree.depth[x // (A * C)] + 1
    h, w = limit - depth, w / jnp.maximum(jnp.sum(w), TINY)
    rho, W, of = nodes.expand(jr.fold_in(search.key, e), w, of, h <= 0)
    P = jnp.sum(W, axis=-1)
    lower, upper = jax.vmap(lambda W, of: nodes.bound(bounds, W, of, h))(W, of)
    value = lambda V: jnp.where((P > TINY) & (h > 0), V / jnp.maximum(P, TINY), 0)
    return tree._replace(
        new=Block(W, of),
        P=tree.P.at[e].set(P),
        lower=tree.lower.at[e].set(value(lower)),
        upper=tree.upper.at[e].set(value(upper)),
        expansion=_at(tree.expansion, x, jnp.where(on, e, 0)),
        rho=tree.rho.at[e].set(rho),
        node=tree.node.at[e].set(x),
        depth=tree.depth.at[e].set(depth),
        size=tree.size + on.astype(jnp.int32),
    )


def back_up(tree: Tree, e: Int[Array, ""], gamma: float) -> Tree:
    """From expansion e up: the bounds of a belief are those of its best action. e = 0: nothing changes."""
    _, A, C = tree.P.shape

    def up(carry: tuple[Int[Array, ""], Array, Array]) -> tuple[Int[Array, ""], Array, Array]:
        e, lower, upper = carry
        x = tree.node[e]
        below, above = action_values(tree._replace(lower=lower, upper=upper), e, gamma)
        lower = _at(lower, x, jnp.maximum(lower.reshape(-1)[x], jnp.max(below)))
        upper = _at(upper, x, jnp.minimum(upper.reshape(-1)[x], jnp.max(above)))
        return x // (A * C), lower, upper

    _, lower, upper = jax.lax.while_loop(lambda carry: carry[0] > 0, up, (e, tree.lower, tree.upper))
    return tree._replace(lower=lower, upper=upper)


def _at(array: Array, x: Int[Array, ""], value: Array) -> Array:
    """With another entry at place x of the flat array."""
    return array.reshape(-1).at[x].set(value).reshape(array.shape)
