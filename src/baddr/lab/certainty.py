"""Beliefs that are certain of what their run never saw: a warning at the end of an experiment.

What a Bayesian has not seen, it knows no better than before. Where the particles of a belief descend from
few draws of the prior, they agree about it all the same. The domain says what a step shows
(`Domain.shows`); where it does not, there is no warning.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from baddr.domains.entry import Names
from baddr.files.tables import Arrays
from baddr.lab.columns import SEEN, STD, entries, stems
from baddr.lab.statistics import per_run

if TYPE_CHECKING:
    from baddr.domains.domain import Domain

CERTAIN = 0.1  # of the prior's standard deviation: less is certainty
NUM_SIMULATORS = 256  # that the prior's standard deviation is measured with
MOST_NAMED = 3  # entries in a sentence

Spread = dict[str, np.ndarray]  # the standard deviation of each entry, by the quantity's name


class Imagined(NamedTuple):
    """An entry of a quantity of which some runs are certain that never saw it."""

    stem: str
    entry: int
    certain: int  # runs
    never: int  # runs that never saw it


def never_seen(table: np.ndarray) -> np.ndarray:
    """The runs, of a column NAME_seen_I as [run, episode], that never saw it. Rows of an older version have
    -1 there: of these nothing is known."""
    return (np.nanmin(table, axis=1) == 0) & (np.nanmax(table, axis=1) == 0)


def anything_unseen(columns: Arrays) -> bool:
    """Whether there is anything to warn of."""
    seen = [name for stem in stems(columns) for name in entries(columns, stem, SEEN)]
    return bool(len(columns["run"])) and any(never_seen(per_run(columns, name)).any() for name in seen)


def imagined(columns: Arrays, prior: Spread) -> list[Imagined]:
    """What runs are certain of that never saw it, the most frequent first."""
    found = []
    for stem in prior:
        both = zip(entries(columns, stem, STD), entries(columns, stem, SEEN), prior[stem], strict=True)
        for i, (std, seen, wide) in enumerate(both):
            never = never_seen(per_run(columns, seen))
            certain = never & (_last(per_run(columns, std)) < CERTAIN * wide)
            if certain.any():
                found.append(Imagined(stem, i, int(certain.sum()), int(never.sum())))
    return sorted(found, key=lambda x: -x.certain)


def _last(table: np.ndarray) -> np.ndarray:
    """Of each run, after its last episode."""
    number = np.sum(~np.isnan(table), axis=1)
    return table[np.arange(len(table)), np.maximum(number, 1) - 1]


def prior_spread(domain: "Domain", columns: Arrays) -> Spread:
    """The standard deviation of each entry before anything was seen: over simulators drawn from the prior;
    or, where there are none that can be described, what it was after the first episode."""
    first = {
        stem: np.array([np.nanmean(per_run(columns, name)[:, 0]) for name in entries(columns, stem, STD)])
        for stem in stems(columns)
        if entries(columns, stem, STD) and entries(columns, stem, SEEN)
    }
    return first | {stem: x for stem, x in _of_simulators(domain).items() if stem in first}


def _of_simulators(domain: "Domain") -> Spread:
    import jax

    from baddr import prng
    from baddr.core.belief_update import initial_belief
    from baddr.core.gba_pomdp import GBAPOMDP
    from baddr.posteriors.bank import draw_bank
    from baddr.posteriors.moments import described

    simulators = domain.sample_simulator
    if simulators is None or domain.describe is None:
        return {}
    try:
        bank = draw_bank(prng.key(0), simulators, NUM_SIMULATORS)
        describe = described(domain.describe, bank)
        assert describe is not None
        gba = GBAPOMDP(domain.pomdp, bank)
        told = jax.jit(lambda key: describe(key, bank, initial_belief(key, gba, 1)))(prng.key(0))
    except Exception:  # black boxes draw, and say no probabilities: theirs cannot be described
        return {}
    return {name.removesuffix("_std"): np.asarray(x) for name, x in told.items() if name.endswith("_std")}


def sentence(columns: Arrays, found: list[Imagined], names: Names) -> str:
    """The warning."""
    said = [
        f"{names.quantity(x.stem).entry(x.entry)} ({x.certain} of {x.never} runs that never saw it)"
        for x in found[:MOST_NAMED]
    ]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    titles = " and ".join(dict.fromkeys(names.quantity(x.stem).title for x in found))
    left = ""
    if "distinct_ancestors" in columns:
        median = np.median(_last(per_run(columns, "distinct_ancestors")))
        left = f" In the median run they descend from {median:.0f} of the initial particles."
    return (
        f"warning: beliefs are certain about things that were never seen ({titles}): the standard deviation "
        f"is below a tenth of the prior's for {', '.join(said)}{more}.{left} Use more particles; "
        "if that changes nothing, the prior is narrower than its simulators."
    )


def warning(experiment: Any, columns: Arrays, names: Names) -> str | None:
    """One sentence, where there is something to say. Beliefs that came with --prior have seen more than this
    experiment shows, and a spread that leaves out what a particle itself does not know says nothing."""
    parts = experiment.settings, *experiment.settings.groups().values()
    tells = all(getattr(part, "tells_spread", True) for part in parts)
    if experiment.prior or not tells or not anything_unseen(columns):
        return None
    from baddr.lab.build import build_domain

    found = imagined(columns, prior_spread(build_domain(experiment), columns))
    return sentence(columns, found, names) if found else None
