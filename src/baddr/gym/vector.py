"""Many copies of an environment, stepped by one compiled program: `gymnasium.make_vec`, or `make_vec` here.

envs = gymnasium.make_vec(
    "baddr.gym:baddr/Tiger-v0", num_envs=4096, vectorization_mode="vector_entry_point"
)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Int, Key, UInt32

from baddr import prng
from baddr.core.pomdp import POMDP
from baddr.domains.domain import Domain
from baddr.errors import UserError
from baddr.gym.environment import first_of, observations


class Copies(NamedTuple):
    """What the next step needs, of every copy."""

    key: Key[Array, " n"]  # of the copy: its episodes draw from it in turn
    episode: Int[Array, " n"]
    t: Int[Array, " n"]
    s: Int[Array, "n features"]
    over: Bool[Array, " n"]  # the episode has ended: the next step starts another


class Seen(NamedTuple):
    """What a step gives of every copy."""

    o: Int[Array, "n features"]
    r: Array
    terminated: Bool[Array, " n"]
    truncated: Bool[Array, " n"]


class VectorEnvironment(VectorEnv):
    """Copies of a POMDP. A copy whose episode has ended starts the next one at its next step, whose action is
    ignored and whose reward is 0 (Gymnasium's NEXT_STEP).

    The first episode of copy i is that of `Environment` with the seed of copy i; its later episodes depend on
    that seed, too.
    """

    def __init__(self, pomdp: Domain | POMDP, num_envs: int):
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, not {num_envs}.")
        self.pomdp = pomdp.pomdp if isinstance(pomdp, Domain) else pomdp
        self.num_envs = num_envs
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_action_space = Discrete(self.pomdp.num_actions)
        self.single_observation_space = observations(self.pomdp)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.copies: Copies | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """All copies at their start; with a seed, copy i has seed + i, or number i of a list."""
        each = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if each is None and self.copies is not None:
            self.copies, o = _again(self.copies, self.pomdp)
            return self._observed(o), {}
        each = [None] * self.num_envs if each is None else list(each)
        if len(each) != self.num_envs:
            raise UserError(f"There are {self.num_envs} environments and {len(each)} seeds.")
        first = [int(seeding.np_random(one)[0].integers(2**32)) for one in each]
        self.copies, o = _started(jnp.asarray(np.array(first, np.uint32)), self.pomdp)
        return self._observed(o), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self.copies is None:
            raise UserError("The episodes have not started: call reset() first.")
        a = np.asarray(actions)
        legal = a.shape == (self.num_envs,) and np.issubdtype(a.dtype, np.integer)
        if not legal or a.min() < 0 or a.max() >= self.pomdp.num_actions:
            last = self.pomdp.num_actions - 1
            raise UserError(f"There must be {self.num_envs} actions, each one of 0 to {last}.")
        self.copies, seen = _stepped(self.copies, self.pomdp, jnp.asarray(a, jnp.int32))
        o, r, terminated, truncated = jax.device_get(seen)
        return self._observed(o), r.astype(np.float64), terminated, truncated, {}

    def _observed(self, o: Any) -> np.ndarray:
        o = np.asarray(o).astype(np.int64)
        return o[:, 0] if o.shape[1] == 1 else o


def _episode_key(key: Key[Array, ""], episode: Int[Array, ""]) -> Key[Array, ""]:
    """The first episode has the key itself."""
    later = jr.fold_in(key, -episode)
    data = jnp.where(episode == 0, jr.key_data(key), jr.key_data(later))
    return jr.wrap_key_data(data, impl=jr.key_impl(key))


@eqx.filter_jit
def _started(seeds: UInt32[Array, " n"], pomdp: POMDP) -> tuple[Copies, Int[Array, "n features"]]:
    keys = jax.vmap(lambda seed: jr.key(seed, impl=prng.IMPL))(seeds)  # `prng.key` of each
    s, o = jax.vmap(lambda key: first_of(key, pomdp))(keys)
    zero = jnp.zeros(seeds.shape, jnp.int32)
    return Copies(keys, zero, zero, s, zero > 0), o


@eqx.filter_jit
def _again(copies: Copies, pomdp: POMDP) -> tuple[Copies, Int[Array, "n features"]]:
    episode = copies.episode + 1
    keys = jax.vmap(_episode_key)(copies.key, episode)
    s, o = jax.vmap(lambda key: first_of(key, pomdp))(keys)
    zero = jnp.zeros_like(copies.t)
    return Copies(copies.key, episode, zero, s, zero > 0), o


@eqx.filter_jit
def _stepped(copies: Copies, pomdp: POMDP, a: Int[Array, " n"]) -> tuple[Copies, Seen]:
    """A step of every copy, or the start of its next episode."""

    def one(copy: Copies, a: Int[Array, ""]) -> tuple[Copies, Seen]:
        episode = copy.episode + copy.over.astype(jnp.int32)
        key = _episode_key(copy.key, episode)
        s_first, o_first = first_of(key, pomdp)
        s_next, o = pomdp.step(jr.fold_in(key, 1 + copy.t), copy.s, a)
        r = jnp.where(copy.over, 0.0, pomdp.reward(copy.s, a, s_next))
        t = jnp.where(copy.over, 0, copy.t + 1)
        terminated = ~copy.over & pomdp.is_terminal(copy.s, a, s_next)
        truncated = ~copy.over & ~terminated & (t >= pomdp.horizon)
        s = jnp.where(copy.over, s_first, s_next)
        seen = Seen(jnp.where(copy.over, o_first, o), r, terminated, truncated)
        return Copies(copy.key, episode, t, s, terminated | truncated), seen

    return jax.vmap(one)(copies, a)
