"""Files as domains on the command line: FILE.pomdp, and a user's own FILE.py:FUNCTION."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from baddr.cli import main
from baddr.domains import catalog
from baddr.domains.entry import returns_range
from baddr.errors import UserError
from baddr.files import cache
from baddr.lab.build import build_domain
from baddr.lab.experiment import preset

pytestmark = pytest.mark.usefixtures("unchecked")  # whole commands

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
MACHINE, MAINTENANCE = EXAMPLES / "machine.pomdp", EXAMPLES / "maintenance.py"
SMALL = ["--planner.num-simulations", "16", "--filter.num-particles", "16", "--domain.horizon", "3"]
SMALL += ["--runs", "2", "--chunk-size", "2"]


def baddr_main(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(a) for a in arguments])
    return int(exit.value.code or 0)


def own(folder: Path, body: str) -> Path:
    """A file with the example's domain and `body` after it."""
    path = folder / "own.py"
    path.write_text(f"{MAINTENANCE.read_text()}\n\n{body}")
    return path


# --- .pomdp files -------------------------------------------------------------------------------------


def test_a_pomdp_file_runs_and_goes_on_from_another_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(MACHINE.parent)
    arguments = ["run", MACHINE.name, "--agent", "ba-pomcp", "--episodes", "2", *SMALL]
    assert baddr_main(*arguments, "--out", tmp_path / "a") == 0
    said = capsys.readouterr()
    assert "ba-pomcp on machine.pomdp: 2 runs of 2 episodes" in said.out
    warned = [line for line in said.err.splitlines() if "warning" in line]
    assert len(warned) == 1 and "rewards depend on the observation" in warned[0]
    monkeypatch.chdir(tmp_path)
    assert f'name = "{MACHINE}"' in (tmp_path / "a" / "config.toml").read_text()
    assert baddr_main("resume", "a", "--episodes", "3") == 0
    assert "2 runs of 3 episodes" in capsys.readouterr().out


def test_a_pomdp_files_belief(tmp_path, capsys):
    (tmp_path / "h.json").write_text('{"episodes": [{"actions": [0], "observations": [[0]]}]}')
    arguments = ["belief", EXAMPLES / "tiger.pomdp", "--agent", "pomcp", "--history", tmp_path / "h.json"]
    assert baddr_main(*arguments, "--particles", "4096") == 0
    left = json.loads(capsys.readouterr().out)["state"]["features"][0][0]
    assert abs(left - 0.85) < 5 * (0.85 * 0.15 / 4096) ** 0.5  # heard left: Bayes' rule from 1/2


def test_presets_of_a_file_explore_by_the_range_of_its_returns():
    """The rewards' range times 1 + gamma + ... + gamma^19."""
    by_simulations = {"planner": "po-uct"}
    tiger = preset(str(EXAMPLES / "tiger.pomdp"), "pomcp", kinds=by_simulations)
    planner = tiger.settings.planner
    assert (planner.depth, tiger.runs) == (20, 16)
    assert planner.exploration == pytest.approx(110 * sum(0.95**t for t in range(20)))
    own = preset(
        str(MAINTENANCE), "pomcp", kinds=by_simulations
    )  # 2 and -10 are the extremes, met on any random walk
    assert own.settings.planner.exploration == pytest.approx(12 * sum(0.95**t for t in range(20)))
    assert returns_range(3.0, 1.0, 4) == 12.0 and returns_range(0.0, 0.5, 4) == 1.0


def test_a_files_names_need_no_jax():
    names = catalog.entry(str(EXAMPLES / "tiger.pomdp"))
    assert names.names(names.settings).action == ("listen", "open-left", "open-right")


def test_a_changed_file_is_not_gone_on_with(tmp_path, capsys):
    path = tmp_path / "own.pomdp"
    path.write_text((EXAMPLES / "tiger.pomdp").read_text())
    assert (
        baddr_main("run", path, "--agent", "pomcp", "--episodes", "1", *SMALL, "--out", tmp_path / "a") == 0
    )
    path.write_text(path.read_text().replace("0.85 0.15", "0.75 0.25"))
    assert baddr_main("resume", tmp_path / "a", "--episodes", "2") == 2
    assert "has changed since" in capsys.readouterr().err
    path.unlink()
    assert baddr_main("resume", tmp_path / "a", "--episodes", "2") == 2
    assert f"There is no file {path}" in capsys.readouterr().err


# --- a user's own domain ------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_own_domain_runs_with_networks_and_goes_on(tmp_path, capsys, monkeypatch):
    """Its prior is cached under the content of the file: another content is another prior."""
    monkeypatch.chdir(tmp_path)
    path = own(tmp_path, f"# {time.time_ns()}: no run before had this content\n")
    small = [*SMALL, "--network.hidden", "8", "--pretrain.batches", "16", "--pretrain.max-gap", "9"]
    assert baddr_main("run", path, "--domain.wear", "0.3", "--episodes", "1", *small) == 0
    assert os.listdir("results") == ["own.py-baddr-1"]
    config = (tmp_path / "results" / "own.py-baddr-1" / "config.toml").read_text()
    assert f'name = "{path}:make_domain"' in config and "wear = 0.3" in config
    assert baddr_main("resume", "results/own.py-baddr-1", "--episodes", "2") == 0
    priors = lambda: {p.name for p in cache.priors().glob(f"{name_of(path)}-*.json")}
    before = priors()
    assert len(before) == 1
    path.write_text(path.read_text() + "\n# another content\n")
    assert baddr_main("run", path, "--domain.wear", "0.3", "--episodes", "1", *small) == 0
    assert len(priors()) == 1 and before.isdisjoint(priors())
    capsys.readouterr()
    assert baddr_main("plot", "results/own.py-baddr-1", "--out", "curves.svg") == 0


def test_arguments_become_settings(tmp_path):
    body = (
        "def other(total: float = 3, names=('a', 'b'), sizes: tuple[int, ...] = (1,), loud=False, f=print,\n"
        "          *, kind: 'str' = 'x'):\n    return make_domain(prior_total=total)\n"
    )
    settings = catalog.entry(f"{own(tmp_path, body)}:other").settings
    assert settings.name == f"{tmp_path / 'own.py'}:other"
    values = {name: value for name, value in vars(settings).items()}
    assert values == {"total": 3.0, "names": ("a", "b"), "sizes": (1,), "loud": False, "kind": "x"}
    assert isinstance(settings.total, float)
    domain = build_domain(preset(f"{tmp_path / 'own.py'}:other", "pomcp", "quick", settings))
    assert domain.name.startswith("own-")


def test_the_same_content_is_the_same_settings_class(tmp_path):
    path = str(own(tmp_path, ""))
    assert catalog.entry(path).settings == catalog.entry(f"{path}:make_domain").settings


def name_of(path):
    """With a hash of the content."""
    entry = catalog.entry(str(path))
    return entry.make_domain(entry.settings).name


WRONG = {
    "x = (": "line LAST: importing it raised SyntaxError",
    "1 / 0": "line LAST: importing it raised ZeroDivisionError: division by zero",
    "import nothing_like_it": "line LAST: importing it raised ModuleNotFoundError",
    "def f(size): pass": "argument 'size' of f must be a keyword argument with a default",
    "def f(name='x'): pass": "argument 'name' of f must be renamed",
    "def f(): return 3": "f() must return a baddr Domain, not a value of type int",
    "def f(): return [][0]": "line LAST: f() raised IndexError",
    "f = 3": "has no function 'f'",
    "def f(): return make_domain(horizon=0)": "pomdp.horizon must be a positive integer, not 0",
}


@pytest.mark.parametrize("body", WRONG)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(body, tmp_path, monkeypatch, capsys):
    path = own(tmp_path, body)
    monkeypatch.chdir(tmp_path)
    assert baddr_main("run", f"{path}:f", "--agent", "pomcp") == 2
    error = capsys.readouterr().err.strip()
    sentence = WRONG[body].replace("LAST", str(len(path.read_text().splitlines())))
    assert sentence in error and error.startswith("baddr: ") and "\n" not in error
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.pomdp", "There is no file missing.pomdp"),
        ("missing.py", "There is no file missing.py"),
        ("a/missing.py:f", "There is no file a/missing.py"),
        ("examples/tiger", "a file must be FILE.pomdp"),
        ("tigr", "did you mean 'tiger'"),
    ],
)
def test_names_that_stand_for_nothing(name, sentence):
    with pytest.raises(UserError, match=sentence):
        catalog.entry(name)


def test_the_domain_and_its_path_must_agree(capsys):
    arguments = [EXAMPLES / "tiger.pomdp", "--domain.path", MACHINE]
    assert baddr_main("run", *arguments) == 2 == baddr_main("check", *arguments)
    assert capsys.readouterr().err.count("names another file") == 2


# --- check --------------------------------------------------------------------------------------------


def test_check_says_what_it_checked(capsys):
    assert baddr_main("check", MAINTENANCE, "--domain.horizon", "3") == 0
    said = capsys.readouterr().out
    assert said.startswith("maintenance.py is fine") and "counts: none is negative" in said


def test_check_names_what_is_wrong(tmp_path, capsys):
    path = own(tmp_path, "def f(): return make_domain(horizon=-1)")
    assert baddr_main("check", f"{path}:f") == 1
    said = capsys.readouterr().out
    assert said == "own.py:f: pomdp.horizon must be a positive integer, not -1.\n"


# --- docs ---------------------------------------------------------------------------------------------


def test_the_python_example_of_the_docs_learns(monkeypatch, capsys):
    """docs/own-domain.md, with its numbers made small."""
    text = (EXAMPLES.parent / "docs" / "own-domain.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    for large, small in (("batches=2048", "batches=8"), ("=64", "=8"), ("2), 40", "1), 20")):
        assert large in code
        code = code.replace(large, small)
    monkeypatch.chdir(EXAMPLES.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names: dict = {}
    exec(code, names)
    steps = names["steps"]
    assert steps.ended.sum() == 4 and names["fit"].gap.shape == (1,)
