#| # Comparing agents honestly
#|
#| An episode of tiger is worth 10 or −100, less the price of listening. The mean of a few runs says little,
#| and it is easy to believe it. Here are two agents that we know well: BADDr with one network, and POMCP,
#| which plans on the true model and is an upper bound. `docs/data` has 256 runs of each, of 400 episodes.
#| BADDr was trained eight times, and the 32 runs of a training (an *ensemble*) all start from its network.
import numpy as np
import pyarrow.parquet as pq

from baddr.lab.statistics import over_runs, per_run
from baddr.paper.claims import Claim, Data
from baddr.paper.returns import difference

table = pq.read_table("docs/data/figure-a.parquet")
columns = {name: table[name].to_numpy() for name in table.column_names}


def results(curve):
    """For each training of an agent (`seed`) the table of its result folder."""
    mine = {name: column[columns["curve"] == curve] for name, column in columns.items()}
    seeds = np.unique(mine["seed"])
    return {seed: {name: column[mine["seed"] == seed] for name, column in mine.items()} for seed in seeds}


tables = {curve: results(curve) for curve in ("pomcp", "baddr")}
returns = {
    curve: np.concatenate([per_run(one, "discounted_return") for one in trained.values()])
    for curve, trained in tables.items()
}
for curve, of_runs in returns.items():
    print(f"{curve:6s} last 100 episodes: {over_runs(of_runs[:, -100:].mean(axis=1))}")
#| BADDr is clearly below its bound. What would a few runs, and their last ten episodes, have told? We draw
#| them again and again, and count how often BADDr looks better than a bound that it cannot pass.
generator = np.random.default_rng(0)
for n in (1, 4, 16, 64):
    pick = lambda: generator.choice(256, size=n, replace=False)
    last = lambda curve: returns[curve][pick(), -10:].mean()
    wrong = np.mean([last("baddr") > last("pomcp") for _ in range(1000)])
    print(f"{n:2d} runs each: BADDr looks better in {100 * wrong:.0f} % of the draws")
#| So: intervals, always. `baddr compare` prints them, over runs, and compares run by run where two results
#| share their seeds.
#|
#| But intervals of what? Runs that share a network share its luck. Here is BADDr's mean for each training:
for seed, one in tables["baddr"].items():
    print(f"training {seed}: {over_runs(per_run(one, 'discounted_return')[:, -100:].mean(axis=1))}")
means = [per_run(one, "discounted_return")[:, -100:].mean() for one in tables["baddr"].values()]
print(f"over trainings: {over_runs(np.array(means))}")
#| The eight differ by little more than chance, and the interval over them is not much wider. But nobody can
#| know that from one training, however many runs it has. So `baddr reproduce` resamples trainings, and gives
#| a verdict only from a size at which "held" is wrong in at most 5 of 100 cases.
says, measure = "BADDr stays below its bound", difference("baddr", "pomcp", "last")
claim = Claim(says, measure, "", at_most=0.0, after=400)
for n in (2, 4, 8):
    few = dict(list(tables["baddr"].items())[:n])
    found = claim.measure(Data({"baddr": few, "pomcp": tables["pomcp"]}, {}))
    value, low, high = found.estimate
    why = claim.too_small(found)
    verdict = claim.verdict(found) + f" ({why})" * bool(why)
    print(f"{n} trainings: {value:.2f} [{low:.2f}, {high:.2f}]: {verdict}")
#| Rules that follow:
#|
#| 1. Fix the number of runs before you look. Adding runs until it fits is no evidence.
#| 2. Resample what varies: runs, or trainings where runs share networks.
#| 3. Say what would be a failure before you run ([verdicts](../reproduce.md#verdicts)).
#| 4. What is rare and terrible must be in the interval even if it did not happen.
#| 5. Put a reference beside it: `baddr plot DIR --reference all` draws what planning with the prior only
#|    and planning on the truth are worth.
