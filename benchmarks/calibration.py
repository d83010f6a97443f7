"""Is the truth where beliefs say that it is? In how many runs their 90 % interval holds it.

    python benchmarks/calibration.py DIR [DIR ...] [--episode N]

Reads results of `baddr run`: after their last episode (or after episode N, from 1 on), for each thing that
the domain describes by mean and standard deviation, the runs whose 90 % interval holds the truth; apart for
what a run saw and for what it never saw (columns NAME_seen_I). The interval is that of the Beta distribution
with this mean and standard deviation, and of the normal one for what is no probability. What is calibrated
is inside in 90 of 100 runs. Results to read, of 100 runs each:

    baddr run tiger --agent latent --runs 100 --episodes 40 --out tiger-latent
    baddr run tiger --agent bank --runs 100 --episodes 40 --out tiger-bank
    baddr run tiger --agent ba-pomcp --runs 100 --episodes 40 --out tiger-counts
    baddr run tiger --agent baddr --runs 100 --episodes 40 --out tiger-baddr
    baddr run road-racing --agent fba-pomcp --factored.tables --runs 100 --out road-tables
    baddr run road-racing --agent latent --runs 100 --out road-latent

Expected models (ba-pomcp on other domains, fba-pomcp without tables) leave out what a particle itself does
not know: theirs are not intervals of the belief.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm

from baddr.domains.catalog import entry
from baddr.files.store import Folder, load_results
from baddr.lab.columns import MEAN, SEEN, STD, entries, stems
from baddr.lab.experiment import of_folder
from baddr.lab.statistics import per_run

MASS = 0.9


class Inside(NamedTuple):
    """Of some pairs of a run and an entry: how many intervals hold the truth, of how many."""

    inside: int
    number: int

    def __str__(self) -> str:
        share = f"{100 * self.inside / self.number:4.0f} %" if self.number else "      "
        return f"{self.inside:5d} of {self.number:5d} {share}"


def interval(mean: np.ndarray, std: np.ndarray, probability: bool) -> tuple[np.ndarray, np.ndarray]:
    """Central, of the distribution with these moments."""
    tail = (1 - MASS) / 2
    wide = norm.ppf(tail) * std
    low, high = mean + wide, mean - wide
    if not probability:
        return low, high
    total = mean * (1 - mean) / np.maximum(std, 1e-12) ** 2 - 1
    fits = (total > 0) & (mean > 0) & (mean < 1)
    a, b = np.where(fits, mean * total, 1), np.where(fits, (1 - mean) * total, 1)
    return np.where(fits, beta.ppf(tail, a, b), low), np.where(fits, beta.ppf(1 - tail, a, b), high)


def coverage(folder: Path, episode: int) -> dict[str, tuple[Inside, Inside]]:
    """For each quantity: of what was seen, and of what never was."""
    columns, experiment = load_results(folder), of_folder(Folder(folder))
    names, found = entry(experiment.name).names(experiment.domain), {}
    for stem in stems(columns):
        quantity, parts = names.quantity(stem), [entries(columns, stem, part) for part in (MEAN, STD, SEEN)]
        if not quantity.truth or not all(parts):
            continue
        mean, std, seen = (
            np.stack([per_run(columns, name)[:, episode] for name in part], axis=1) for part in parts
        )
        truth = np.array([quantity.true_value(i) for i in range(mean.shape[1])])
        low, high = interval(mean, std, bool(np.all((truth >= 0) & (truth <= 1))))
        holds = (low <= truth[None]) & (truth[None] <= high)
        count = lambda which, holds=holds: Inside(int(holds[which].sum()), int(which.sum()))
        found[stem] = count(seen > 0), count(seen == 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--episode", type=int, default=0, help="from 1 on; the last if left out")
    options = parser.parse_args()
    for folder in options.folders:
        if options.episode > int(load_results(folder)["episode"].max()) + 1:
            parser.error(f"{folder} has no episode {options.episode}.")
    print(f"{'':40s} {'inside, of what was seen':24s}   of what never was")
    for folder in options.folders:
        for stem, (seen, never) in coverage(folder, options.episode - 1).items():
            print(f"{folder.name + ': ' + stem:40s} {seen!s:24s}   {never}")


if __name__ == "__main__":
    main()
