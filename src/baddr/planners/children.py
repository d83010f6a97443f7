"""The children of a search tree's nodes: from the entry of (h, a), and o, to the node of h' = (h, a, o).

Few observations have a slot each. Many are found by a hash; equal hashes cannot mix two observations up, as
every node keeps the entry and the observation that lead to it, and these are compared. The last slot takes
the writes that do not count.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from baddr.core.pomdp import Observation, flat_index

IN_PLACE: dict[str, Any] = {"mode": "promise_in_bounds"}
MOST_DENSE = 64  # observations with a slot each
SLOTS_PER_NODE = 8
WINDOW = 16  # slots in which a child may lie, from its hash on

Places = Int[Array, " places"]


class Children(eqx.Module):
    """A map from (entry, o) to a node; 0, the root, where there is none."""

    @abstractmethod
    def find(self, entry: Int[Array, ""], o: Observation) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The child, and the slot where it is or would be."""

    @abstractmethod
    def put(
        self,
        slot: Places,
        entry: Places,
        o: Int[Array, "places observation_features"],
        leaf: Bool[Array, " places"],
        size: Int[Array, ""],
    ) -> tuple["Children", Places, Int[Array, ""]]:
        """With the new children of all places at a `leaf`, numbered from `size` on; the number of each (0
        where none was made), and the new size.

        Places that want the same child share it; of several that want different ones in one slot, the first
        gets it. All places with one slot write the same, so the order of their writes does not matter.
        """


def _share(slot: Places, leaf: Bool[Array, " places"]) -> tuple[Places, Places, Int[Array, ""]]:
    """For each place: the first place that writes its slot, the rank of that place, and how many there
    are."""
    if slot.shape[0] == 1:
        return jnp.zeros((1,), jnp.int32), jnp.zeros((1,), jnp.int32), jnp.sum(leaf, dtype=jnp.int32)
    first = jnp.argmax((slot[:, None] == slot[None]) & leaf[None], axis=1).astype(jnp.int32)
    winner = leaf & (first == jnp.arange(slot.shape[0], dtype=jnp.int32))
    rank = jnp.cumsum(winner, dtype=jnp.int32) - 1
    return first, rank[first], jnp.sum(winner, dtype=jnp.int32)


class DenseChildren(Children):
    """A slot for each (entry, o)."""

    node: Int[Array, " slots"]
    observation_sizes: tuple[int, ...] = eqx.field(static=True)

    def find(self, entry: Int[Array, ""], o: Observation) -> tuple[Int[Array, ""], Int[Array, ""]]:
        slot = entry * int(np.prod(self.observation_sizes)) + flat_index(o, self.observation_sizes)
        return self.node[slot], slot

    def put(
        self,
        slot: Places,
        entry: Places,
        o: Int[Array, "places observation_features"],
        leaf: Bool[Array, " places"],
        size: Int[Array, ""],
    ) -> tuple["DenseChildren", Places, Int[Array, ""]]:
        _, rank, number = _share(slot, leaf)
        slot = jnp.where(leaf, slot, self.node.shape[0] - 1)
        made = jnp.where(leaf, size + rank, 0)
        node = self.node.at[slot].set(made, **IN_PLACE)
        return DenseChildren(node, self.observation_sizes), made, size + number


class HashedChildren(Children):
    """A hash table of nodes with open addressing within a window.

    At most one slot in SLOTS_PER_NODE is taken. A stretch of k taken slots has a probability of about
    (c e^(1 - c))^k, c = 1/8, so a full window is rarer than 1e-8; the new node is then not made, and the
    search goes on as from a leaf.
    """

    node: Int[Array, " slots"]
    entry: Int[Array, " nodes"]  # that led to each node
    o: Int[Array, "nodes observation_features"]

    def find(self, entry: Int[Array, ""], o: Observation) -> tuple[Int[Array, ""], Int[Array, ""]]:
        num_slots = self.node.shape[0] - WINDOW - 1
        start = (_hash(entry, o) & np.uint32(num_slots - 1)).astype(jnp.int32)
        window = jax.lax.dynamic_slice(self.node, (start,), (WINDOW,))
        same = (self.entry[window] == entry) & jnp.all(self.o[window] == o[None], axis=1) & (window > 0)
        free = window == 0
        slot = jnp.where(jnp.any(free), start + jnp.argmax(free).astype(jnp.int32), self.node.shape[0] - 1)
        return jnp.max(jnp.where(same, window, 0)), slot

    def put(
        self,
        slot: Places,
        entry: Places,
        o: Int[Array, "places observation_features"],
        leaf: Bool[Array, " places"],
        size: Int[Array, ""],
    ) -> tuple["HashedChildren", Places, Int[Array, ""]]:
        leaf = leaf & (slot < self.node.shape[0] - 1)
        first, rank, number = _share(slot, leaf)
        slot = jnp.where(leaf, slot, self.node.shape[0] - 1)
        row = jnp.where(leaf, size + rank, self.entry.shape[0] - 1)
        made = jnp.where(leaf, size + rank, 0)
        children = HashedChildren(
            self.node.at[slot].set(made, **IN_PLACE),
            self.entry.at[row].set(jnp.where(leaf, entry[first], 0), **IN_PLACE),
            self.o.at[row].set(jnp.where(leaf[:, None], o[first], 0), **IN_PLACE),
        )
        return children, made, size + number


def no_children(num_nodes: int, num_actions: int, observation_sizes: tuple[int, ...]) -> Children:
    """The map of a tree of up to `num_nodes` nodes that has only its root."""
    num_observations = int(np.prod(np.asarray(observation_sizes, dtype=object)))
    if num_observations <= MOST_DENSE:
        node = jnp.zeros((num_nodes * num_actions * num_observations + 1,), jnp.int32)
        return DenseChildren(node, observation_sizes)
    num_slots = 1 << (SLOTS_PER_NODE * num_nodes - 1).bit_length()
    return HashedChildren(
        jnp.zeros((num_slots + WINDOW + 1,), jnp.int32),
        jnp.zeros((num_nodes + 1,), jnp.int32),
        jnp.zeros((num_nodes + 1, len(observation_sizes)), jnp.int32),
    )


def _hash(entry: Int[Array, ""], o: Observation) -> Array:
    """32 bits of (entry, o): a sum of the words, each multiplied by its own odd number, well mixed."""
    odd = np.random.default_rng(0).integers(2**31, size=o.shape[0] + 1).astype(np.uint32) * np.uint32(2) + 1
    words = jnp.concatenate([entry[None], o]).astype(jnp.uint32)
    h = jnp.sum(words * odd, dtype=jnp.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))
