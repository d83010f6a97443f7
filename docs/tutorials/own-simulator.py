#| # Your own simulator in 40 lines
#|
#| `examples/maintenance.py` (`baddr example maintenance` copies it) is a whole domain: a machine wears out,
#| and one may run it, inspect it or replace it. Wear cannot be seen, only heard: it rattles. The prior says
#| that a run wears the machine with probability .1. The truth is .5, and an agent that believes the prior
#| runs it into the ground.
import sys
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import baddr

sys.path.append("examples")
from maintenance import BROKEN, RUN, make_domain, tables

domain = make_domain()
print(domain.pomdp.num_states, "states,", domain.pomdp.num_actions, "actions")
#| `baddr check examples/maintenance.py` looks whether such a file keeps its promises, and `baddr run
#| examples/maintenance.py --agent ba-pomcp` learns with a table of counts. But a table does not know that
#| one number explains all of its rows. Whoever wrote the simulator does, and can say so in a posterior of
#| 25 lines: the logit of `wear` has a normal belief, and each run of the machine is an observation of a
#| Bayesian logistic regression with one weight.


class Wear(baddr.Posterior):
    """theta: mean and precision of the logit of p(a run wears the machine)."""

    mean: float = eqx.field(static=True, default=-2.2)  # of wear .1
    precision: float = eqx.field(static=True, default=0.3)  # hardly sure of it

    def prior(self, key):
        return jnp.array([self.mean, self.precision])

    def draw(self, key, theta):
        return jr.normal(key)

    def dynamics(self, theta, epsilon):
        wear = jax.nn.sigmoid(theta[0] + epsilon / jnp.sqrt(theta[1]))
        return baddr.Table(*tables(wear), (4,), (2,))

    def update(self, key, theta, s, a, s_next, o):
        """The mode of the posterior by a few Newton steps, where the machine ran and could wear."""
        mean, precision = theta
        told, wore = (a == RUN) & (s[0] < BROKEN), (s_next[0] > s[0]).astype(jnp.float32)
        x = mean
        for _ in range(4):
            p = jax.nn.sigmoid(x)
            x = x - (precision * (x - mean) - (wore - p)) / (precision + p * (1 - p))
        p = jax.nn.sigmoid(x)
        return jnp.where(told, jnp.array([x, precision + p * (1 - p)]), theta)


#| What is believed goes into the results if the domain can describe it:


def describe(key, posterior, belief):
    wear = jax.nn.sigmoid(belief.states.theta[:, 0])
    return {"wear": jnp.sum(belief.weights * wear)}


domain = replace(domain, describe=describe)
gba = baddr.GBAPOMDP(domain.pomdp, Wear())
planner = baddr.PoUct(num_simulations=256, exploration=40.0, depth=6, in_flight=1)
agent = baddr.Agent(gba, baddr.Importance(num_particles=256), planner, describe)
baddr.compile_small_loops()
table = baddr.run(domain, agent, runs=16, episodes=6)
for episode, wear in enumerate(table["wear"].reshape(16, 6).mean(axis=0), start=1):
    print(f"after episode {episode}: believed wear {wear:.2f}")
#| The truth is .5. After four episodes the belief is near it: one weight for all rows learns from every run
#| of the machine, whatever its wear. A table of counts learns each row apart, and cannot even see which row
#| it is in.
#|
#| The same file works on the command line, with checkpoints, `resume` and pictures: `--posterior
#| FILE.py:NAME` ([a posterior of your own](../own-posterior.md), [a domain of your own](../own-domain.md)).
#|
#| Next: [comparing agents honestly](comparing-honestly.md).
