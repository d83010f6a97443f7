"""A posterior of your own: counts that forget, for a tiger whose hearing may change.

python examples/forgetting.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import baddr
from baddr import GBAPOMDP, Agent, Counts, Importance, Posterior, PoUct, Table, advance, key, start
from baddr.core.pomdp import flat_index
from baddr.domains import tiger


class Forgetting(Posterior):
    """Dirichlet counts whose excess over the prior shrinks by `keep` at every step.

    theta: the counts. A draw of D is their expected model, so it needs no randomness (epsilon is empty).
    """

    counts: Counts
    keep: float = eqx.field(static=True, default=0.999)

    def prior(self, key):
        return self.counts

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return Table(theta.T, theta.O, *tiger.SIZES)

    def update(self, key, theta, s, a, s_next, o):
        theta = jax.tree.map(lambda new, old: old + self.keep * (new - old), theta, self.counts)
        door, z = flat_index(s_next, (2,)), flat_index(o, (3,))
        return Counts(theta.T.at[s[0], a, door].add(1), theta.O.at[a, door, z].add(1))


def main(runs: int = 8, episodes: int = 50, simulations: int = 1024) -> np.ndarray:
    """The mean discounted return of each episode, over runs."""
    domain = tiger.make_domain()
    gba = GBAPOMDP(domain.pomdp, Forgetting(domain.counts))
    agent = Agent(gba, Importance(num_particles=512), PoUct(num_simulations=simulations))
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
