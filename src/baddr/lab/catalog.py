"""What there is to run, as plain values: `baddr list`. Needs no JAX."""

from typing import Any

from baddr.domains.catalog import DOMAINS
from baddr.domains.entry import Feature
from baddr.lab.experiment import PRESETS, describe_agents


def listing() -> dict[str, Any]:
    """Domains with their features and numbering, agents and presets."""

    def features(named: tuple[Feature, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "values": list(values)} for name, values in named]

    domains = {}
    for name, domain in DOMAINS.items():
        names = domain.names(domain.settings)
        domains[name] = {
            "summary": domain.summary,
            "state": features(names.state),
            "actions": list(names.action),
            "observation": features(names.observation),
        }
    return {"domains": domains, "agents": describe_agents(), "presets": PRESETS}
