"""A posterior: counts, of which every new one weighs as much as you say."""

import equinox as eqx

from baddr import Counts, Posterior, Table
from baddr.core.pomdp import flat_index


class Weighted(Posterior):
    counts: Counts
    sizes: tuple = eqx.field(static=True)
    weight: float = eqx.field(static=True)

    def prior(self, key):
        return self.counts

    def draw(self, key, theta):
        return ()

    def dynamics(self, theta, epsilon):
        return Table(theta.T, theta.O, *self.sizes)

    def update(self, key, theta, s, a, s_next, o):
        i, j = (flat_index(x, self.sizes[0]) for x in (s, s_next))
        z = flat_index(o, self.sizes[1])
        return Counts(theta.T.at[i, a, j].add(self.weight), theta.O.at[a, j, z].add(self.weight))


def weighted(domain, weight: float = 1.0):
    """Counts whose observations weigh this much."""
    return Weighted(domain.counts, (domain.pomdp.state_sizes, domain.pomdp.observation_sizes), weight)
