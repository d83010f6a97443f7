"""What the factored BA-POMDP learns: structures on factored tiger, and the published program's curves.

    python benchmarks/factored.py structure [--runs 32] [--episodes 150]
    python benchmarks/factored.py factored-tiger [--runs 40] [--episodes 400]
    python benchmarks/factored.py collision-avoidance [--runs 210] [--episodes 500]

`structure` compares agents on factored tiger with two irrelevant features: one that knows the structure, one
that does not, and one that takes all edges for granted. The other two put our learning curves beside those of
the published C++ program (tests/data/published_curves.json), with its settings: the steps that end episodes
are not learned from.
"""

import argparse
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from baddr.core.filters import Importance, Rejection
from baddr.domains.collision_avoidance.settings import CollisionAvoidanceSettings
from baddr.domains.factored_tiger.settings import FactoredTigerSettings
from baddr.files.store import Folder, load_results
from baddr.lab import runner
from baddr.lab.experiment import AnyExperiment, preset
from baddr.posteriors.settings import FactoredSettings

TESTS = Path(__file__).parent.parent / "tests"
PUBLISHED = json.loads((TESTS / "data" / "published_curves.json").read_text())
BLOCKS = [(1, 10), (11, 25), (26, 50), (51, 100), (101, 150)]


def episodes_of(experiment: AnyExperiment, seed: int) -> dict[str, np.ndarray]:
    """Columns of the results, as runs x episodes."""
    experiment = replace(experiment, seed=seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = Folder(Path(directory) / "results")
        runner.start(experiment, folder, lambda *_: None)
        table = load_results(folder.path)
    shape = experiment.runs, experiment.episodes
    return {name: column.reshape(shape) for name, column in table.items()}


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Over runs: each run's mean over the block is one number."""
    per_run = values.mean(axis=1)
    return float(per_run.mean()), float(per_run.std(ddof=1) / math.sqrt(len(per_run)))


def structure(options: argparse.Namespace) -> None:
    for name in options.structures:
        experiment = preset("factored-tiger", "fba-pomcp", "paper", FactoredTigerSettings(irrelevant=2))
        experiment = replace(experiment, runs=options.runs, episodes=options.episodes)
        experiment = experiment.changed(factored=FactoredSettings(structure=name))
        columns = episodes_of(experiment, options.seed)
        learns = name in ("uncertain", "matched")
        print(f"structure {name}: discounted return" + ", P(true parents)" * learns)
        for first, last in [(a, b) for a, b in BLOCKS if b <= options.episodes]:
            block = slice(first - 1, last)
            line = "  {:>3d}-{:<3d} {:8.2f} +- {:.2f}".format(
                first, last, *mean_and_error(columns["discounted_return"][:, block])
            )
            if learns:
                line += "   {:.3f} +- {:.3f}".format(*mean_and_error(columns["true_structure"][:, block]))
            print(line, flush=True)
        if learns:
            last = columns["true_structure"][:, -1]
            settled = np.mean(last > 0.5)
            print(f"  after the last episode {last.mean():.3f} (prior .125); {settled:.2f} of runs above .5")


def curve(experiment: AnyExperiment, published: dict[str, list[float]], options: argparse.Namespace) -> None:
    experiment = replace(experiment, runs=options.runs, episodes=options.episodes)
    columns = episodes_of(experiment, options.seed)
    print("episodes      ours            published       difference in standard errors")
    for block, (theirs, error) in published.items():
        first, last = map(int, block.split("-"))
        if last <= options.episodes:
            ours, se = mean_and_error(columns["discounted_return"][:, first - 1 : last])
            z = (ours - theirs) / math.hypot(se, error)
            print(
                f"{block:>8s} {ours:9.2f} +- {se:<6.2f} {theirs:9.2f} +- {error:<6.2f} {z:6.1f}", flush=True
            )


def factored_tiger(options: argparse.Namespace) -> None:
    experiment = preset("factored-tiger", "fba-pomcp", "paper", FactoredTigerSettings(irrelevant=1))
    experiment = experiment.changed(filter=Rejection(num_particles=1024, learn_terminal=False))
    curve(experiment, PUBLISHED["factored_tiger_1_irrelevant_true_structure_fba_pomcp_rs_40_runs"], options)


def collision_avoidance(options: argparse.Namespace) -> None:
    experiment = preset("collision-avoidance", "fba-pomcp", "paper", CollisionAvoidanceSettings())
    # The published filter resamples at every step, by independent draws.
    published = Importance(128, 129.0, resampling=options.resampling, learn_terminal=False)
    experiment = experiment.changed(filter=published)
    curve(experiment, PUBLISHED["collision_avoidance_5x5_fba_pomcp_210_runs"], options)


STUDIES = {
    "structure": (structure, 32, 150),
    "factored-tiger": (factored_tiger, 40, 400),
    "collision-avoidance": (collision_avoidance, 210, 500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resampling", choices=["systematic", "independent"], default="independent")
    parser.add_argument("--structures", nargs="+", default=["true", "uncertain", "matched", "full"])
    options = parser.parse_args()
    study, runs, episodes = STUDIES[options.study]
    options.runs, options.episodes = options.runs or runs, options.episodes or episodes
    study(options)


if __name__ == "__main__":
    main()
