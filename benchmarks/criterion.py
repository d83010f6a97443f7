"""How far BADDr's networks are from exact Bayesian learning: the gap of Def. 3 on tiger.

    python benchmarks/criterion.py

Trains a prior on tiger's expected model for several dropout rates, feeds it histories of n correct listens
with the state known, and prints the largest difference between its prediction and that of the Dirichlet
prior that it stands for, for several online learning rates. U and the predictive are averaged over keys.
"""

import numpy as np

from baddr import prng
from baddr.core import exact
from baddr.domains import tiger
from baddr.fast.pretrain import pretrain
from baddr.posteriors import Dropout
from baddr.posteriors.settings import Network, Pretrain

LISTENS = (0, 1, 4, 16)
NUM_KEYS = 64


def main() -> None:
    domain = tiger.make_domain()
    T, O = (np.asarray(x, np.float64) for x in domain.counts)
    reference = exact.DirichletTables(T, O)
    histories = {n: [(s, ((tiger.LISTEN, s, s),) * n) for s in (0, 1)] for n in LISTENS}
    print(f"{'dropout':>8s} {'rate':>6s} " + " ".join(f"{n:4d} listens" for n in LISTENS))
    for dropout in (0.0, 0.1, 0.5):
        network = Network(dropout=dropout)
        trained, _ = pretrain(prng.key(0), tiger.dynamics(0.625), domain.pomdp, network, Pretrain())
        for rate in (0.005, 0.02, 0.05):
            architecture = trained.architecture._replace(network=Network(dropout=dropout, learning_rate=rate))
            posterior = exact.Tabulated(Dropout(trained.ensemble, architecture), domain.pomdp, NUM_KEYS)
            gaps = [exact.update_criterion_gap(posterior, reference.evidence, histories[n]) for n in LISTENS]
            print(f"{dropout:8.2f} {rate:6.3f} " + " ".join(f"{gap:12.3f}" for gap in gaps), flush=True)


if __name__ == "__main__":
    main()
