"""What factored beliefs say of an unknown structure, beside the posterior of the same histories.

    python benchmarks/structures.py [--runs 64] [--episodes 140] [--structures matched uncertain]

FBA-POMCP lives on factored tiger with two irrelevant features, with `--filter.rejuvenate` and without it.
Of every run with moves, the probability of the true parents after its last episode is compared with the
posterior given all that it heard. What is heard in an episode has the probability of a mixture: each row of
the node (each value of its parents) is as likely to be the state's, and has an accuracy of its own. With one
parent at most the integral over accuracies is computed by quadrature. With two or three it is estimated by
sequential Monte Carlo over accuracies, which sums the states out and moves by Gibbs sweeps; its own error is
shown for one parent, where both are known.
"""

import argparse
import math
import multiprocessing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from baddr import compile_small_loops
from baddr.agents.life import BayesianLife, run_keys
from baddr.domains.factored_tiger.settings import FactoredTigerSettings
from baddr.lab.build import build_agent, build_domain
from baddr.lab.experiment import preset
from baddr.posteriors.settings import FactoredSettings

LISTEN, IRRELEVANT = 2, 2
DOOR = (np.array([5.0, 3.0]), np.array([3.0, 5.0]))  # counts of a row, for each good door
NO_DOOR = (np.array([4.0, 4.0]),)
BLOCKS = [(1, 10), (11, 50), (51, 100), (101, 140)]
NODES = 240  # of the quadrature, for each accuracy
SWEEPS = 2  # at each resampling


class Lives(NamedTuple):
    """Of all runs of an experiment."""

    returns: np.ndarray  # discounted, runs x episodes
    sounds: np.ndarray  # how often each was heard: runs x episodes x 2
    true_structure: np.ndarray  # believed after the last episode, of each run


def live(structure: Any, rejuvenate: bool, options: argparse.Namespace) -> Lives:
    runs, episodes = options.runs, options.episodes
    experiment = preset("factored-tiger", "fba-pomcp", "paper", FactoredTigerSettings(irrelevant=IRRELEVANT))
    groups = experiment.settings.groups()
    experiment = experiment.changed(
        factored=FactoredSettings(structure=structure),
        filter=replace(groups["filter"], rejuvenate=rejuvenate, num_particles=options.particles),
        planner=replace(groups["planner"], num_simulations=options.simulations),
    )
    domain = build_domain(experiment)
    life = BayesianLife(build_agent(experiment, domain), domain.pomdp)
    now = life.start(run_keys(jnp.int32(0), options.seed, runs))
    advance = eqx.filter_jit(lambda life, now: life.advance(now, jnp.int32(episodes)))
    returns, sounds = np.zeros((runs, episodes)), np.zeros((runs, episodes, 2), int)
    true = np.zeros(runs)
    while np.any(np.asarray(now.episode) < episodes):
        now, step = advance(life, now)
        a, o, episode, ended = (np.asarray(x)[0] for x in (step.a, step.o, step.episode, step.ended))
        heard = np.flatnonzero(np.asarray(step.active)[0] & (a == LISTEN))
        sounds[heard, episode[heard], o[heard, 0]] += 1
        over = np.flatnonzero(ended)
        returns[over, episode[over]] = np.asarray(step.tally.discounted_return)[0, over]
        true[over] = np.asarray(step.model["true_structure"])[0, over]
    return Lives(returns, sounds, true)


# The posterior of a structure.


def rows_of(door: bool, others: int) -> np.ndarray:
    """The prior's counts of each row of a node with so many parents beside the door."""
    return np.repeat(np.stack(DOOR if door else NO_DOOR), 2**others, axis=0)


def log_sum(x: np.ndarray) -> np.ndarray:
    """log of the sum of exponentials over the last axis."""
    most = x.max(axis=-1)
    return most + np.log(np.exp(x - most[..., None]).sum(axis=-1))


def log_likelihood(sounds: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """log p(the sounds of an episode | p(left) of every row), up to a constant; rows are the last axis."""
    each = sounds[0] * np.log(accuracy) + sounds[1] * np.log1p(-accuracy)
    return log_sum(each) - math.log(accuracy.shape[-1])


def by_quadrature(sounds: np.ndarray, prior: np.ndarray) -> float:
    """log p(all sounds | structure) of a node with one or two rows."""
    x, weight = np.polynomial.legendre.leggauss(NODES)
    x, weight = (x + 1) / 2, weight / 2
    grids = np.meshgrid(*[x] * len(prior), indexing="ij")
    accuracy, total = np.stack(grids, axis=-1), 0.0
    for i, (left, right) in enumerate(prior):
        log_beta = math.lgamma(left) + math.lgamma(right) - math.lgamma(left + right)
        log_p = (left - 1) * np.log(grids[i]) + (right - 1) * np.log1p(-grids[i]) - log_beta
        total = total + log_p + np.log(np.meshgrid(*[weight] * len(prior), indexing="ij")[i])
    for kind, number in zip(*np.unique(sounds, axis=0, return_counts=True), strict=True):
        total = total + number * log_likelihood(kind, accuracy)
    return float(log_sum(np.ravel(total)))


def by_sampling(sounds: np.ndarray, prior: np.ndarray, n: int, rng: np.random.Generator) -> float:
    """The same for any number of rows: particles are accuracies, weighed episode by episode and moved."""
    accuracy, log_w, total = rng.beta(*prior.T, size=(n, len(prior))), np.zeros(n), 0.0
    for t, heard in enumerate(sounds):
        log_w = log_w + log_likelihood(heard, accuracy)
        w = np.exp(log_w - log_w.max())
        if np.sum(w) ** 2 < n / 2 * np.sum(w**2):
            total += log_sum(log_w) - math.log(n)
            comb = (np.arange(n) + rng.random()) / n
            chosen = np.minimum(np.searchsorted(np.cumsum(w) / np.sum(w), comb), n - 1)
            accuracy, log_w = accuracy[chosen], np.zeros(n)
            for _ in range(SWEEPS):
                accuracy = swept(accuracy, sounds[: t + 1], prior, rng)
    return float(total + log_sum(log_w) - math.log(n))


def swept(
    accuracy: np.ndarray, sounds: np.ndarray, prior: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A Gibbs sweep: whose row each episode is, given accuracies; then accuracies, given their counts."""
    counts = np.broadcast_to(prior, (*accuracy.shape, 2)).copy()
    for kind, number in zip(*np.unique(sounds, axis=0, return_counts=True), strict=True):
        each = kind[0] * np.log(accuracy) + kind[1] * np.log1p(-accuracy)
        p = np.exp(each - each.max(axis=-1, keepdims=True))
        rows = rng.multinomial(number, p / p.sum(axis=-1, keepdims=True))
        counts += rows[..., None] * kind
    return np.clip(rng.beta(counts[..., 0], counts[..., 1]), 1e-9, 1 - 1e-9)


def posterior(structure: str, n: int, sounds: np.ndarray) -> tuple[float, float]:
    """P(the door alone is the parent | sounds), edges as likely as not; and the error of log p by sampling,
    where quadrature knows better."""
    rng, doors = np.random.default_rng(0), (True,) if structure == "matched" else (True, False)
    log_p, log_true = [], by_quadrature(sounds, rows_of(True, 0))
    for door in doors:
        for others in range(IRRELEVANT + 1):
            prior = rows_of(door, others)
            exact = len(prior) <= 2
            found = by_quadrature(sounds, prior) if exact else by_sampling(sounds, prior, n, rng)
            log_p.append(found + math.log(math.comb(IRRELEVANT, others)))
    error = by_sampling(sounds, rows_of(True, 0), n, rng) - log_true
    return math.exp(log_true - float(log_sum(np.array(log_p)))), error


def mean_and_error(values: np.ndarray) -> str:
    return f"{values.mean():7.3f} +- {values.std(ddof=1) / math.sqrt(len(values)):.3f}"


def report(structure: str, options: argparse.Namespace) -> None:
    lives = {moves: live(structure, moves, options) for moves in (True, False)}
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        found = np.array(pool.map(partial(posterior, structure, options.reference), lives[True].sounds))
    believed, wanted = lives[True].true_structure, found[:, 0]
    off = believed - wanted
    print(f"{structure}: P(true parents) after {options.episodes} episodes")
    print(f"  with moves {mean_and_error(believed)}, posterior {mean_and_error(wanted)}")
    print(f"  difference {mean_and_error(off)}, root mean square {np.sqrt(np.mean(off**2)):.3f}")
    print(f"  runs within .05: {np.mean(np.abs(off) <= 0.05):.2f}; error of log p {found[:, 1].std():.3f}")
    print(f"  without moves {mean_and_error(lives[False].true_structure)}")
    for first, last in [(a, b) for a, b in BLOCKS if b <= options.episodes]:
        both = [lives[moves].returns[:, first - 1 : last].mean(axis=1) for moves in (True, False)]
        text = [mean_and_error(x) for x in (*both, both[0] - both[1])]
        print(f"  return {first}-{last}: with moves {text[0]}, without {text[1]}, difference {text[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--episodes", type=int, default=140)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--particles", type=int, default=1024)
    parser.add_argument("--simulations", type=int, default=4096)
    parser.add_argument("--reference", type=int, default=4096, help="particles of the posterior")
    parser.add_argument("--workers", type=int, default=None, help="processes; all cores if left out")
    parser.add_argument("--structures", nargs="+", default=["matched", "uncertain"])
    options = parser.parse_args()
    compile_small_loops()
    for structure in options.structures:
        report(structure, options)


if __name__ == "__main__":
    main()
