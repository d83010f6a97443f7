"""Learning curves and throughput of DPFRL (or A2C with a GRU): many seeds at once, learning rate x particles.

    python benchmarks/dpfrl.py tiger --seeds 8 --learning-rates 1e-4 3e-4 1e-3 --particles 15 30 45
    python benchmarks/dpfrl.py road-racing --set lanes=9 --agent a2c --seconds 300

For each number of particles, all learning rates and seeds are trained as one program. For each pair it prints
the median over seeds of the mean discounted return of training episodes, block by block, and with `--level X`
when the mean of 1,000 episodes first reached X. Episodes are counted over all actors of a seed.
`--out FILE.npz` keeps every return. `--flops` prints what an update costs, and stops.
"""

import argparse
import ast
import os
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from baddr import prng
from baddr.agents.learners import A2C, Learner, advance, evaluate, start
from baddr.errors import nearest
from baddr.files.machine import num_cores
from baddr.lab.build import build_domain
from baddr.lab.catalog import DOMAINS
from baddr.lab.experiment import preset


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
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="at most, per number of particles"
    )
    parser.add_argument("--level", type=float, help="say when the mean of 1,000 episodes reaches this")
    parser.add_argument("--flops", action="store_true", help="what an update costs; nothing is run")
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


def flops(agent: A2C) -> float:
    """Of an update's large products, forward and back, in the mean over a window's positions.

    What a particle's step costs is h x 2h twice (gates, candidate) and h x F where there are heads; a
    product's way back costs two of it. Steps of the window before the sample go forward once, and once more
    and back on the way back; the sample's go forward and back, and one step ahead only forward.
    """
    settings = agent.settings
    n, m, h = settings.sample_length, settings.back_segments, settings.hidden
    rows = settings.actors * settings.num_particles
    cell, heads = 2 * rows * h * 4 * h, 2 * rows * h * settings.features
    before = n * (m - 1) / 2
    return before * 4 * cell + n * 3 * (cell + heads) + (cell + heads)


def train(
    agent: A2C, rates: list[float], options: argparse.Namespace
) -> tuple[Learner, list[np.ndarray], list[np.ndarray], str]:
    """The learners (all seeds of the first rate, then of the next), each one's discounted returns and lengths
    in order, and how fast it went."""
    seeds, count = options.seeds, options.seeds * len(rates)
    keys = jr.split(prng.key(options.seed), seeds)
    learner = start(keys[jnp.tile(jnp.arange(seeds), len(rates))], agent)
    learner = learner._replace(learning_rate=jnp.repeat(jnp.asarray(rates, jnp.float32), seeds))
    returns: list[list[np.ndarray]] = [[] for _ in range(count)]
    lengths: list[list[np.ndarray]] = [[] for _ in range(count)]
    started = time.perf_counter()
    jax.block_until_ready(advance(learner, agent, options.block))  # compiles; its result is thrown away
    compiled = time.perf_counter()
    updates = 0
    while np.any((np.asarray(learner.episode) < options.episodes) & ~np.asarray(learner.failed)):
        learner, episodes = advance(learner, agent, options.block)
        episodes = jax.device_get(episodes)
        for i, ended in enumerate(episodes.ended):
            returns[i].append(episodes.discounted_return[i][ended])
            lengths[i].append(episodes.length[i][ended])
        updates += options.block
        if time.perf_counter() - compiled > options.seconds:
            break
    seconds = time.perf_counter() - compiled
    steps = updates * count * agent.settings.sample_length * agent.settings.actors
    speed = (
        f"compiled in {compiled - started:.0f} s; {updates} updates x {count} learners in {seconds:.0f} s: "
        f"{updates * count / seconds:.1f} updates/s, {steps / seconds:.0f} steps/s, "
        f"{int(np.sum(learner.episode)) / seconds:.0f} episodes/s"
    )
    if agent.particles:
        speed += f", {1e-9 * flops(agent) * updates * count / seconds:.0f} Gflop/s"
    return learner, [np.concatenate(x) for x in returns], [np.concatenate(x) for x in lengths], speed


def first_at(returns: np.ndarray, level: float, window: int = 1000) -> float:
    """The episode at which the mean of the last `window` first reaches the level; infinity: never."""
    sums = np.cumsum(np.insert(returns.astype(np.float64), 0, 0.0))
    reached = np.flatnonzero(sums[window:] - sums[:-window] >= level * window)
    return float(reached[0] + window) if len(reached) else float("inf")


def report(returns: list[np.ndarray], lengths: list[np.ndarray], options: argparse.Namespace) -> None:
    """The curve: medians over seeds of each block's mean, and the quartiles."""
    count = min(options.episodes, *(len(x) for x in returns))
    size = max(1, count // options.points)
    if count == 0:
        return
    print(f"    {'episodes':>15s} {'median':>9s} {'25 %':>9s} {'75 %':>9s} {'length':>7s}")
    for first in range(0, count - size + 1, size):
        means = [x[first : first + size].mean() for x in returns]
        low, middle, high = np.quantile(means, [0.25, 0.5, 0.75])
        length = np.median([x[first : first + size].mean() for x in lengths])
        block = f"{first + 1}-{first + size}"
        print(f"    {block:>15s} {middle:9.3f} {low:9.3f} {high:9.3f} {length:7.2f}")


def evaluation(agent: A2C, learner: Learner, options: argparse.Namespace, greedy: bool) -> list[float]:
    """Each learner's mean discounted return, the policy sampled or greedy."""
    keys = jr.split(prng.key(options.seed + 1), len(learner.episode))
    episodes = jax.device_get(evaluate(keys, learner, agent, 16, greedy))
    rows = zip(episodes.discounted_return, episodes.ended, strict=True)
    return [float(r[ended].mean()) for r, ended in rows]


def main() -> None:
    options = arguments()
    entry = DOMAINS[nearest("domain", options.domain, DOMAINS)]
    changes = assignments(options.set)
    experiment = preset(options.domain, options.agent, "paper", replace(entry.settings, **changes))
    experiment = replace(experiment, domain=replace(experiment.domain, **changes))
    best = replace(experiment.settings.dpfrl, **assignments(options.dpfrl))
    rates = options.learning_rates or [best.learning_rate]
    particles = options.particles or [best.num_particles]
    cores, load = num_cores(), os.getloadavg()[0]
    print(f"{jax.devices()[0].device_kind}, {cores} core(s), load {load:.1f}, jax {jax.__version__}")
    print(f"{options.agent} on {experiment.domain}")
    pomdp, kept = build_domain(experiment).pomdp, {}
    for K in particles if options.agent == "dpfrl" else particles[:1]:
        dpfrl = replace(best, num_particles=K)
        problems = [x for lr in rates for x in replace(dpfrl, learning_rate=lr).problems()]
        if problems:
            raise SystemExit("; ".join(problems))
        agent = A2C(pomdp, dpfrl, particles=options.agent == "dpfrl")
        memory = f"{K} particles" if agent.particles else "GRU"
        if options.flops:
            print(f"{memory}: {1e-9 * flops(agent):.2f} Gflop per update of one seed")
            continue
        learner, returns, lengths, speed = train(agent, rates, options)
        print(f"\n{memory}: {speed}")
        policies = {g: evaluation(agent, learner, options, g == "greedy") for g in ("sampled", "greedy")}
        for i, lr in enumerate(rates):
            of_rate = slice(i * options.seeds, (i + 1) * options.seeds)
            fewest = int(np.min(learner.episode[of_rate]))
            failed = int(np.sum(learner.failed[of_rate]))
            print(f"  learning rate {lr:g}: at least {fewest} episodes, {failed} seeds failed")
            report(returns[of_rate], lengths[of_rate], options)
            for policy, means in policies.items():
                low, middle, high = np.quantile(means[of_rate], [0, 0.5, 1])
                print(f"    {policy} policy in the end: {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)
            if options.level is not None:
                when = [first_at(x[: options.episodes], options.level) for x in returns[of_rate]]
                words = [f"{x:.0f}" if x < np.inf else "never" for x in (np.median(when), *when)]
                print(f"    reaches {options.level:g} at episode {words[0]} (seeds: {', '.join(words[1:])})")
            kept |= {f"lr{lr:g}-K{K}-seed{j}": x for j, x in enumerate(returns[of_rate])}
        if options.out:
            np.savez_compressed(options.out, **kept)


if __name__ == "__main__":
    main()
