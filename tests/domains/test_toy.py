"""A domain is one file, or one folder and one line: a toy of each kind runs through every command."""

import json
import sys
from pathlib import Path

import pytest

from baddr.cli import main
from baddr.domains import catalog
from baddr.lab.experiment import preset

DOCS = Path(__file__).parent.parent.parent / "docs"
SMALL = ["--planner.num-simulations", "8", "--filter.num-particles", "16", "--domain.horizon", "3"]

FILE = '''
"""The coin of the docs, with names and presets of its own."""

from dataclasses import replace

from baddr.domains.entry import file_presets

{coin}

def coin(fair: float = 0.5, horizon: int = 20):
    """A coin."""
    names = ("tails-up", "heads-up"), ("call-tails", "call-heads"), ("saw-tails", "saw-heads")
    T, O, R = (make_domain(fair).pomdp.dynamics.T, make_domain(fair).pomdp.dynamics.O, make_domain().pomdp.R)
    options = {{"horizon": horizon, "names": names, "prior": Prior(learned="T")}}
    domain = from_tables(T, O, R, [0.5, 0.5], 0.95, **options)
    presets = file_presets(7.0, 2)
    return replace(domain, presets=presets)
'''

SETTINGS = '''
from dataclasses import dataclass
from typing import ClassVar

from baddr.domains.entry import Entry, Names, by_module, file_presets


@dataclass(frozen=True)
class ToySettings:
    """A coin."""

    name: ClassVar[str] = "toy"
    fair: float = 0.5
    """The probability of heads."""
    horizon: int = 20
    """K: the steps of an episode."""

    def problems(self):
        return []


def names(settings):
    kinds = ("tails-up", "heads-up"), ("saw-tails", "saw-heads")
    return Names((("side", kinds[0]),), ("call-tails", "call-heads"), (("seen", kinds[1]),))


ENTRY = Entry(
    summary="a coin",
    settings=ToySettings(),
    names=names,
    presets=lambda settings: file_presets(7.0, 2),
    make_domain=by_module("toy_domain.model"),
)
'''

MODEL = """
from dataclasses import replace

import numpy as np

from baddr.domains.domain import takes_fields_of
from baddr.domains.finite import Prior, from_tables
from baddr.domains.render import Renderer
from toy_domain.settings import ToySettings, names


@takes_fields_of(ToySettings)
def make_domain(settings):
    T = np.tile([1 - settings.fair, settings.fair], (2, 2, 1))
    R = np.broadcast_to(np.eye(2), (2, 2, 2))
    options = {"horizon": settings.horizon, "prior": Prior(learned="T")}
    domain = from_tables(T, np.tile(np.eye(2), (2, 1, 1)), R, [0.5, 0.5], 0.95, **options)
    looks = Renderer(lambda scene: f"the coin shows {scene.s_next[0]}", lambda axes, scene: None)
    return replace(domain, name="toy", names=names(settings), renderer=looks)
"""


def the_docs_coin() -> str:
    """The Python of docs/own-domain.md's section on tables."""
    section = (DOCS / "own-domain.md").read_text().partition("## A table is enough")[2]
    return section.partition("```python\n")[2].partition("```")[0]


@pytest.fixture(params=["file", "folder"])
def toy(request, tmp_path, monkeypatch) -> str:
    """The name of a toy domain, made before the test as a user would."""
    if request.param == "file":
        path = tmp_path / "toy.py"
        path.write_text(FILE.format(coin=the_docs_coin()))
        return f"{path}:coin"
    folder = tmp_path / "toy_domain"
    folder.mkdir()
    for name, text in (("__init__", ""), ("settings", SETTINGS), ("model", MODEL)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("toy_domain")]:
        monkeypatch.delitem(sys.modules, name)
    for name, entry in catalog.load("toy_domain").items():  # what one more line in FOLDERS does
        monkeypatch.setitem(catalog.DOMAINS, name, entry)
    return "toy"


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return int(end.value.code or 0)


def test_a_toy_domain_goes_through_every_command(toy, tmp_path, capsys):
    own = preset(toy, "pomcp", kinds={"planner": "po-uct"})  # its own preset
    assert own.settings.planner.exploration == 7.0
    assert baddr_main("check", toy) == 0
    assert "names and presets" in capsys.readouterr().out
    history = tmp_path / "h.json"
    history.write_text('{"episodes": [{"actions": [0, 1], "observations": [[1], [1]]}]}')
    asked = [toy, "--agent", "ba-pomcp", "--history", history]
    assert baddr_main("belief", *asked, "--particles", "16") == 0
    believed = json.loads(capsys.readouterr().out)
    assert believed["state"]["features"] == [[0.0, 1.0]]  # what is seen is so
    assert baddr_main("plan", *asked, "--filter.num-particles", "16", "--simulations", "8") == 0
    assert sum(json.loads(capsys.readouterr().out)["visits"]) == 8
    picture, out = tmp_path / "last.txt", tmp_path / "out"
    sizes = ["--runs", "2", "--episodes", "2", *SMALL]
    assert baddr_main("run", toy, "--agent", "ba-pomcp", *sizes, "--render", picture, "--out", out) == 0
    frames = picture.read_text().strip().split("\n\n")
    assert len(frames) == 4 and "call-" in frames[1]  # its names
    assert ("the coin shows" in frames[1]) == (toy == "toy")  # its view, or a table
    assert baddr_main("resume", out, "--episodes", "3") == 0


def test_the_docs_coin_is_a_domain_of_its_own(tmp_path, capsys):
    path = tmp_path / "coin.py"
    path.write_text(the_docs_coin())
    assert baddr_main("check", path) == 0
    assert "coin.py is fine" in capsys.readouterr().out


def test_names_of_other_sizes_are_refused(tmp_path, capsys):
    path = tmp_path / "toy.py"
    wrong = "from baddr.domains import Names\n\ndef wrong():\n    names = Names((), ('a', 'b'), ())\n"
    path.write_text(FILE.format(coin=the_docs_coin()) + wrong + "    return replace(coin(), names=names)\n")
    assert baddr_main("run", f"{path}:wrong", "--agent", "pomcp") == 2
    assert "names are those of other sizes than the pomdp's: ((), 2, ())" in capsys.readouterr().err
