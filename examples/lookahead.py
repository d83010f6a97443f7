"""A planner of your own: try every action, followed by one action that is repeated, and keep the best.

baddr run tiger --agent ba-pomcp --planner.kind examples/lookahead.py:make_planner
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from baddr import Plan, Planner


class Lookahead(Planner):
    """An action is worth the mean return of doing it and then repeating the best second action.

    All pairs of actions are tried on the same particles with the same random numbers, so luck favours none.
    The POMDP is the agent's: its state is (s, theta), so simulations learn as they go.
    """

    rollouts: int = eqx.field(static=True)
    ahead: int = eqx.field(static=True)

    def plan(self, keys, pomdp, belief, steps_left, active):
        """Of many runs: every argument has a leading axis of runs, but the POMDP."""
        return jax.vmap(partial(self.one_run, pomdp))(keys, belief, steps_left)

    def one_run(self, pomdp, key, belief, steps_left):
        actions = jnp.arange(pomdp.num_actions, dtype=jnp.int32)
        simulate = partial(self.simulate, pomdp, belief, steps_left)
        many = jax.vmap(simulate, (None, None, 0))  # of one pair of actions
        pairs = jax.vmap(jax.vmap(many, (None, 0, None)), (0, None, None))
        returns = pairs(actions, actions, jr.split(key, self.rollouts)).mean(2)
        tried = jnp.full(actions.shape, float(self.rollouts))
        steps = jnp.int32(self.rollouts * self.ahead * pomdp.num_actions**2)
        return Plan(Q=returns.max(1), N=tried, num_nodes=jnp.int32(1), num_steps=steps)

    def simulate(self, pomdp, belief, steps_left, first, second, key):
        """The discounted return of one simulation, from a particle that is drawn by weight."""

        def step(carry, x):
            s, alive = carry
            t, key = x
            a = jnp.where(t == 0, first, second)
            s_next, _ = pomdp.step(key, s, a)
            r = jnp.where(alive, pomdp.reward(s, a, s_next), 0.0)
            alive &= ~pomdp.is_terminal(s, a, s_next) & (t + 1 < steps_left)
            return (s_next, alive), pomdp.discount ** t.astype(float) * r

        key_s, key_steps = jr.split(key)
        start = belief.at(belief.sample(key_s)), jnp.bool_(True)
        times = jnp.arange(self.ahead, dtype=jnp.int32), jr.split(key_steps, self.ahead)
        return jnp.sum(jax.lax.scan(step, start, times)[1])


def make_planner(domain, rollouts: int = 64, ahead: int = 4) -> Lookahead:
    """Keyword arguments are settings: `--planner.rollouts`, `--planner.ahead`."""
    return Lookahead(rollouts, min(ahead, domain.pomdp.horizon))
