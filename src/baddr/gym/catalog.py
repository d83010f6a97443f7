"""Environments by the names of their domains."""

from typing import Any

from baddr.domains.catalog import entry
from baddr.domains.domain import Domain
from baddr.domains.entry import Names
from baddr.files.settings import problems, refuse
from baddr.files.toml import merge
from baddr.gym.environment import Environment
from baddr.gym.vector import VectorEnvironment


def environment_id(name: str) -> str:
    """road-racing -> baddr/RoadRacing-v0."""
    return f"baddr/{''.join(word.capitalize() for word in name.split('-'))}-v0"


def make(name: str, render_mode: str | None = None, **settings: Any) -> Environment:
    """The environment of a domain with these settings, the others as the catalogue has them.

    NAME may be a file too, as on the command line: make("FILE.pomdp"), make("FILE.py:make_domain").
    """
    domain, names = domain_of(name, settings, named=render_mode is not None)
    return Environment(domain, render_mode, names)


def make_vec(name: str, num_envs: int = 1, **settings: Any) -> VectorEnvironment:
    """Copies of the environment of a domain with these settings; NAME as in `baddr.gym.make`."""
    return VectorEnvironment(domain_of(name, settings)[0], num_envs)


def domain_of(name: str, settings: dict[str, Any], named: bool = False) -> tuple[Domain, Names | None]:
    """The domain of this name with these settings, and what its numbers mean."""
    domain_entry = entry(name)
    chosen = merge(domain_entry.settings, settings, environment_id(name))
    refuse(problems(chosen, "domain."), less="domain.")
    return domain_entry.make_domain(chosen), domain_entry.names(chosen) if named else None
