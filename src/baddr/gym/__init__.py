"""Gymnasium both ways: domains as environments, and agents that play any loop of Gymnasium's kind.

Importing this module registers every domain of the catalogue: `gymnasium.make("baddr/Tiger-v0")` after it,
or `gymnasium.make("baddr.gym:baddr/Tiger-v0")` on its own. Needs the extra `gymnasium`.
"""

from baddr.domains.catalog import DOMAINS

try:
    import gymnasium
except ImportError as error:
    raise ImportError("baddr.gym needs Gymnasium: pip install 'baddr[gymnasium]'.") from error

from baddr.gym.catalog import environment_id, make, make_vec
from baddr.gym.environment import Environment
from baddr.gym.playing import Player, player
from baddr.gym.vector import VectorEnvironment

__all__ = [
    "Environment",
    "Player",
    "VectorEnvironment",
    "environment_id",
    "make",
    "make_vec",
    "player",
]

for _name in (*DOMAINS, "cassandra"):
    gymnasium.register(
        environment_id(_name),
        entry_point="baddr.gym:make",
        vector_entry_point="baddr.gym:make_vec",
        kwargs={"name": _name},
    )
