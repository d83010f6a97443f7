"""Learning curves and throughput of DPFRL (or A2C with a GRU): many seeds at once, learning rate x particles.

    python benchmarks/dpfrl.py tiger --seeds 8 --learning-rates 1e-4 3e-4 1e-3 --particles 15 30 45
    python benchmarks/dpfrl.py road-racing --set lanes=9 --agent a2c --seconds 300

For each pair it prints how fast it went, and the median over seeds of the mean discounted return of training
episodes, block by block. Episodes are counted over all actors of a seed. `--out FILE.npz` keeps every return.
"""

import argparse
import ast
import itertools
import os
import time
from dataclasses import replace
from typing import Any

import jax
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.baselines import A2C, Learner, advance, evaluate, start
from baddr.experiments.build import build_domain
from baddr.experiments.catalog import DOMAINS, nearest
from baddr.experiments.experiment import preset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("domain", nargs="?", default="tiger")
    parser.add_argument("--agent", choices=["dpfrl", "a2c"], default="dpfrl")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of the domain")
    parser.add_argument("--dpfrl", nargs="*", default=[], metavar="NAME=VALUE", help="of the learner")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=40_000, help="per seed, over all its actors")
    parser.add_argument("--learning-rates", type=float, nargs="*", help="default: the paper's best")
    parser.add_argument("--particles", type=int, nargs="*", help="default: the paper's best")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most, for each pair")
    parser.add_argument("--block", type=int, default=50, help="updates per compiled call")
    parser.add_argument("--points", type=int, default=20, help="of the curve")
    parser.add_argument("--out", help="an .npz file for all returns")
    return parser.parse_args()


def assignments(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE as Python values; what is not one is a string."""

    def value(text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    return {name: value(text) for name, _, text in (pair.partition("=") for pair in pairs)}


def train(agent: A2C, options: argparse.Namespace) -> tuple[Learner, list[np.ndarray], list[np.ndarray], str]:
    """The learners, each seed's discounted returns and lengths in order, and how fast it went."""
    learner = start(jr.split(prng.key(options.seed), options.seeds), agent)
    returns: list[list[np.ndarray]] = [[] for _ in range(options.seeds)]
    lengths: list[list[np.ndarray]] = [[] for _ in range(options.seeds)]
    began = time.perf_counter()
    jax.block_until_ready(advance(learner, agent, options.block))  # compiles; its result is thrown away
    compiled = time.perf_counter()
    updates = 0
    while int(np.min(learner.episode)) < options.episodes and not np.all(learner.failed):
        learner, episodes = advance(learner, agent, options.block)
        episodes = jax.device_get(episodes)
        for i, ended in enumerate(episodes.ended):
            returns[i].append(episodes.discounted_return[i][ended])
            lengths[i].append(episodes.length[i][ended])
        updates += options.block
        if time.perf_counter() - compiled > options.seconds:
            break
    seconds = time.perf_counter() - compiled
    settings, seeds = agent.settings, options.seeds
    steps = updates * seeds * settings.sample_length * settings.actors
    speed = (
        f"compiled in {compiled - began:.0f} s; {updates} updates x {seeds} seeds in {seconds:.0f} s: "
        f"{updates * seeds / seconds:.1f} updates/s, {steps / seconds:.0f} steps/s, "
        f"{int(np.sum(learner.episode)) / seconds:.0f} episodes/s"
    )
    return learner, [np.concatenate(x) for x in returns], [np.concatenate(x) for x in lengths], speed


def report(returns: list[np.ndarray], lengths: list[np.ndarray], options: argparse.Namespace) -> None:
    """The curve: medians over seeds of each block's mean, and the quartiles."""
    count = min(options.episodes, *(len(x) for x in returns))
    size = max(1, count // options.points)
    print(f"    {'episodes':>15s} {'median':>9s} {'25 %':>9s} {'75 %':>9s} {'length':>7s}")
    for first in range(0, count - size + 1, size):
        means = [x[first : first + size].mean() for x in returns]
        low, middle, high = np.quantile(means, [0.25, 0.5, 0.75])
        length = np.median([x[first : first + size].mean() for x in lengths])
        block = f"{first + 1}-{first + size}"
        print(f"    {block:>15s} {middle:9.3f} {low:9.3f} {high:9.3f} {length:7.2f}")


def evaluation(agent: A2C, learner: Learner, options: argparse.Namespace, greedy: bool) -> str:
    keys = jr.split(prng.key(options.seed + 1), options.seeds)
    episodes = jax.device_get(evaluate(keys, learner, agent, 16, greedy))
    means = [r[ended].mean() for r, ended in zip(episodes.discounted_return, episodes.ended, strict=True)]
    policy = "greedy" if greedy else "sampled"
    return f"{policy} {np.median(means):.3f} ({np.min(means):.3f} to {np.max(means):.3f})"


def main() -> None:
    options = arguments()
    entry = DOMAINS[nearest("domain", options.domain, DOMAINS)]
    changes = assignments(options.set)
    experiment = preset(options.domain, options.agent, "paper", replace(entry.settings, **changes))
    experiment = replace(experiment, domain=replace(experiment.domain, **changes))
    best = replace(experiment.dpfrl, **assignments(options.dpfrl))
    rates = options.learning_rates or [best.learning_rate]
    particles = options.particles or [best.num_particles]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{jax.devices()[0].device_kind}, {cores} core(s), load {load:.1f}, jax {jax.__version__}")
    print(f"{options.agent} on {experiment.domain}")
    kept: dict[str, np.ndarray] = {}
    for lr, K in itertools.product(rates, particles if options.agent == "dpfrl" else particles[:1]):
        dpfrl = replace(best, learning_rate=lr, num_particles=K)
        if problems := dpfrl.problems():
            raise SystemExit("; ".join(problems))
        agent = A2C(build_domain(experiment).pomdp, dpfrl, particles=options.agent == "dpfrl")
        learner, returns, lengths, speed = train(agent, options)
        print(f"\nlearning rate {lr:g}" + (f", {K} particles" if agent.particles else "") + f": {speed}")
        report(returns, lengths, options)
        policies = [evaluation(agent, learner, options, greedy) for greedy in (False, True)]
        fewest = int(np.min(learner.episode))
        print(f"    after at least {fewest} episodes: {'; '.join(policies)}", flush=True)
        kept |= {f"lr{lr:g}-K{K}-seed{i}": x for i, x in enumerate(returns)}
        if options.out:
            np.savez_compressed(options.out, **kept)


if __name__ == "__main__":
    main()
