"""Milliseconds per plan and per belief update of BADDr on tiger, at the paper's settings.

taskset -c 1 python benchmarks/dropout_planner.py [batch ...]
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from baddr import prng
from baddr.belief import importance_sampling, initial_belief
from baddr.domains import tiger
from baddr.gba_pomdp import GBAPOMDP
from baddr.planner import search
from baddr.posteriors.dropout import Architecture, Dropout, initial_weights
from baddr.settings import Network


def milliseconds(f: Callable[..., Any], keys: Any, belief: Any, repeats: int) -> tuple[float, float]:
    """The best wall-clock and the best processor time of `repeats` calls."""
    jax.block_until_ready(f(keys, belief))
    wall, cpu = [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(f(keys, belief))
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return 1e3 * min(wall), 1e3 * min(cpu)


def main(batches: list[int]) -> None:
    architecture = Architecture(Network(), (2,), 3, (3,))
    members = jax.vmap(lambda key: initial_weights(key, architecture))(jr.split(prng.key(1), 8))
    gba = GBAPOMDP(tiger.make_domain().pomdp, Dropout(members, architecture))
    for runs in batches:
        keys = jr.split(prng.key(0), runs)
        belief = jax.jit(jax.vmap(lambda key: initial_belief(key, gba, 1024)))(keys)

        @jax.jit
        def plan(keys, belief):
            left = jnp.full(keys.shape, 30)
            return search(
                keys, gba, belief, num_simulations=4096, exploration=100.0, depth=30, steps_left=left
            )

        @jax.jit
        def update(keys, belief):
            def one(key, belief):
                o = jnp.zeros((1,), jnp.int32)
                return importance_sampling(key, gba, belief, jnp.int32(2), o, resample_below=128.0)

            return jax.vmap(one)(keys, belief)

        steps = float(jnp.mean(plan(keys, belief).num_steps))
        wall, cpu = milliseconds(plan, keys, belief, 3 if runs > 8 else 10)
        print(f"batch {runs}: plan {wall / runs:.2f} ms wall, {cpu / runs:.2f} ms cpu;", end=" ")
        print(f"{1e3 * wall / runs / steps:.2f} us a simulated step ({steps:.0f})")
        wall, cpu = milliseconds(update, keys, belief, 3 if runs > 8 else 10)
        print(f"batch {runs}: update {wall / runs:.2f} ms wall, {cpu / runs:.2f} ms cpu", flush=True)


if __name__ == "__main__":
    main([int(batch) for batch in sys.argv[1:]] or [1, 64])
