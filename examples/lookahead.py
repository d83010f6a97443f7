"""A planner of your own: look a few steps ahead with random actions, and keep the averages.

baddr run tiger --agent ba-pomcp --planner.kind examples/lookahead.py:make_planner
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from baddr import Plan, Planner


class Lookahead(Planner):
    """Every action is tried `rollouts` times: a particle by weight, the action, then random ones.

    The POMDP is the agent's: its state is (s, theta), so simulations learn as they go.
    """

    rollouts: int = eqx.field(static=True)
    ahead: int = eqx.field(static=True)

    def plan(self, keys, pomdp, belief, steps_left, active):
        """Of many runs: every argument has a leading axis of runs, but the POMDP."""
        return jax.vmap(partial(self.one_run, pomdp))(keys, belief, steps_left)

    def one_run(self, pomdp, key, belief, steps_left):
        keys = jr.split(key, (pomdp.num_actions, self.rollouts))
        actions = jnp.arange(pomdp.num_actions, dtype=jnp.int32)
        simulate = partial(self.simulate, pomdp, belief, steps_left)
        returns = jax.vmap(lambda a, keys: jax.vmap(lambda key: simulate(a, key))(keys))(actions, keys)
        tried = jnp.full(actions.shape, float(self.rollouts))
        steps = jnp.int32(self.rollouts * self.ahead * pomdp.num_actions)
        return Plan(Q=returns.mean(1), N=tried, num_nodes=jnp.int32(1), num_steps=steps)

    def simulate(self, pomdp, belief, steps_left, first, key):
        """The discounted return of one simulation."""

        def step(carry, x):
            s, goes_on = carry
            t, key = x
            key_a, key_step = jr.split(key)
            a = jnp.where(t == 0, first, jr.randint(key_a, (), 0, pomdp.num_actions, jnp.int32))
            s_next, _ = pomdp.step(key_step, s, a)
            r = jnp.where(goes_on, pomdp.reward(s, a, s_next), 0.0)
            goes_on &= ~pomdp.is_terminal(s, a, s_next) & (t + 1 < steps_left)
            return (s_next, goes_on), pomdp.discount ** t.astype(float) * r

        key_s, key_steps = jr.split(key)
        start = belief.at(belief.sample(key_s)), jnp.bool_(True)
        times = jnp.arange(self.ahead, dtype=jnp.int32), jr.split(key_steps, self.ahead)
        return jnp.sum(jax.lax.scan(step, start, times)[1])


def make_planner(domain, rollouts: int = 64, ahead: int = 4) -> Lookahead:
    """Keyword arguments are settings: `--planner.rollouts`, `--planner.ahead`."""
    return Lookahead(rollouts, min(ahead, domain.pomdp.horizon))
