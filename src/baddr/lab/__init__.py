"""Experiments: run, resume, look at and compare."""
