#| # Comparing agents honestly
#|
#| One episode of tiger is worth 10, or −100. Averages of few runs say little, and it is easy to believe
#| them. Here are two agents of which we know the truth well, as 256 runs of 400 episodes each are kept in
#| `docs/data`: BADDr with one network, and POMCP, which plans on the true model and is an upper bound.
import numpy as np
import pyarrow.parquet as pq

from baddr.lab.statistics import compare
from baddr.paper.claims import Claim, Data
from baddr.paper.returns import difference

table = pq.read_table("docs/data/figure-a.parquet")
columns = {name: table[name].to_numpy() for name in table.column_names}


def returns_of(curve):
    """Discounted returns by run and episode."""
    mine = columns["curve"] == curve
    order = np.lexsort((columns["episode"][mine], columns["run"][mine], columns["seed"][mine]))
    return columns["discounted_return"][mine][order].reshape(-1, 400)


def results(returns):
    """As the table of a result folder."""
    run, episode = np.indices(returns.shape)
    return {"run": run.ravel(), "episode": episode.ravel(), "discounted_return": returns.ravel()}


curves = {name: returns_of(name) for name in ("pomcp", "baddr")}
for name, row in compare({name: results(x) for name, x in curves.items()}, 100, None, 1).items():
    print(f"{name:6s} last 100 episodes: {row['final']}")
#| BADDr is clearly below its bound. What would a few runs, and their last ten episodes, have told? We draw
#| them again and again, and count how often BADDr looks better than a bound that it cannot pass.
generator = np.random.default_rng(0)
for n in (1, 4, 16, 64):
    pick = lambda: generator.choice(256, size=n, replace=False)
    last = lambda name: curves[name][pick(), -10:].mean()
    wrong = np.mean([last("baddr") > last("pomcp") for _ in range(1000)])
    print(f"{n:2d} runs each: BADDr looks better in {100 * wrong:.0f} % of the draws")
#| So: intervals, always. `baddr compare` prints them, over runs, and compares run by run where two results
#| share their seeds. `baddr reproduce` goes further: a claim gets a verdict only from a size at which
#| "held" is wrong in at most 5 of 100 cases.
claim = Claim("BADDr stays below its bound", difference("baddr", "pomcp", "last"), "", at_most=0.0, after=400)
for n in (4, 16, 256):
    some = {name: {0: results(x[:n])} for name, x in curves.items()}
    found = claim.measure(Data(some, {}))
    value, low, high = found.estimate
    why = claim.too_small(found)
    print(f"{n} runs: {value:.2f} [{low:.2f}, {high:.2f}]: {claim.verdict(found)}", f"({why})" * bool(why))
#| Rules that follow:
#|
#| 1. Fix the number of runs before you look; more runs until it fits is no evidence.
#| 2. Resample what varies: runs, or ensembles where runs share trained networks.
#| 3. Say what would be a failure before you run ([verdicts](../reproduce.md#verdicts)).
#| 4. What is rare and terrible must be in the interval even if it did not happen.
#| 5. Put a reference beside it: `baddr plot DIR --reference all` draws what planning with the prior only
#|    and planning on the truth are worth.
