"""Planners: one file each, and one line here. A value of such a class is what is chosen about a planner; its
`build(domain)` gives the `core.planner.Planner`. Needs no JAX."""

PLANNERS = {
    "po-uct": "baddr.planners.po_uct:PoUct",
    "belief-tree": "baddr.planners.belief_tree.settings:BeliefTree",
    "uniform": "baddr.planners.uniform:Uniform",
}
