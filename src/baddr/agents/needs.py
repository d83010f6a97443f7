"""What the agents need from a domain, and the error when it is missing. Needs no JAX."""

from collections.abc import Mapping, Sequence
from typing import Any

from baddr.agents import AGENTS
from baddr.agents.kinds import agent_class
from baddr.errors import UserError

# What a domain may lack, how a user provides it, and where that is documented.
PROVIDED = {
    "counts": ("a table of counts", "Domain(counts=Counts(T, O))", "docs/own-domain.md"),
    "graphs": ("a graph", 'Domain(graphs={"default": Graph(...)})', "docs/factored.md"),
    "expected_simulator": ("an expected model", "Domain(expected_simulator=...)", "docs/own-domain.md"),
    "sample_simulator": ("simulators", "Domain(sample_simulator=...)", "docs/own-domain.md"),
}


def has(domain: Any, need: str | None) -> bool:
    value = () if need is None else getattr(domain, need)
    return value is not None and not (isinstance(value, Mapping) and not value)


def lacks(domain: Any, agent: str, need: str, because: str = "") -> UserError:
    """The domain lacks what the agent needs: says which agents can act in it, and how to provide it."""
    what, how, page = PROVIDED[need]
    found = {name: agent_class(name).needs for name in AGENTS if name != "own"}
    others = [name for name, other in found.items() if other != found[agent] and has(domain, other)]
    why = f" ({because})" if because else ""
    return UserError(
        f"Agent {agent} needs {what}, and this domain has none{why}: use --agent {listed(others)}, "
        f"or provide it as {how} in a domain of your own ({page})."
    )


def with_a_planner() -> list[str]:
    plans = lambda name: not {"planner", "solver"}.isdisjoint(agent_class(name)().groups())
    return [name for name in AGENTS if name != "own" and plans(name)]


def keeps_no_belief(agent: str) -> UserError:
    return UserError(
        f"Agent {agent} learns a policy: it keeps no belief and does not plan. "
        f"Use --agent {listed(with_a_planner())}."
    )


def does_not_plan(agent: str) -> UserError:
    return UserError(f"Agent {agent} does not plan. Use --agent {listed(with_a_planner())}.")


def listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
