"""What is learned where the truth is outside the prior of the simulators: three cases, several agents.

    python benchmarks/outside.py [--case hears-better] [--agents bank mixture] [--runs 64] [--episodes 100]

- hears-better: tiger that hears with .85, under a prior that is certain of .6.
- lane-stands: a road whose first lane never moves, under speeds ~ Beta(2, 2).
- hears-nothing: tiger that hears nothing (the null) one time in five, which no simulator ever does.

Prints the discounted return over blocks of episodes, and what a planner with the truth has: mean and standard
error over runs. Sizes are those of the preset `quick`.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import baddr
from baddr.agents import AGENTS
from baddr.core.pomdp import Table
from baddr.domains import road_racing, tiger
from baddr.domains.catalog import DOMAINS
from baddr.domains.domain import Domain
from baddr.domains.road_racing import model as road

BLOCKS = ((1, 10), (11, 20), (21, 50), (51, 100))


def hears_better() -> Domain:
    return tiger.make_domain(prior_accuracy=0.6, prior_total=1000.0)


def lane_stands() -> Domain:
    domain = road_racing.make_domain(certainty=4.0)
    return with_truth(domain, road.RoadDynamics(jnp.array([0.0, 0.5, 0.75])))


def hears_nothing(null: float = 0.2) -> Domain:
    truth = tiger.dynamics(0.85)
    O = truth.O.at[tiger.LISTEN].multiply(1 - null).at[tiger.LISTEN, :, tiger.NULL].set(null)
    return with_truth(tiger.make_domain(), Table(truth.T, O, (2,), (3,)))


CASES: dict[str, Callable[[], Domain]] = {
    "hears-better": hears_better,
    "lane-stands": lane_stands,
    "hears-nothing": hears_nothing,
}


def with_truth(domain: Domain, D) -> Domain:
    """The same prior about another world."""
    return replace(domain, pomdp=domain.pomdp.with_dynamics(D))


def with_presets(domain: Domain) -> Domain:
    """The domain with the presets that its name has, less their settings of the domain: it is made."""
    entry = DOMAINS[domain.name]
    found = {name: replace(sizes, domain={}) for name, sizes in entry.presets(entry.settings).items()}
    return replace(domain, presets=found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--agents", nargs="*", default=["pomcp", "baddr", "bank", "mixture"], choices=AGENTS)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    baddr.compile_small_loops()
    blocks = [(low, min(high, options.episodes)) for low, high in BLOCKS if low <= options.episodes]
    print(f"{'':14s} {'':10s} " + " ".join(f"{f'{low}-{high}':>16s}" for low, high in blocks))
    for case in CASES if options.case == "all" else [options.case]:
        domain = with_presets(CASES[case]())
        for agent in options.agents:
            sizes = {"runs": options.runs, "episodes": options.episodes, "seed": options.seed}
            table = baddr.run(domain, agent, **sizes)
            G = np.asarray(table["discounted_return"]).reshape(options.runs, options.episodes)
            means = [G[:, low - 1 : high].mean(1) for low, high in blocks]
            cells = [f"{x.mean():8.2f} ± {x.std(ddof=1) / np.sqrt(len(x)):.2f}" for x in means]
            print(f"{case:14s} {agent:10s} " + " ".join(f"{cell:>16s}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
