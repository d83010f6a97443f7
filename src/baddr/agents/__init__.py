"""Agents: one file each, and one line here. Needs no JAX."""

AGENTS = {
    "baddr": "baddr.agents.baddr:BADDr",
    "filtering": "baddr.agents.filtering:Filtering",
    "latent": "baddr.agents.latent:Latent",
    "ba-pomcp": "baddr.agents.ba_pomcp:BaPomcp",
    "fba-pomcp": "baddr.agents.fba_pomcp:FbaPomcp",
    "bank": "baddr.agents.bank:Bank",
    "mixture": "baddr.agents.mixture:Mixture",
    "pomcp": "baddr.agents.pomcp:Pomcp",
    "prior-only": "baddr.agents.prior_only:PriorOnly",
    "optimal": "baddr.agents.optimal:Optimal",
    "dpfrl": "baddr.agents.dpfrl:Dpfrl",
    "a2c": "baddr.agents.a2c:A2c",
    "random": "baddr.agents.random:Random",
    "own": "baddr.agents.own:Own",
}
