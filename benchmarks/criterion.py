"""How far a posterior is from exact Bayesian learning: the gap of Def. 3 on tiger.

    python benchmarks/criterion.py [counts bank latent dropout]

Feeds it histories of n correct listens with the state known, and prints the largest difference between its
prediction and an exact one. Counts: of their Dirichlets. A bank: of Bayes' rule over its members, and of the
Dirichlets that these are drawn from. Dropout networks, trained on tiger's expected model: of the Dirichlet
prior that they stand for, for several dropout rates and online learning rates; U and the predictive are
averaged over keys. Latent: of its default settings, several trainings, averaged over keys, too.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from baddr import exact, prng
from baddr.domains import tiger
from baddr.fast.pretrain import pretrain, uniform_states
from baddr.fast.pretrain_latent import architecture_of, train
from baddr.planners.belief_tree.mean_model import observation_table, transition_table
from baddr.posteriors import Bank, Dirichlet, Dropout
from baddr.posteriors.bank import draw_bank
from baddr.posteriors.settings import LatentSettings, Network, Pretrain

LISTENS = (0, 1, 4, 16)
NUM_KEYS, TRAININGS = 64, 3
MANY_KEYS = 4096  # where a draw is z itself: 64 would be .02 off
MEMBERS = (64, 1024, 16384)
HISTORIES = {n: [(s, ((tiger.LISTEN, s, s),) * n) for s in (0, 1)] for n in LISTENS}
DOMAIN = tiger.make_domain()


class OfBank(exact.TabularPosterior):
    """A bank, whose prediction is the sum over its members and not a draw."""

    def __init__(self, bank: Bank):
        self.bank = bank
        self.update_ = jax.jit(lambda theta, *x: bank.update(prng.key(0), theta, *x))
        T = bank.each(lambda D: transition_table(DOMAIN.pomdp, D))
        O = bank.each(lambda D: observation_table(DOMAIN.pomdp, D))
        D = np.einsum("kasn,kasnz->ksanz", np.asarray(T, np.float64), np.asarray(O, np.float64))
        self.family = exact.Family(D, np.full(bank.num_members, 1 / bank.num_members))

    def prior(self):
        return {tuple(np.asarray(self.bank.prior(prng.key(0))).tolist()): 1.0}

    def predictive(self, theta):
        return np.einsum("k,ksanz->sanz", np.exp(theta), self.family.Ds)

    def update(self, theta, s, a, s_next, o):
        one = lambda x: jnp.array([x], jnp.int32)
        found = self.update_(jnp.asarray(theta), one(s), jnp.int32(a), one(s_next), one(o))
        return tuple(np.asarray(found).tolist())


def tell(name: str, posterior: exact.TabularPosterior, evidence: exact.Evidence) -> None:
    gaps = [exact.update_criterion_gap(posterior, evidence, HISTORIES[n]) for n in LISTENS]
    print(f"{name:32s} " + " ".join(f"{gap:12.2g}" for gap in gaps), flush=True)


def dirichlet() -> exact.DirichletTables:
    T, O = (np.asarray(x, np.float64) for x in DOMAIN.counts)
    return exact.DirichletTables(T, O)


def counts() -> None:
    posterior = Dirichlet(DOMAIN.counts, DOMAIN.pomdp.state_sizes, DOMAIN.pomdp.observation_sizes)
    tell("counts", exact.Tabulated(posterior, DOMAIN.pomdp), dirichlet().evidence)


def bank() -> None:
    for members in MEMBERS:
        posterior = OfBank(draw_bank(prng.key(0), DOMAIN.sample_simulator, members))
        tell(f"bank of {members}", posterior, posterior.family.evidence)
        tell(f"bank of {members}, to Dirichlet", posterior, dirichlet().evidence)


def dropout() -> None:
    for p in (0.0, 0.1, 0.5):
        network = Network(dropout=p)
        trained, _ = pretrain(prng.key(0), tiger.dynamics(0.625), DOMAIN.pomdp, network, Pretrain())
        for rate in (0.005, 0.02, 0.05):
            architecture = trained.architecture._replace(network=Network(dropout=p, learning_rate=rate))
            posterior = exact.Tabulated(Dropout(trained.ensemble, architecture), DOMAIN.pomdp, NUM_KEYS)
            tell(f"dropout {p:.2f}, rate {rate:.3f}", posterior, dirichlet().evidence)


def latent() -> None:
    domain, settings = DOMAIN.pomdp, LatentSettings()
    sizes = domain.state_sizes, domain.num_actions, domain.observation_sizes
    architecture, states = architecture_of(settings, sizes, "TO"), uniform_states(domain.state_sizes)
    for seed in range(TRAININGS):
        found = train(prng.key(seed), DOMAIN.sample_simulator, architecture, settings, states)
        posterior = exact.Tabulated(found.posterior, DOMAIN.pomdp, MANY_KEYS)
        tell(f"latent, training {seed}", posterior, dirichlet().evidence)


def main() -> None:
    print(" " * 33 + " ".join(f"{n:4d} listens" for n in LISTENS))
    for name in sys.argv[1:] or ("counts", "bank", "latent", "dropout"):
        {"counts": counts, "bank": bank, "latent": latent, "dropout": dropout}[name]()


if __name__ == "__main__":
    main()
