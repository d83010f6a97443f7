"""A planner that looks one step ahead."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from baddr import Plan, Planner


class OneStep(Planner):
    """The best next reward, on average over some particles; action 2 earns a bonus."""

    num_draws: int = eqx.field(static=True, default=16)
    bonus: float = eqx.field(static=True, default=0.0)

    def plan(self, keys, pomdp, belief, steps_left, active):
        A = pomdp.num_actions
        actions = jnp.arange(A, dtype=jnp.int32)

        def one(key, belief):
            def value(key, a):
                key_i, key_step = jr.split(key)
                s = belief.at(belief.sample(key_i))
                s_next, _ = pomdp.step(key_step, s, a)
                return pomdp.reward(s, a, s_next)

            draws = jax.vmap(jax.vmap(value), (0, None))(jr.split(key, (self.num_draws, A)), actions)
            Q = jnp.mean(draws, axis=0) + jnp.where(actions == 2, self.bonus, 0.0)
            steps = jnp.int32(self.num_draws * A)
            return Plan(Q, jnp.full((A,), float(self.num_draws)), jnp.int32(1), steps)

        return jax.vmap(one)(keys, belief)
