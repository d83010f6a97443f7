"""What the command line says while it computes."""

import pytest

from baddr.cli.progress import whole_progress
from baddr.lab.progress import amount, progress
from baddr.paper.reproduce import _tell


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_no_return_is_told_before_an_episode_has_ended(nothing, capsys):
    assert amount("episodes", 0, 9, nothing) == "0/9 episodes"
    assert amount("episodes", 4, 9, 1.25) == "4/9 episodes, recent return 1.25"
    assert amount("pretraining", 3, 8, nothing) == "pre-training: 3/8 batches"
    with progress("baddr on tiger") as show:
        show("episodes", 0, 9, nothing)
        show("episodes", 9, 9, -2.5)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "baddr on tiger: compiling" and second == "baddr on tiger: 0/9 episodes, 0 s"
    assert third == "baddr on tiger: 9/9 episodes, recent return -2.50, 0 s"


def test_the_parts_of_a_reproduction_say_no_more(capsys):
    """Its parts tell through the same words; the share of the whole grows with a part's episodes alone."""
    with whole_progress(watch=False) as (show, _):
        _tell(show, "part 1", 0.5, 0.25, "pretraining", 3, 8, 0.5)
        _tell(show, "part 2", 0.5, 0.25, "episodes", 0, 9, float("nan"))
        _tell(show, "part 3", 0.5, 0.25, "episodes", 9, 9, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(" 50 % part 1: pre-training: 3/8 batches, loss 0.500")
    assert lines[1].startswith(" 50 % part 2: 0/9 episodes, 0 s")
    assert lines[2].startswith(" 75 % part 3: 9/9 episodes, recent return 1.00")
