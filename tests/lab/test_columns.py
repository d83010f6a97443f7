"""Every column is of one kind, and nobody else names them."""

from baddr.lab import columns
from baddr.lab.chunk import Work, no_rows
from baddr.lab.experiment import preset
from baddr.lab.runner import resolve
from baddr.life.record import Tally


def test_the_columns_of_an_experiment_have_their_kinds():
    """What the tally counts is a diagnostic, and what tiger's description of the belief says is a belief."""
    experiment, _, life, _ = resolve(preset("tiger", "ba-pomcp"))
    names = list(no_rows(Work(experiment, life)))
    assert columns.of_kind(names, "key") == ["run", "episode"]
    assert columns.of_kind(names, "outcome") == ["return", "discounted_return", "length"]
    diagnostics = [*Tally._fields[2:], "distinct_ancestors", "accuracy_seen_0", "accuracy_seen_1"]
    assert columns.of_kind(names, "diagnostic") == diagnostics
    believed = ["accuracy_mean_0", "accuracy_mean_1", "accuracy_std_0", "accuracy_std_1"]
    assert columns.of_kind(names, "belief") == believed
    assert columns.means(names) == believed[:2] and columns.stems(names) == ["accuracy"]
    assert columns.entries(names, "accuracy", columns.STD) == believed[2:]
    assert set(columns.numbers(names)) == set(names) - {"run", "episode"} - set(
        columns.of_kind(names, "histogram")
    )


def test_the_bins_of_a_histogram_belong_together():
    names = ["run", "p_histogram_0", "p_histogram_1", "q_mean_0", "q_histogram_0"]
    assert columns.histograms(names) == {"p": ["p_histogram_0", "p_histogram_1"], "q": ["q_histogram_0"]}
    assert columns.of_kind(names, "histogram") == ["p_histogram_0", "p_histogram_1", "q_histogram_0"]
