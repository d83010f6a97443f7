"""The book as a site: tutorials run and print what their pages say, other Python blocks run, and the site is
built strictly, without the network."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
place = importlib.util.spec_from_file_location("tutorials", ROOT / "docs" / "tutorials.py")
assert place is not None and place.loader is not None
tutorials = importlib.util.module_from_spec(place)
place.loader.exec_module(tutorials)
HEAVY = ("counts-to-networks", "own-simulator")  # they compile an agent


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.?\d*", text)]


def outputs(page: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def by_name(path: Path):
    marks = [pytest.mark.slow] if path.stem in HEAVY else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [by_name(path) for path in tutorials.SCRIPTS])
def test_a_tutorial_prints_what_its_page_says(path, monkeypatch):
    """Exactly the words, and the numbers to a tenth: the last digits differ from processor to processor."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    now, before = tutorials.page(path), path.with_suffix(".md").read_text()
    words = lambda page: re.sub(r"-?\d+\.?\d*", "#", page)
    assert words(now) == words(before), "run python docs/tutorials.py --write"
    for new, old in zip(outputs(now), outputs(before), strict=True):
        assert numbers(new) == pytest.approx(numbers(old), rel=0.1, abs=0.1)


def test_every_tutorial_has_its_page_and_says_where_it_comes_from():
    for path in tutorials.SCRIPTS:
        assert path.with_suffix(".md").read_text().startswith(tutorials.WRITTEN)
    assert len(tutorials.SCRIPTS) == 4


@pytest.mark.parametrize("name", ["pomdp-py", "gymnasium"])
def test_the_blocks_of_coming_from_run(name, capsys):
    page = ROOT / "docs" / "coming-from" / f"{name}.md"
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(page), "exec"), {})
    assert capsys.readouterr().out


def test_the_site_is_built_strictly_and_needs_no_network(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install 'baddr[docs]'")
    pytest.importorskip("material", reason="pip install 'baddr[docs]'")
    pytest.importorskip("mkdocstrings", reason="pip install 'baddr[docs]'")
    nothing = {
        "https_proxy": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }  # nobody listens there
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | nothing | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    loaded = [x for p in pages for x in re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]*)"', p.read_text())]
    assert not loaded and "GBAPOMDP" in (tmp_path / "api.html").read_text()
