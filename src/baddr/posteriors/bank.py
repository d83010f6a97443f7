"""A bank of simulators: finitely many D with exact weights. U is Bayes' rule, and nothing is approximated.

Under the prior "one of these K, equally likely" Def. 3 holds exactly: p(D; theta_H) is the posterior given
the full history H.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from baddr.core.particles import Particles
from baddr.core.pomdp import Action, Dynamics, Observation, State
from baddr.core.posterior import Posterior
from baddr.prng import categorical

LOWEST = -1e9  # the log-weight of a member that cannot be: theta stays finite

LogWeights = Float[Array, "*n K"]


class Reach(eqx.Module):
    """Where the members can go, for the exact filter: the n possible transitions of their union, and their
    probabilities. Number n is a transition of probability 0, which fills up the lists."""

    start: Float[Array, " S"]  # p(s_0)
    s: Int[Array, " n_and_1"]  # rank of the state that a transition leaves
    p: Float[Array, "n_and_1 K"]  # p(s' | s, a; D_k)
    into: Int[Array, "A S most"]  # the transitions by a that enter s'
    place: Int[Array, " n"]  # of a transition, in a table [a, s, s']

    def only(self, who: Int[Array, " k"]) -> "Reach":
        """Of these members."""
        return Reach(self.start, self.s, self.p[:, who], self.into, self.place)

    def mean(self, weights: Float[Array, " K"]) -> Float[Array, "A S S"]:
        """p(s' | s, a) of members of these weights."""
        A, S, _ = self.into.shape
        return jnp.zeros((A * S * S,)).at[self.place].set(self.p[:-1] @ weights).reshape(A, S, S)


class Bank(Posterior):
    """K members; theta is the logarithm of their weights, one for each.

    The leaves of the members are stacked where they differ (`differs`) and kept once where all are equal. All
    particles and runs share the members.
    """

    members: Dynamics
    differs: tuple[bool, ...] = eqx.field(static=True)
    num_members: int = eqx.field(static=True)
    reach: Reach | None = None

    def member(self, k: Int[Array, ""]) -> Dynamics:
        leaves, tree = jax.tree.flatten(self.members)
        return tree.unflatten([x[k] if own else x for x, own in zip(leaves, self.differs, strict=True)])

    def each(self, function: Callable[[Dynamics], Any]) -> Any:
        """What the function gives for every member; what they have in common is computed once."""
        leaves, tree = jax.tree.flatten(self.members)

        def one(own: list[Array], _: Array) -> Any:
            rest = iter(own)
            both = zip(leaves, self.differs, strict=True)
            return function(tree.unflatten([next(rest) if differs else x for x, differs in both]))

        own = [x for x, differs in zip(leaves, self.differs, strict=True) if differs]
        return jax.vmap(one)(own, jnp.arange(self.num_members))

    def only(self, who: Int[Array, " k"]) -> "Bank":
        """The bank of these members, as often as they are named."""
        leaves, tree = jax.tree.flatten(self.members)
        own = [x[who] if differs else x for x, differs in zip(leaves, self.differs, strict=True)]
        reach = None if self.reach is None else self.reach.only(who)
        return Bank(tree.unflatten(own), self.differs, who.shape[0], reach)

    def prior(self, key: Key[Array, ""]) -> LogWeights:
        return jnp.full((self.num_members,), -np.log(self.num_members), float)

    def draw(self, key: Key[Array, ""], theta: LogWeights) -> Int[Array, ""]:
        return categorical(key, jnp.exp(theta))

    def dynamics(self, theta: LogWeights, epsilon: Int[Array, ""]) -> Dynamics:
        return self.member(epsilon)

    def update(
        self, key: Key[Array, ""], theta: LogWeights, s: State, a: Action, s_next: State, o: Observation
    ) -> LogWeights:
        """l_k += log D_k(s', o | s, a). A transition that no member explains teaches nothing."""
        return normalised(theta + self.each(lambda D: D.log_prob(s, a, s_next, o)), theta)


def normalised(log_weights: LogWeights, otherwise: LogWeights) -> LogWeights:
    """Log-weights whose exponentials sum to one; `otherwise` where all are 0."""
    # Those at LOWEST are 0, too: what was added to them since does not count.
    total = jax.nn.logsumexp(jnp.where(log_weights > LOWEST / 2, log_weights, -jnp.inf), -1, keepdims=True)
    return jnp.where(jnp.isneginf(total), otherwise, jnp.maximum(log_weights - total, LOWEST))


def bank_of(members: Dynamics, num_members: int) -> Bank:
    """The bank of stacked members. Where all have the same array, it is kept once."""
    leaves, tree = jax.tree.flatten(members)
    here = [np.asarray(x) for x in leaves]  # where looking at entries compiles nothing
    differs = tuple(bool(np.any(x != x[:1])) for x in here)
    kept = [x if own else jnp.asarray(y[0]) for x, y, own in zip(leaves, here, differs, strict=True)]
    return Bank(
        members=tree.unflatten(kept),
        differs=differs,
        num_members=num_members,
    )


def draw_bank(
    key: Key[Array, ""], sample_simulator: Callable[[Key[Array, ""]], Dynamics], num_members: int
) -> Bank:
    """Members drawn from the simulators' prior."""
    draw = lambda key: jax.vmap(sample_simulator)(jax.random.split(key, num_members))
    return bank_of(jax.jit(draw)(key), num_members)


class Member(Posterior):
    """A point mass at one of a bank's members: theta is its number. So a belief can be told member by
    member."""

    bank: Bank

    def prior(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return self.bank.draw(key, self.bank.prior(key))

    def draw(self, key: Key[Array, ""], theta: Int[Array, ""]) -> tuple[()]:
        return ()

    def dynamics(self, theta: Int[Array, ""], epsilon: tuple[()]) -> Dynamics:
        return self.bank.member(theta)

    def update(
        self, key: Key[Array, ""], theta: Int[Array, ""], s: State, a: Action, s_next: State, o: Observation
    ) -> Int[Array, ""]:
        return theta


def member_weights(belief: Particles) -> Float[Array, " K"]:
    """p(k | h): the members' weights in the whole belief."""
    return belief.weights @ jnp.exp(belief.states.theta)


def by_member(bank: Bank, belief: Particles) -> tuple[Member, Particles]:
    """The same belief about D, as K particles of one member each. Their states are the first one's: what it
    says of states has no meaning."""
    s = belief.states.s
    states = belief.states._replace(
        s=jnp.broadcast_to(s[:1], (bank.num_members, *s.shape[1:])),
        theta=jnp.arange(bank.num_members, dtype=jnp.int32),
    )
    return Member(bank), Particles(states, jnp.log(member_weights(belief)))
