"""The moves of `--filter.rejuvenate`, for the posteriors that have some."""

import functools
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float, Int

from baddr import prng
from baddr.core.gba_pomdp import GBAPOMDP
from baddr.core.outcome import state_tells_ends
from baddr.core.pomdp import POMDP
from baddr.core.posterior import Posterior
from baddr.core.rejuvenation import Rejuvenation
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.fast.backend import on_cpu
from baddr.fast.tuning import REMEMBERED_ROWS_AT_ONCE
from baddr.planners.belief_tree.mean_model import outcomes
from baddr.posteriors.dirichlet import Dirichlet
from baddr.posteriors.factored import Factored
from baddr.posteriors.gibbs import gibbs_counts
from baddr.posteriors.gibbs_factored import gibbs_factored
from baddr.posteriors.memory import Codes
from baddr.posteriors.pool import Pool
from baddr.posteriors.pool_moves import PoolMoves

MOST_STATES = 256  # of a Gibbs sweep, which takes S^2 numbers a step and particle
NUM_STARTS = 1024  # drawn, to see whether episodes start in one state


def moves_of(domain: Domain, posterior: Posterior, filter: Any) -> Rejuvenation:
    """Gibbs sweeps of counts, exchanges of members; one sentence where there are none."""
    pomdp = domain.pomdp
    if isinstance(posterior, Pool):
        sizes = pomdp.num_actions, pomdp.observation_sizes, pomdp.num_observations, pomdp.horizon
        return PoolMoves(gba=GBAPOMDP(pomdp, posterior), codes=Codes(*sizes), capacity=filter.history)
    if not isinstance(posterior, Dirichlet | Factored):
        raise UserError(
            "--filter.rejuvenate needs counts, or a bank with the exact filter: use --agent ba-pomcp or "
            "fba-pomcp without tables, or --agent bank with --filter.kind exact."
        )
    if isinstance(posterior, Factored) and posterior.places is not None:
        raise UserError("--filter.rejuvenate needs counts that are not tied: use --factored.tying untied.")
    if pomdp.num_states > MOST_STATES:
        raise UserError(
            f"--filter.rejuvenate draws histories of states, so it allows at most {MOST_STATES} states; "
            f"{domain.name} has {pomdp.num_states:,}."
        )
    rows = 1 if on_cpu() else REMEMBERED_ROWS_AT_ONCE
    how = start_of(domain), pomdp.horizon, filter.history, rows, ends_of(pomdp)
    return (
        gibbs_factored(posterior, *how) if isinstance(posterior, Factored) else gibbs_counts(posterior, *how)
    )


def ends_of(pomdp: POMDP) -> Bool[np.ndarray, "A S S"] | None:
    """Which (s, a, s') end an episode; None where the state has no say in it."""
    return np.asarray(jax.jit(lambda: outcomes(pomdp)[0])()) if state_tells_ends(pomdp) else None


def start_of(domain: Domain) -> Float[np.ndarray, " S"]:
    """p(s_0): as the POMDP says, or the one state that it starts in."""
    pomdp = domain.pomdp
    if hasattr(pomdp, "start"):
        return np.asarray(pomdp.start, np.float64)  # type: ignore[attr-defined]
    p0 = np.zeros(pomdp.num_states)
    p0[np.ravel_multi_index(tuple(_only_start(domain)), pomdp.state_sizes)] = 1
    return p0


def start_marginals(domain: Domain) -> list[Float[np.ndarray, " _"]]:
    """p(s_0) of each feature, which must be independent of each other."""
    sizes = domain.pomdp.state_sizes
    if not hasattr(domain.pomdp, "start"):
        return [np.eye(size)[i] for size, i in zip(sizes, _only_start(domain), strict=True)]
    p0 = start_of(domain).reshape(sizes)
    others = lambda i: tuple(j for j in range(len(sizes)) if j != i)
    marginals = [p0.sum(axis=others(i)) for i in range(len(sizes))]
    if not np.allclose(functools.reduce(np.multiply.outer, marginals), p0):
        raise UserError(f"--factored.tables: the features of {domain.name} do not start independently.")
    return marginals


def _only_start(domain: Domain) -> Int[np.ndarray, " features"]:
    pomdp: POMDP = domain.pomdp
    drawn = np.asarray(jax.jit(jax.vmap(pomdp.initial_state))(jr.split(prng.key(0), NUM_STARTS)))
    if np.any(drawn != drawn[:1]):
        raise UserError(f"p(s_0) must be known: give the POMDP of {domain.name} a `start`.")
    return drawn[0]
