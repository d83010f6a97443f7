"""A posterior of your own: counts that forget, for a world that may change.

    python examples/forgetting.py

runs it from Python, on tiger. The command line takes it on every domain that has counts, with `keep` for a
setting, and with all that a built-in agent has:

    baddr check tiger --posterior examples/forgetting.py:make_posterior
    baddr run tiger --posterior examples/forgetting.py:make_posterior --posterior.keep 0.99
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import baddr
from baddr import GBAPOMDP, Agent, BeliefTree, Counts, Importance, Posterior, Table, advance, key, start
from baddr.core.pomdp import flat_index
from baddr.domains import Domain, tiger
from baddr.errors import UserError


class Forgetting(Posterior):
    """Dirichlet counts whose excess over the prior shrinks by `keep` at every step.

    theta: the counts. A draw of D is their expected model, so it needs no randomness (epsilon is empty).
    """

    counts: Counts
    state_sizes: tuple[int, ...] = eqx.field(static=True)
    observation_sizes: tuple[int, ...] = eqx.field(static=True)
    keep: float = eqx.field(static=True, default=0.999)

    def prior(self, key):
        return self.counts

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return Table(theta.T, theta.O, self.state_sizes, self.observation_sizes)

    def update(self, key, theta, s, a, s_next, o):
        theta = jax.tree.map(lambda new, old: old + self.keep * (new - old), theta, self.counts)
        i, i_next = flat_index(s, self.state_sizes), flat_index(s_next, self.state_sizes)
        z = flat_index(o, self.observation_sizes)
        return Counts(theta.T.at[i, a, i_next].add(1), theta.O.at[a, i_next, z].add(1))


def make_posterior(domain: Domain, keep: float = 0.999) -> Forgetting:
    """Counts that forget, from the domain's own."""
    if domain.counts is None:
        raise UserError(f"{domain.name} has no counts to start from.")
    return Forgetting(domain.counts, domain.pomdp.state_sizes, domain.pomdp.observation_sizes, keep)


def main(runs: int = 64, episodes: int = 50, expansions: int = 16) -> np.ndarray:
    """The mean discounted return of each episode, over runs."""
    domain = tiger.make_domain()
    gba = GBAPOMDP(domain.pomdp, make_posterior(domain))
    planner = BeliefTree(num_expansions=expansions).build(domain)
    agent = Agent(gba, Importance(num_particles=512), planner)
    state = start(jr.split(key(0), runs), agent, domain.pomdp)
    returns = np.zeros((runs, episodes))
    while bool(jnp.any(state.episode < episodes)):
        state, steps = advance(state, agent, domain.pomdp, jnp.int32(episodes), 16)
        when, run = np.nonzero(np.asarray(steps.ended))
        returns[run, np.asarray(steps.episode)[when, run]] = np.asarray(steps.tally.discounted_return)[
            when, run
        ]
    return returns.mean(axis=0)


if __name__ == "__main__":
    baddr.compile_small_loops()  # before JAX first computes: searches are ten times as fast
    for first, block in zip((1, 11, 31), np.split(main(), (10, 30)), strict=True):
        print(f"episodes {first:2d} to {first + len(block) - 1}: mean discounted return {block.mean():6.2f}")
