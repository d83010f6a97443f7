"""How far an experiment is, in words. Needs no JAX."""

import math

# What is counted, and what is told about the latest of them.
WORDS = {
    "pretraining": ("pre-training: {done}/{total} batches", "loss {value:.3f}"),
    "episodes": ("{done}/{total} episodes", "recent return {value:.2f}"),
    "steps": ("{done}/{total} steps", "{value:.2f} s each"),
}


def amount(what: str, done: int, total: int, value: float | None) -> str:
    """How much is done, and its latest value where there is one: no return before an episode has ended."""
    counted, latest = WORDS[what]
    said = counted.format(done=done, total=total)
    known = value is not None and not math.isnan(value)
    return f"{said}, {latest.format(value=value)}" if known else said
