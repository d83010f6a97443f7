"""The prior of agent bank: members drawn once for an experiment, and where they can go."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Key

from baddr import prng
from baddr.agents.base import Prior, Request, known_prior
from baddr.agents.needs import lacks
from baddr.core.pomdp import POMDP, Dynamics, all_vectors
from baddr.errors import UserError
from baddr.posteriors.bank import Bank, Reach, draw_bank
from baddr.posteriors.pool import Pool
from baddr.posteriors.settings import MOST_ENTRIES, BankSettings, Exact
from baddr.solve.listing import MISSED, start_of, transition_log_prob, transitions

BANK_STREAM = 2**32 - 2  # of random numbers, apart from every run's and from that of trained priors
FEW = 4  # members whose transitions are listed at a time
MOST_LISTS = 16
LARGEST_REACH = 1 << 27  # probabilities of transitions, over all members


def bank_prior(request: Request, settings: BankSettings, filter: Any) -> Prior:
    """Members drawn with the experiment's seed: all runs share them. They are listed for the exact filter."""
    domain = request.domain
    if domain.sample_simulator is None:
        raise lacks(domain, "bank", "sample_simulator")
    exact = isinstance(filter, Exact)
    if exact:
        refuse_large(domain.pomdp, settings.members)
    held = exact and filter.rejuvenate
    number = settings.pool if held else settings.members
    bank = draw_bank(_bank_key(request.seed), domain.sample_simulator, number)
    bank = with_reach(bank, domain.pomdp) if exact else bank
    return known_prior(Pool(bank, settings.members) if held else bank)


@partial(jax.jit, static_argnums=0)
def _bank_key(seed: int) -> Key[Array, ""]:
    return jr.fold_in(prng.key(seed), BANK_STREAM)


def refuse_large(pomdp: POMDP, members: int) -> None:
    S = pomdp.num_states
    if members * S > MOST_ENTRIES:
        raise UserError(
            f"The exact filter has a table of {members:,} members times {S:,} states, at most "
            f"{MOST_ENTRIES:,} numbers: choose fewer --bank.members, or --filter.kind importance."
        )


def with_reach(bank: Bank, pomdp: POMDP) -> Bank:
    """The bank with the transitions of its members listed, for the exact filter."""
    S, A, K = pomdp.num_states, pomdp.num_actions, bank.num_members
    (s, a, s_next), p = list_transitions(bank, pomdp)
    reach = Reach(
        start=jnp.asarray(start_of(pomdp)[0], float),
        s=jnp.asarray(np.append(s, 0), jnp.int32),
        p=jnp.asarray(np.concatenate([p, np.zeros((1, K))]), float),
        place=jnp.asarray((a * S + s) * S + s_next, jnp.int32),
        into=jnp.asarray(_lists(a * S + s_next, A * S).reshape(A, S, -1), jnp.int32),
    )
    return eqx.tree_at(lambda bank: bank.reach, bank, reach, is_leaf=lambda x: x is None)


def list_transitions(bank: Bank, pomdp: POMDP) -> tuple[Int[np.ndarray, "3 n"], Float64[np.ndarray, "n K"]]:
    """All (s, a, s') that any member can do, and their probabilities in each: those of a few members, and of
    more until nothing is missing."""
    S, A, K = pomdp.num_states, pomdp.num_actions, bank.num_members
    found, missing = np.zeros((3, 0), np.int64), np.arange(K)
    for _ in range(MOST_LISTS):
        more = [np.stack(transitions(pomdp, bank.member(jnp.int32(k)))[:3]) for k in missing[:FEW]]
        found = np.unique(np.concatenate([found, *more], axis=1), axis=1)
        if found.shape[1] * K > LARGEST_REACH:
            raise UserError(
                f"The exact filter would list {found.shape[1]:,} transitions of {K:,} members, more than "
                f"{LARGEST_REACH:,} numbers: choose fewer --bank.members, or --filter.kind importance."
            )
        p = np.asarray(_probabilities(bank, pomdp, *map(jnp.asarray, found.astype(np.int32))), np.float64)
        pair = found[0] * A + found[1]
        sums = np.stack([np.bincount(pair, p[:, k], S * A) for k in range(K)], axis=1)
        missing = np.flatnonzero(np.any(np.abs(sums - 1) > MISSED, axis=0))
        if not len(missing):
            return found, p / sums[pair]
    raise UserError(
        f"{len(missing)} of {K:,} members of the bank can do what none of {MOST_LISTS * FEW} others can: the "
        "exact filter cannot list their transitions. Take --filter.kind importance."
    )


@eqx.filter_jit
def _probabilities(
    bank: Bank, pomdp: POMDP, s: Int[Array, " n"], a: Int[Array, " n"], s_next: Int[Array, " n"]
) -> Float[Array, "n K"]:
    every = jnp.asarray(all_vectors(pomdp.state_sizes))

    def of_one(D: Dynamics) -> Float[Array, " n"]:
        return jnp.exp(jax.vmap(transition_log_prob(pomdp, D))(every[s], a, every[s_next]))

    return bank.each(of_one).T


def _lists(key: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, "size most"]:
    """For each key below `size` the numbers of its entries, filled up with n."""
    n, count = len(key), np.bincount(key, minlength=size)
    order = np.argsort(key, kind="stable")
    place = np.arange(n) - np.repeat(np.cumsum(count) - count, count)
    lists = np.full((size, max(1, count.max())), n)
    lists[key[order], place] = order
    return lists
