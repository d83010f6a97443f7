"""Numbers as a report shows them. Needs no JAX."""

import numpy as np

from baddr.lab.statistics import Estimate


def number(x: float) -> str:
    """Three digits or so."""
    size = abs(x)
    digits = 0 if size >= 100 else 1 if size >= 20 else 2 if size >= 0.995 else 3
    return f"{x:,.{digits}f}"


def plain(estimate: Estimate) -> dict[str, float | None]:
    """As JSON has it: null where there is no end to the interval."""
    return {name: float(x) if np.isfinite(x) else None for name, x in estimate._asdict().items()}


def interval(estimate: dict[str, float | None]) -> str:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None:
        return "none"
    if low == high:
        return f"{number(value)} [no interval]" if low is None else number(value)
    return f"{number(value)} {ends(estimate)}"


def ends(estimate: dict[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    if low == high:
        return ""
    return f"[{'-∞' if low is None else number(low)}, {'∞' if high is None else number(high)}]"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
