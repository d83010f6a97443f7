"""Observations that no particle explains, and beliefs that run out of particles: both are told."""

import pytest

import baddr
from baddr.cli import main

SIZE = ["--runs", "4", "--episodes", "6", "--chunk-size", "4", "--domain.horizon", "6"]
# The growl is always right, and so few particles know where the tiger is: soon they are all wrong.
SURE = ["--domain.accuracy", "1.0", "--planner.kind", "uniform", "--filter.num-particles", "2"]


@pytest.mark.parametrize(
    ("flags", "column"),
    [
        ([], "impossible_observations"),
        (["--filter.kind", "rejection", "--filter.max-tries", "1"], "filled_particles"),
    ],
)
def test_depletion_is_in_the_table_and_in_the_summary(flags, column, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["run", "tiger", "--agent", "pomcp", *SIZE, *SURE, *flags, "--out", str(tmp_path / "out")])
    assert not exit.value.code
    count = baddr.load_results(tmp_path / "out")[column].sum()
    assert count > 0
    words = {"impossible_observations": "impossible observations", "filled_particles": "particles filled"}
    assert f"{count} {words[column]}" in capsys.readouterr().out
