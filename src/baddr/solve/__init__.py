"""Solving: bounds on a POMDP's optimal value, and a policy, where its tables fit. Needs no JAX."""
