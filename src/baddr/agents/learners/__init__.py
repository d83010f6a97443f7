"""Baselines that are not Bayesian."""

from baddr.agents.learners.a2c import A2C, Episodes, Learner, advance, evaluate, start

__all__ = ["A2C", "Episodes", "Learner", "advance", "evaluate", "start"]
