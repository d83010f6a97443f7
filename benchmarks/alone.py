"""PO-UCT of a run alone on one core: by paths, beside the loop of the paper's preset, in turn.

    python benchmarks/alone.py [--cases road-racing-3/baddr ...] [--turns 5] [--batches 64]

A program plans many times from the same belief, so that calling it counts for nothing. Both ways simulate the
same with the same random numbers: fewer than 1 % of the visits may differ, as sums are rounded otherwise.
"""

import argparse
import statistics
from dataclasses import replace

from domains import CASES, experiment_of
from timing import about, pin

ASKED = ["road-racing-3/baddr", "collision-avoidance/baddr", "gridverse-8/baddr"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=ASKED)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--plans", type=int, default=50, help="of a program")
    parser.add_argument("--batches", type=int, default=64, help="that the networks are trained on")
    options = parser.parse_args()
    pin()

    import jax
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np
    from cases import case, compiled
    from timing import time_and_result

    from baddr.fast.search import FastSearch, fast_search

    print(f"PO-UCT of a run alone, medians of {options.turns} turns\n{about()}")
    print(f"{'':28s}{'published':>12s}{'by paths':>12s}{'ratio':>8s}{'least':>8s}{'most':>8s}")
    plans = compiled(lambda agent, keys, *rest: jax.lax.map(lambda key: agent.plan(key, *rest), keys))
    for name in options.cases:
        some = case(experiment_of(name), 1, options.batches)
        planner = some.agent.planner
        assert isinstance(planner, FastSearch)
        ways = []
        for by in ("tree", "paths"):
            way = fast_search(replace(planner.how, by_paths=by == "paths"), some.agent.gba)
            assert way.by == by, f"{name} is searched by {way.by}"
            ways.append(replace(some.agent, planner=way))
        left = jnp.full((1,), some.agent.gba.horizon, jnp.int32)
        keys = jr.split(some.keys[0], (options.plans, 1))
        found = [
            [time_and_result(plans, agent, keys, some.beliefs, left) for agent in ways]
            for _ in range(options.turns)
        ]
        published, by_paths = (np.asarray(x[1].N) for x in found[0])
        differ = np.abs(published - by_paths).sum() / 2 / published.sum()
        assert differ < 0.01, f"{name}: {differ:.1%} of the visits differ"
        times = [[1e3 * way[0] / options.plans for way in turn] for turn in found]
        ratios = [a / b for a, b in times]
        a, b = (statistics.median(x) for x in zip(*times, strict=True))
        print(
            f"{name:28s}{a:9.3f} ms{b:9.3f} ms{statistics.median(ratios):8.1f}{min(ratios):8.1f}"
            f"{max(ratios):8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
