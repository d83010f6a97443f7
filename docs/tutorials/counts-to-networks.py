#| # From counts to networks
#|
#| A belief over models needs a family p(D; θ) and an update of θ. BA-POMDP has tables of counts: exact, but
#| a table has a number for each (s, a, s′). BADDr has dropout networks: θ is their weights, a draw of D is
#| a dropout mask, and the update is a step of gradient descent on what was just seen. The filter and the
#| planner are the same for both; only the posterior differs.
import baddr

baddr.compile_small_loops()  # before JAX first computes: searches are ten times as fast
small = {"filter.num_particles": 128, "filter.resample_below": 16.0, "planner.num_particles": 64}
sizes = {"runs": 12, "episodes": 8, **small}


def believed(table, runs=12):
    """The hearing that is believed after each episode, the mean over both doors and all runs."""
    both = (table["accuracy_mean_0"] + table["accuracy_mean_1"]) / 2
    return both.reshape(runs, -1).mean(axis=0)


counts = baddr.run("tiger", "ba-pomcp", **sizes)
print("counts:  ", " ".join(f"{x:.2f}" for x in believed(counts)))
#| The prior says .625, the truth is .85, and a table of two rows gets there quickly. Now the same with
#| networks. They are first trained on simulators that are drawn from the same prior, so that they start
#| where the counts do; eight of them, shared among the particles.
networks = baddr.run("tiger", "baddr", **sizes, **{"pretrain.batches": 2048})
print("networks:", " ".join(f"{x:.2f}" for x in believed(networks)))
#| They learn more slowly: a gradient step is not Bayes' rule. What they are for is what no table holds. A
#| table for road racing with nine lanes has 4 × 10⁹ counts for each particle; the same networks have some
#| thousand weights ([road racing](../domains/road-racing.md)).
#|
#| How far an update is from Bayes' rule can be measured (Def. 3 of the paper): `baddr check tiger
#| --posterior FILE.py:NAME` does it for a posterior of your own, and [the paper, in code](../paper.md) says
#| where each equation lives.
#|
#| Next: [your own simulator in 40 lines](own-simulator.md).
