"""Agent bank from the command line: an exact belief by default, members of the seed, and what is refused."""

import numpy as np
import pytest

import baddr
from baddr.cli import main
from baddr.lab.experiment import preset
from baddr.posteriors.settings import Exact

SMALL = "--domain.horizon 4 --bank.members 8 --planner.num-expansions 2 --planner.num-particles 8"


def call(line: str, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    return int(end.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("sizes", [("quick", 3), ("paper", 3), ("quick", 9)])
def test_the_belief_is_exact_where_its_table_fits(sizes):
    from baddr.domains.road_racing.settings import RoadRacingSettings

    name, lanes = sizes
    experiment = preset("road-racing", "bank", name, RoadRacingSettings(lanes=lanes))
    assert isinstance(experiment.settings.filter, Exact) == (lanes == 3)
    assert experiment.domain.certainty == 4.0
    particles = preset("tiger", "bank", kinds={"filter": frozenset({"num_particles"})}).settings.filter
    assert particles.num_particles == 1024


@pytest.mark.slow
def test_runs_are_resumed_and_members_are_the_seeds(tmp_path, capsys):
    """Two episodes and a third one by a resume are three; another seed has other members, whose weights mean
    something else, so its beliefs are no prior."""
    at = lambda name: f"--out {tmp_path / name}"
    run = f"run tiger --agent bank {SMALL} --runs 2"
    assert call(f"{run} --episodes 3 {at('whole')}", capsys)[0] == 0
    assert call(f"{run} --episodes 2 {at('parts')}", capsys)[0] == 0
    assert call(f"resume {tmp_path / 'parts'} --episodes 3", capsys)[0] == 0
    whole, parts = (baddr.load_results(tmp_path / name) for name in ("whole", "parts"))
    for column in ("return", "accuracy_mean_0", "effective_members"):
        assert np.array_equal(whole[column], parts[column])
    assert np.all((whole["effective_members"] >= 1) & (whole["effective_members"] <= 8 + 1e-3))
    assert not np.any(np.asarray(whole["resamplings"]))
    given = f"--prior {tmp_path / 'whole'} --episodes 1"
    code, err = call(f"{run} {given} --seed 1 {at('other')}", capsys)
    assert code == 2 and "the same --seed" in err and "seed 0" in err


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path, capsys):
    out = f"--runs 1 --episodes 1 --out {tmp_path / 'out'}"
    for line, sentence in (
        ("tiger --agent ba-pomcp --filter.kind exact", "it is for --agent bank"),
        (
            "road-racing --agent bank --bank.members 2000 --filter.kind exact",
            "choose fewer --bank.members",
        ),
        ("tiger --agent bank --bank.members 600000", "bank.members must be at most 100,000"),
        ("tiger --agent bank --bank.members 0", "bank.members must be at least 1"),
        ("tiger --agent mixture --mixture.of bank", "a number for each"),
        ("tiger --agent mixture --mixture.of bank dpfrl", "posterior of this agent cannot be mixed"),
    ):
        code, err = call(f"run {line} {out}", capsys)
        assert code == 2 and sentence in err and not (tmp_path / "out").exists()
