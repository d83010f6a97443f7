"""The moves of `--filter.rejuvenate`, for the posteriors that have some."""

from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from baddr import prng
from baddr.core.pomdp import POMDP
from baddr.core.posterior import Posterior
from baddr.core.rejuvenation import Rejuvenation
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.fast.backend import on_cpu
from baddr.fast.tuning import REMEMBERED_ROWS_AT_ONCE
from baddr.posteriors.dirichlet import Dirichlet
from baddr.posteriors.gibbs import gibbs_counts

MOST_STATES = 256  # of a Gibbs sweep, which takes S^2 numbers a step and particle
NUM_STARTS = 1024  # drawn, to see whether episodes start in one state


def moves_of(domain: Domain, posterior: Posterior, filter: Any) -> Rejuvenation:
    """Gibbs sweeps of counts; one sentence where there are none."""
    pomdp = domain.pomdp
    if not isinstance(posterior, Dirichlet):
        raise UserError("--filter.rejuvenate needs counts: use --agent ba-pomcp or fba-pomcp.")
    if pomdp.num_states > MOST_STATES:
        raise UserError(
            f"--filter.rejuvenate draws state histories, which takes at most {MOST_STATES} states; "
            f"{domain.name} has {pomdp.num_states:,}."
        )
    rows = 1 if on_cpu() else REMEMBERED_ROWS_AT_ONCE
    return gibbs_counts(posterior, start_of(domain), pomdp.horizon, filter.history, rows)


def start_of(domain: Domain) -> Float[np.ndarray, " S"]:
    """p(s_0): as the POMDP says, or the one state that it starts in."""
    pomdp: POMDP = domain.pomdp
    if hasattr(pomdp, "start"):
        return np.asarray(pomdp.start, np.float64)  # type: ignore[attr-defined]
    drawn = np.asarray(jax.jit(jax.vmap(pomdp.initial_state))(jr.split(prng.key(0), NUM_STARTS)))
    if np.any(drawn != drawn[:1]):
        raise UserError(
            f"--filter.rejuvenate must know p(s_0): give the POMDP of {domain.name} a member `start`."
        )
    p0 = np.zeros(pomdp.num_states)
    p0[np.ravel_multi_index(tuple(drawn[0]), pomdp.state_sizes)] = 1
    return p0
