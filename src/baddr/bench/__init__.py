"""The benchmark: agents x domains with reference lines (`baddr suite`). Needs no JAX itself."""
