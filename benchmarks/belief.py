"""How fast the belief over tiger's hearing accuracy moves, under a fixed policy: no planning is involved.

    python benchmarks/belief.py [--agent baddr] [--runs 64] [--episodes 60] [network.learning_rate=0.02 ...]

Every episode listens three times and opens the door heard last. The world is tiger with an accuracy of .85,
the prior's expectation .625. Prints, after some episodes, the mean of both doors' believed accuracy (the
median run and its quartiles) and the standard deviation of one belief (the mean over runs).
"""

import argparse
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.fast.compiler import compile_small_loops
from baddr.fast.loops import one_by_one
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset

LISTENS = 3


def with_overrides(experiment, overrides):
    for override in overrides:
        name, value = override.split("=")
        group, field = name.split(".")
        settings = experiment.settings.groups()[group]
        old = getattr(settings, field)
        new = (
            value if isinstance(old, str) else value == "true" if isinstance(old, bool) else type(old)(value)
        )
        experiment = experiment.changed(**{group: replace(settings, **{field: new})})
    return experiment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--agent", default="baddr")
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    compile_small_loops()  # as the command line does
    experiment = with_overrides(preset("tiger", options.agent, "paper"), options.overrides)
    domain = build_domain(experiment)
    agent, pomdp = build_agent(experiment, domain), domain.pomdp

    def episode(key, belief):
        key_s, key_step, key_update, key_next, key_summary = jr.split(key, 5)

        def step(carry, x):
            s, belief, heard = carry
            t, key_step, key_update = x
            a = jnp.where(t < LISTENS, 2, heard[0])
            s_next, o = pomdp.step(key_step, s, a)
            belief, _ = agent.update(key_update, belief, a, o, pomdp.is_terminal(s, a, s_next))
            return (s_next, belief, o), None

        n = LISTENS + 1
        times = jnp.arange(n), jr.split(key_step, n), jr.split(key_update, n)
        start = pomdp.initial_state(key_s), belief, jnp.zeros((1,), jnp.int32)
        (_, belief, _), _ = jax.lax.scan(step, start, times)
        belief = agent.next_episode(key_next, belief)
        return belief, domain.describe(key_summary, agent.gba.posterior, belief)

    def life(key):
        key_belief, key = jr.split(key)
        keys = jr.split(key, options.episodes)
        return jax.lax.scan(lambda b, k: episode(k, b), agent.initial_belief(key_belief), keys)[1]

    started = time.perf_counter()
    keys = jr.split(jr.fold_in(prng.key(options.seed), 1), options.runs)
    columns = jax.jit(one_by_one(life))(keys)
    mean = np.mean(columns["accuracy_mean"], axis=2)
    deviation = np.mean(columns["accuracy_std"], axis=(0, 2))
    name = " ".join([options.agent, *options.overrides])
    shown = [e for e in (1, 5, 10, 20, 30, 40, 60, 100, 200, 400) if e <= options.episodes]
    print(f"{name} ({options.runs} runs, {time.perf_counter() - started:.0f} s)")
    for e in shown:
        low, middle, high = np.quantile(mean[:, e - 1], [0.25, 0.5, 0.75])
        print(
            f"  {e:4d} episodes: {middle:.3f} [{low:.3f}, {high:.3f}], sd {deviation[e - 1]:.3f}", flush=True
        )


if __name__ == "__main__":
    main()
