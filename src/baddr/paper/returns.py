"""Quantities of returns that claims are about: each is a sum of blocks' means with weights. Needs no JAX."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from baddr.lab.statistics import Sample, sum_of_means
from baddr.paper.claims import Data, Finding, Measure, allowing, too_few, unseen_of

Block = Literal["first", "last", "all"] | int  # the first tenth, the last quarter, all; the first n episodes


class Term(NamedTuple):
    """The mean return of a curve over a block of its first `episodes` (0: all), times a weight."""

    weight: float
    curve: str
    block: Block
    episodes: int = 0


def span(block: Block, episodes: int) -> slice:
    """The episodes that a block stands for."""
    if isinstance(block, int):
        return slice(0, min(block, episodes))
    first = {"first": 0, "last": episodes - max(1, episodes // 4), "all": 0}[block]
    return slice(first, max(1, episodes // 10) if block == "first" else episodes)


def block_means(curve: Sample, block: Block, episodes: int = 0) -> dict[tuple[int, ...], float]:
    """The mean return of each unit over a block of the first `episodes` (0: all) episodes."""
    table = curve.table[:, span(block, episodes or curve.episodes)]
    known = ~np.isnan(table)
    counts = known.sum(axis=1)
    means = np.where(known, table, 0.0).sum(axis=1) / np.maximum(counts, 1)
    return {id: float(mean) for id, mean, n in zip(curve.ids, means, counts, strict=True) if n}


def values_of(means: dict[tuple[int, ...], float]) -> np.ndarray:
    return np.array(list(means.values()))


def count(curve: Sample, block: Block, episodes: int = 0) -> int:
    """The episodes of all runs in a block."""
    chosen = span(block, episodes or curve.episodes)
    return curve.num_runs * (chosen.stop - chosen.start)


def rare(data: Data, terms: Sequence[Term], means: Sequence[np.ndarray]) -> tuple[float, float]:
    """How far a sum of blocks' means may lie lower, and higher, because of disasters that were not seen. What
    strikes one may strike all episodes of a run, and all runs of an ensemble."""
    below = above = 0.0
    for term, x in zip(terms, means, strict=True):
        single = term.curve in data.forgetful
        units = count(data.sample(term.curve), term.block, term.episodes) if single else len(x)
        much = term.weight * unseen_of(data, float(np.mean(x)), units)
        below, above = below + max(much, 0.0), above + max(-much, 0.0)
    return below, above


def add(data: Data, terms: Sequence[Term], episodes: int = 0) -> Finding:
    """Unit by unit where all terms have the same ones, and otherwise as independent samples."""
    samples = [data.sample(term.curve) for term in terms]
    means = [block_means(s, t.block, t.episodes) for s, t in zip(samples, terms, strict=True)]
    paired = all(m.keys() == means[0].keys() for m in means)
    values = [np.array([m[id] for id in means[0]]) if paired else values_of(m) for m in means]
    seen = sum_of_means([term.weight for term in terms], values, paired)
    found = allowing(seen, rare(data, terms, values), data.times)
    units = tuple(dict.fromkeys((len(m), s.unit) for m, s in zip(means, samples, strict=True)))
    units = units[:1] if paired else units
    basis = " against ".join(f"{n} {unit}" for n, unit in units)
    few = too_few(samples, data, [term.curve for term in terms])
    over = f"paired over {basis}" if paired and len(terms) > 1 else basis
    return Finding(found, over, episodes=episodes, too_few=few, units=units, seen=seen)


def level(curve: str, block: Block) -> Measure:
    """The mean return over a block."""
    return lambda data: add(data, [Term(1.0, curve, block)], data.sample(curve).episodes)


def gain(curve: str) -> Measure:
    """The last quarter less the first tenth."""
    terms = [Term(1.0, curve, "last"), Term(-1.0, curve, "first")]
    return lambda data: add(data, terms, data.sample(curve).episodes)


def difference(curve: str, other: str, block: Block, other_block: Block | None = None) -> Measure:
    """One curve less another over the same episodes, or over a block of each."""

    def measure(data: Data) -> Finding:
        x, y = data.sample(curve).episodes, data.sample(other).episodes
        if other_block is not None:
            return add(data, [Term(1.0, curve, block), Term(-1.0, other, other_block)], x)
        both = min(x, y)
        return add(data, [Term(1.0, curve, block, both), Term(-1.0, other, block, both)], both)

    return measure


def difference_of_gaps(curve: str, bound: str, other: str, other_bound: str) -> Measure:
    """How much more one curve's end falls short of its bound than another's of its own."""
    terms = [Term(1.0, bound, "all"), Term(-1.0, curve, "last")]
    terms += [Term(-1.0, other_bound, "all"), Term(1.0, other, "last")]
    return lambda data: add(data, terms, min(data.sample(name).episodes for name in (curve, other)))


def trend(curves: dict[int, str]) -> Measure:
    """The slope of the last quarter's return against log2 of the number of models."""
    x = np.log2(list(curves))
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    terms = [Term(float(w), name, "last") for w, name in zip(weights, curves.values(), strict=True)]

    def measure(data: Data) -> Finding:
        found = add(data, terms, min(data.sample(name).episodes for name in curves.values()))
        return found._replace(basis=f"slope per doubling, {found.basis}")

    return measure
